# What run and nightly share; they source it. work is a directory.

# tested_without_skips runs tests one by one and takes a skipped one for a
# failure: what the caller is for was then not tested.
tested_without_skips() { # arguments of go test
	local log="$work/test.log"
	if ! go test -v "$@" >"$log" 2>&1; then
		grep -vE '^=== (RUN|PAUSE|CONT|NAME)|^ *--- PASS' "$log"
		return 1
	fi
	if grep -E -B1 '^ *--- SKIP|left out:' "$log"; then
		echo 'the tests above were skipped'
		return 1
	fi
	grep -E '^(ok|FAIL|\?)[[:space:]]' "$log"
}

# packages_with prints the packages whose tests contain a pattern.
packages_with() { # extended regular expression
	grep -rlE --include='*_test.go' --exclude-dir='.?*' "$1" . | xargs -rn1 dirname | sort -u
}
