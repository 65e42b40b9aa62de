# What test, run, nightly and console/run share; they source it. work is a directory.

heading() { printf '\n== %s, after %d s\n' "$*" "$SECONDS"; }

# installed installs Debian's packages when there is no such program.
installed() { # program package…
	! command -v "$1" >/dev/null || return 0
	local sudo=()
	[ "$(id -u)" = 0 ] || sudo=(sudo -n)
	echo "installing ${*:2}"
	{
		"${sudo[@]}" apt-get update -qq &&
			"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${@:2}"
	} >"$work/apt.log" 2>&1 || {
		cat "$work/apt.log"
		return 1
	}
}

# tested runs tests, adds what they print to tests.log in work, and shows a line
# for each package, and all of one that fails.
tested() { # arguments of go test
	go test -v "$@" 2>&1 | tee -a "$work/tests.log" | awk '
		/^(ok|\?) +\t/ { print; fflush(); lines = 0; next }
		/^=== (RUN|PAUSE|CONT|NAME|ATTR)|^ *--- PASS|^PASS$/ { next }
		{ line[lines++] = $0 }
		/^FAIL(\t|$)/ { for (i = 0; i < lines; i++) print line[i]; fflush(); lines = 0 }
		END { for (i = 0; i < lines; i++) print line[i] }'
}

# tested_modules tests all modules. The dots of go leave out hidden folders.
tested_modules() { # flags of go test
	local module status=0
	for module in "${modules[@]}"; do
		(cd "$module" && tested "$@" ./... $(find .ci -name '*_test.go' -printf './%h\n' 2>/dev/null | sort -u)) || status=1
	done
	return "$status"
}

# totals says how many tests ran, and how many of them on which server.
totals() {
	awk '
		/^ *--- PASS/ { passed++; here++ }
		/^ *--- FAIL/ { failed++; here++ }
		/^ *--- SKIP/ { skipped++ }
		/^=== ATTR +[^ ]+ server / { on[$5, $3] = $5 }
		/^(ok|FAIL|\?) *\t/ {
			if (here) { packages["all"]++; tests["all"] += here }
			for (key in on) { tests[on[key]]++; met[on[key]] }
			for (server in met) packages[server]++
			here = 0; delete on; delete met
		}
		END {
			for (server in packages) printf "%-8s %2d packages %5d tests\n", server, packages[server], tests[server] | "sort"
			close("sort")
			printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
		}' "$work/tests.log"
}

# left_out prints the reason of each test that was skipped. It fails if there is none.
left_out() {
	awk '/^ *--- SKIP/ { skipped = 1; print; next } /left out: / { print }
		END { exit !skipped }' "$work/tests.log"
}

# none_left_out fails if a test was skipped, if a package ran none, or if fewer
# ran than these lines of .ci/floors say: what the caller is for was then not tested.
none_left_out() { # lines
	totals | tee "$work/totals"
	if left_out; then
		echo 'the tests above were skipped'
		return 1
	fi
	if grep -F '[no tests to run]' "$work/tests.log"; then
		echo 'the packages above ran no test'
		return 1
	fi
	awk -v lines=" $* " '
		FNR == NR { packages[$1] = $2; tests[$1] = $4; next }
		index(lines, " " $1 " ") && (packages[$1] < $2 || tests[$1] < $3) {
			printf "%s: %d packages and %d tests; .ci/floors asks for %d and %d\n", $1, packages[$1], tests[$1], $2, $3
			fewer = 1
		}
		END { exit fewer }' "$work/totals" .ci/floors
}

# on_servers prints the packages that meet a server: those whose tests import
# .ci/servers.
on_servers() {
	local harness
	harness="$(go list -m)/.ci/servers"
	go list -test -f '{{.ImportPath}}{{range .Deps}} {{.}}{{end}}' ./... ./.ci/rolling |
		awk -v harness="$harness" '$1 ~ /\.test$/ { for (i = 2; i <= NF; i++) if ($i == harness) { sub(/\.test$/, "", $1); print $1 } }'
}

# without_race prints the packages that have tests which the race detector
# leaves out by a build tag, and then the names of these tests, as -run takes them.
without_race() {
	local format='{{$dir := .Dir}}{{range .TestGoFiles}}{{$dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$dir}}/{{.}} {{end}}' files
	mapfile -t files < <(comm -23 <(go list -f "$format" ./... | xargs -n1 | sort) <(go list -race -f "$format" ./... | xargs -n1 | sort))
	grep -hoE '^func Test\w+' "${files[@]}" | sed 's/^func //' | sort -u | paste -sd '|' | sed 's/.*/^(&)$/'
	grep -lE '^func Test' "${files[@]}" | xargs -rn1 dirname | sort -u
}

staticcheck_version=v0.8.2
govulncheck_version=v1.8.0

# The side module lies in a hidden folder, which ./... leaves out.
modules=(. .side)

# tool prints the path of the program that a module installs, at exactly that version.
tool() { # package version
	local name=${1##*/} installed
	installed="$(go env GOPATH | cut -d: -f1)/bin/$name"
	if ! go version -m "$installed" 2>/dev/null | grep -P "\tmod\t\S+\t\Q$2\E\t" >/dev/null; then
		installed="$work/bin/$name"
		GOBIN="$work/bin" go install "$1@$2" >&2 || return 1
	fi
	echo "$installed"
}

# advisories compares every module with the published advisories and notes the
# day in .ci/advisories, to be committed. Its status is 2 when it cannot reach them.
advisories() {
	local govulncheck module
	govulncheck=$(tool golang.org/x/vuln/cmd/govulncheck "$govulncheck_version") || return 2
	for module in "${modules[@]}"; do
		echo "-- $module"
		(cd "$module" && "$govulncheck" ./...) >"$work/vuln.log" 2>&1 || {
			cat "$work/vuln.log"
			if grep -q 'fetching vulnerabilities' "$work/vuln.log"; then return 2; fi
			return 1
		}
	done
	date -u +%F >.ci/advisories
}

# not_checked says how long nobody has looked at the advisories.
not_checked() {
	local days word=WARNING
	days=$(((EPOCHSECONDS - $(date -d "$(cat .ci/advisories 2>/dev/null || echo @0)" +%s)) / 86400))
	if [ "$days" -le 30 ]; then word=NOTE; fi
	echo
	echo "$word: the published advisories cannot be reached from here; they were looked at $(
		if [ -f .ci/advisories ]; then echo "$days days ago"; else echo 'on no day that .ci/advisories has'; fi)"
}
