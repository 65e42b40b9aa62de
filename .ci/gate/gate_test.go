// Package gate tests what makes .ci/run and .ci/nightly fail.
package gate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each script runs in a folder of its own, after begin and a set-up.
const begin = `set -euo pipefail; unset GIT_DIR; work=$PWD; . "$CI/tests.sh"; git init -q; mkdir -p .ci .github
	commit() { git add -A; git -c user.name=x -c user.email=x@x commit -qm x --allow-empty; }
	figures() { printf "$1\n" >.ci/ceilings; }
`

const (
	// figures are those of a commit; now has others.
	figures = `figures 'lines a 10\nnames a 4\ntests all 20'; commit; now() { figures "$1"; figures_kept; }
	`

	// tree has a folder and a package within others, and what does not count.
	tree = `mkdir -p .ci/surface a/in b c/node_modules/d; printf '1\n2\n' >a/a.go; echo 3 >a/in/in.go; echo 4 >b/b.go
		echo 5 | tee a/a_test.go a/a.txt c/node_modules/d/d.go >/dev/null
		printf 'package a // a\nfunc A()\nfunc (x X) B()\ntype X int\npackage in // a/in\nfunc I()\n' >.ci/surface/surface.txt
		figures '# A comment.\nlines a 3\nlines b,c 1\nlines all 4\nnames a 3\nnames all 4\ntests all 9'
	`

	modules = `set +e; modules=(a b); mkdir a b; `

	// server fails to start; no other one does.
	server = `set +e; . "$CI/servers.sh"; SALLYPORT_POSTGRES=x SALLYPORT_REDIS=x SALLYPORT_MARIADB=x
		programs() { :; }; as() { :; }; shuf() { echo 1; }; owner() { id -u; }
		ends() { eval "$1_server() { echo words; exit 1; }; $2="; start_servers; }
	`

	// gate is a project that passes the first stages of the gate.
	gate = `cp -r "$CI"/{run,tests.sh,modules.sh,servers.sh,tally,surface} .ci
		echo 'programs() { :; }' >>.ci/servers.sh # nothing is installed here
		printf 'module github.com/sallyport-go/sallyport\ngo 1.26\n' >go.mod
		printf 'package a\n\nvar A int\nvar B int\n' >a.go; unset TESTS_LOG
		figures 'tests all 9\nlines all 0'; sizes >sizes; mv sizes .ci/ceilings; surface >.ci/surface/surface.txt; commit
	`

	tag = `cp "$CI"/{tag,tests.sh,modules.sh} .ci; echo 'module m' >go.mod
		tag() { echo "## $1" >.github/CHANGELOG.md; commit; .ci/tag -n v0.1.0; }
	`
)

