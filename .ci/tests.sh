# What run, nightly, release, tag and console/run share; they source it. work is a
# directory; what runs tests builds .ci/tally there.

# The folder of what tests have told.
log=${TESTS_LOG:-$work/tests}

heading() { # stage
	stage=$*
	printf '\n== %s, after %d s\n' "$stage" "$SECONDS"
}

# says_why is for the end of a script: its last line names the stage that failed.
says_why() { # status
	[ "$1" = 0 ] || echo "red: ${stage:-it did not begin}"
}

# installed installs Debian's packages when there is no such program.
installed() { # program package…
	! command -v "$1" >/dev/null || return 0
	local sudo=()
	[ "$(id -u)" = 0 ] || sudo=(sudo -n)
	echo "installing ${*:2}"
	quietly "${sudo[@]}" apt-get update -qq &&
		quietly "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${@:2}"
}

# quietly shows what a program prints only if it fails.
quietly() { # program argument…
	local said
	said=$("$@" 2>&1) || {
		echo "$said"
		return 1
	}
}

# race are the flags of go test for the race detector. It does not look into
# SQLite, which is C that was translated to Go: that would take ten times as
# long. The driver, which calls it, is not left out.
race=(-race)
for package in sqlite/lib libc/... memory; do
	race+=("-gcflags=modernc.org/$package=-race=false")
done

# A program with the detector would wait a second at its end for what it still
# finds, and tests start many.
export GORACE=${GORACE:-atexit_sleep_ms=50}

# none_left_out fails if a test was skipped or has no end, or if what ran is less
# than .ci/ceilings wants for these names: what the caller is for was then not
# tested.
none_left_out() { "$work/tally" want "$log" .ci/ceilings "$@"; } # all or server…

# each_module runs a command in each module, and fails if it fails in any.
each_module() { # command argument…
	local module status=0
	[ "${#modules[@]}" -gt 0 ] || return 1
	for module in "${modules[@]}"; do
		(cd "$module" && "$@") || status=1
	done
	return "$status"
}

# with_replaces copies go.mod and go.sum of the module here to NAME.mod and
# NAME.sum. A module whose commands are installed has its replaces in a go.work,
# where go mod does not see them: they are added.
with_replaces() { # NAME
	cp go.mod "$1.mod"
	cat go.sum >"$1.sum" 2>/dev/null || : # a module that requires nothing has none
	if [ -f go.work ]; then sed -n '/^replace (/,/^)/p; /^replace [^(]/p' go.work >>"$1.mod"; fi
}

# tidy fails if go.mod or go.sum of the module here are not.
tidy() {
	with_replaces "$work/tidy"
	GOWORK=off go mod tidy -diff -modfile="$work/tidy.mod"
}

# sizes prints .ci/ceilings with the lines of Go without tests in each folder and
# the exported names of each package as they are. What lies in a folder that it
# does not name belongs to the one around it.
sizes() {
	{
		find . -name node_modules -prune -o -name '*.go' ! -name '*_test.go' -exec wc -l {} + | sed -n 's# \./# lines #p'
		awk '/^package / { package = $4 } /^(func|type) / { print 1, "names", package "/" }' .ci/surface/surface.txt
	} | awk '
		pass == 1 { n = split($2, names, ","); for (i = 1; i <= n; i++) line[$1 " " names[i]] = $1 " " $2 }
		pass == 2 {
			sum[$2 " all"] += $1
			while (sub("/[^/]*$", "", $3) && $2 == "lines" && !($2 " " $3 in line)) {}
			sum[line[$2 " " $3]] += $1
		}
		pass == 3 && ($1 == "lines" || $1 == "names") { $3 = sum[$1 " " $2] + 0 }
		pass == 3 { print }' pass=1 .ci/ceilings pass=2 - pass=3 .ci/ceilings
}

# ceilings_kept fails if a folder or a package is larger than .ci/ceilings allows.
ceilings_kept() {
	sizes | paste -d ' ' .ci/ceilings - | awk '
		/^(lines|names) / && $6 > $3 { printf "%s %s: %d; .ci/ceilings allows %d\n", $1, $2, $6, $3; bad = 1 }
		END { exit bad }'
}

