# What run, nightly and console/run share; they source it. work is a directory.

heading() { printf '\n== %s\n' "$*"; }

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

# tested_without_skips runs tests one by one and takes a skipped one, and a
# package that runs none, for a failure: what the caller is for was then not tested.
# skips is another pattern of what counts as skipped.
tested_without_skips() { # arguments of go test
	local log="$work/test.log"
	if ! go test -v "$@" >"$log" 2>&1; then
		grep -vE '^=== (RUN|PAUSE|CONT|NAME)|^ *--- PASS' "$log"
		return 1
	fi
	if grep -E -B1 "${skips:-^ *--- SKIP|left out:}" "$log"; then
		echo 'the tests above were skipped'
		return 1
	fi
	if grep -F '[no tests to run]' "$log"; then
		echo 'the packages above ran no test'
		return 1
	fi
	grep -E '^(ok|FAIL|\?)[[:space:]]' "$log"
}

# packages_with sets packages to those whose tests contain a pattern. There always
# are some.
packages_with() { # extended regular expression
	mapfile -t packages < <(grep -rlE --include='*_test.go' --exclude-dir='.?*' "$1" . | xargs -rn1 dirname | sort -u)
	if [ "${#packages[@]}" = 0 ]; then
		echo "no test has $1"
		return 1
	fi
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
# day in .ci/advisories. Its status is 2 when it cannot reach them.
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