func TestScripts(t *testing.T) {
	ci, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, script string
		fails        bool
		says         string // at its end
	}{
		{"figures as they were", figures + `figures_kept`, false, ""},
		{"better ones", figures + `now 'lines a 9\nnames a 3\ntests all 21'`, false, ""},
		{"a folder without a figure", figures + `now 'lines b 9\nnames a 4\ntests all 20'`, false, ""},
		{"more lines", figures + `now 'lines a 11\nnames a 4\ntests all 20'`, true,
			"lines a: 11, and once 10; say in .ci/ceilings why: # lines a 11: ...\n"},
		{"more lines that are committed", figures + `figures 'lines a 11\nnames a 4\ntests all 20'; commit; figures_kept`,
			true, "# lines a 11: ...\n"},
		{"more names", figures + `now 'lines a 10\nnames a 5\ntests all 20'`, true, "# names a 5: ...\n"},
		{"fewer tests", figures + `now 'lines a 10\nnames a 4\ntests all 19'`, true, "# tests all 19: ...\n"},
		{"no floor", figures + `now 'lines a 10\nnames a 4'`, true, "# tests all 0: ...\n"},
		{"a reason", figures + `now 'lines a 11\nnames a 4\ntests all 19\n# lines a 11: x\n# tests all 19: x'`,
			false, ""},
		{"more than the reason has", figures + `now 'lines a 12\nnames a 4\ntests all 20\n# lines a 11: x'`,
			true, "# lines a 12: ...\n"},
		{"fewer than the reason has", figures + `now 'lines a 9\nnames a 4\ntests all 18\n# tests all 19: x'`,
			true, "# tests all 18: ...\n"},
		{"no words of a reason", figures + `now 'lines a 11\nnames a 4\ntests all 20\n# lines a 11:'`, true,
			"# lines a 11: ...\n"},
		{"the reason of another", figures + `now 'lines a 11\nnames a 4\ntests all 20\n# names a 11: x'`, true,
			"# lines a 11: ...\n"},
		{"no earlier commit", figures + `git clone -q --depth 1 "file://$PWD" b; cd b; figures_kept`, true,
			"are not here: git fetch --unshallow\n"},

		{"sizes", tree + `cp .ci/ceilings as; sed -i -E '/^[ln]/s/[0-9]$/7/' .ci/ceilings; sizes | diff as -`, false, ""},
		{"sizes at their ceilings", tree + `ceilings_kept`, false, ""},
		{"a folder above its", tree + `echo 6 >>a/in/in.go; ceilings_kept`, true,
			"lines a: 4; .ci/ceilings allows 3\nlines all: 5; .ci/ceilings allows 4\n"},
		{"two folders above theirs", tree + `echo 6 >c/c.go; ceilings_kept`, true,
			"lines b,c: 2; .ci/ceilings allows 1\nlines all: 5; .ci/ceilings allows 4\n"},
		{"all above theirs", tree + `sed -i s/all.4/all\ 3/ .ci/ceilings; ceilings_kept`, true,
			"names all: 4; .ci/ceilings allows 3\n"},
		{"a package above its", tree + `sed -i '2i func C()' .ci/surface/surface.txt; sed -i s/all.4/all\ 9/ .ci/ceilings
			ceilings_kept`, true, "names a: 4; .ci/ceilings allows 3\n"},

		{"modules", modules + `each_module true`, false, ""},
		{"the first fails", modules + `f() { [ ${PWD##*/} != a ]; }; each_module f`, true, ""},
		{"a pipe fails", modules + `f() { false | cat; }; each_module f`, true, ""},
		{"a module is missing", modules + `rmdir b; each_module true`, true, ""},
		{"no modules", modules + `modules=(); each_module true`, true, ""},

		{"Postgres ends", server + `ends postgres SALLYPORT_POSTGRES`, true,
			"words\npostgres does not start; what it said stands above\n"},
		{"Redis ends", server + `ends redis SALLYPORT_REDIS`, true,
			"words\nredis does not start; what it said stands above\n"},
		{"MariaDB ends", server + `ends mariadb SALLYPORT_MARIADB`, true,
			"words\nmariadb does not start; what it said stands above\n"},

		{"not formatted", gate + `echo 'var  C int' >>a.go; .ci/run`, true,
			"\nred: gofmt, and lines of at most 120 columns\n"},
		{"a name is gone", gate + `sed -i /B/d a.go; .ci/run`, true, "\nred: the exported surface\n"},
		{"a line too many", gate + `echo 'var d int' >>a.go; .ci/run`, true, "\nred: the size\n"},
		{"a ceiling is raised", gate + `sed -i 's/lines all .*/lines all 9/' ` +
			`.ci/ceilings; .ci/run`, true, "\nred: the size\n"},
		{"a floor is lowered", gate + `sed -i 's/tests all .*/tests all 1/' ` +
			`.ci/ceilings; .ci/run`, true, "\nred: the size\n"},
		{"it cannot begin", gate + `echo x >>.ci/tally/main.go; .ci/run`, true, "\nred: it did not begin\n"},

		{"a release", tag + `tag v0.1.0`, false, ""},
		{"a release that has a name", tag + `tag 'v0.1.0: words'`, false, ""},
		{"an unreleased one", tag + `tag 'v0.1.0: it (unreleased)'`, true, "or says that it is unreleased\n"},
		{"another one", tag + `tag v0.1.0-rc.1`, true, "or says that it is unreleased\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "bash", "-c", begin+tt.script)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "CI="+ci, "TESTS_LOG="+filepath.Join(cmd.Dir, "log"))
			out, err := cmd.CombinedOutput()
			if (err != nil) != tt.fails || !strings.HasSuffix(string(out), tt.says) {
				t.Errorf("got %v, want failure %t and %q at the end of\n%s", err, tt.fails, tt.says, out)
			}
		})
	}
}