# figures_kept fails if a figure of .ci/ceilings is worse than an earlier one, but
# for a line that says how far and why: "# KIND NAME FIGURE: why".
figures_kept() {
	local commit commits
	commits=$(git rev-list -n 50 HEAD -- .ci/ceilings)
	if [ -z "$commits" ] || [ "$(git rev-parse --is-shallow-repository)" = true ]; then
		echo 'the earlier figures of .ci/ceilings are not here: git fetch --unshallow'
		return 1
	fi
	for commit in $commits; do git show "$commit:.ci/ceilings"; done | awk '
		{ of = $1 " " $2; side = /^(# )?(packages|tests) / ? -1 : 1 } # fewer of them are worse
		FILENAME == "-" { if (!/^#/ && (!(of in best) || side * $3 < best[of])) best[of] = side * $3; next }
		/^# [a-z]+ [^ ]+ [0-9]+: ./ { allowed[$2 " " $3] = side * $4; next }
		!/^#/ { now[of] = side * $3 }
		END {
			for (of in best) {
				if (now[of] <= best[of] || of in allowed && now[of] <= allowed[of]) continue
				side = of ~ /^(packages|tests) / ? -1 : 1
				printf "%s: %d, and once %d; say in .ci/ceilings why: # %s %d: ...\n",
					of, side * now[of], side * best[of], of, side * now[of]
				worse = 1
			}
			exit worse
		}' - .ci/ceilings
}

# on_servers prints the packages of the module here that meet a server: those
# whose tests import .ci/testlib/servers.
on_servers() {
	local all
	all=$(packages) || return 1
	go list -test -f '{{.ImportPath}}{{range .Deps}} {{.}}{{end}}' $all |
		awk '$1 ~ /\.test$/ && / [^ ]*\/\.ci\/testlib\/servers( |$)/ { sub(/\.test$/, "", $1); print $1 }'
}

# without_race runs the tests that the race detector leaves out by a build tag.
without_detector='^//go:build .*!race'
without_race() { # flags of go test
	local folder tests
	for folder in $(git grep -lE "$without_detector" -- '*_test.go' | xargs -r dirname | sort -u); do
		tests=$(grep -lE "$without_detector" "$folder"/*_test.go | xargs sed -nE 's/^func (Test\w+).*/\1/p' | paste -sd '|')
		[ -z "$tests" ] || (cd "$folder" && tested "$@" -run "^($tests)\$" .) || return 1
	done
}

newest_go=go1.27.4 # go.mod has the oldest
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
actionlint=github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.8.0
gremlins=github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
gorelease=golang.org/x/exp/cmd/gorelease@v0.0.0-20261113113407-e3970619a1a4

. "$(dirname "${BASH_SOURCE[0]}")/modules.sh"
mapfile -t modules < <(modules)
# Those in hidden folders are not published.
mapfile -t published < <(printf '%s\n' "${modules[@]}" | grep -v '/\.')

# versions sets the version that the modules require of each other.
versions() { # version
	sed -i -E "s#^(\s*|require )(github.com/sallyport-go/sallyport\S*) v\S+#\1\2 $1#" "${modules[@]/%//go.mod}"
}

# surface prints the exported surface of all published packages.
surface() {
	local module
	for module in "${published[@]}"; do
		(cd "$module" && go list -f '{{if ne .Name "main"}}{{.Dir}}{{end}}' ./...) || return 1
	done | grep -v '/internal\(/\|$\)' | sed "s#^$PWD/##" | LC_ALL=C sort | xargs go run ./.ci/surface
}

# advisories compares every module with the published advisories and notes the
# day in .ci/advisories, to be committed. Its status is 2 when it cannot reach them.
advisories() {
	local module
	for module in "${modules[@]}"; do
		echo "-- $module"
		(cd "$module" && go run "$govulncheck" ./...) >"$work/vuln.log" 2>&1 || {
			cat "$work/vuln.log"
			! grep -qE "fetching vulnerabilities|$govulncheck" "$work/vuln.log" || return 2
			return 1
		}
	done
	date -u +%F >.ci/advisories
}

# not_checked says since when nobody has looked at the advisories.
not_checked() {
	printf '\nWARNING: the published advisories cannot be reached from here; they were looked at: %s\n' \
		"$(cat .ci/advisories 2>/dev/null || echo never)"
}
