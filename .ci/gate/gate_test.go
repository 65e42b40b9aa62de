// Package gate tests what makes .ci/run and .ci/nightly fail.
package gate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A figure that gets worse needs a line that says how far, and why.
func TestFiguresKept(t *testing.T) {
	const commit = "git add -A && git -c user.name=x -c user.email=x@x commit -qm x --allow-empty; "
	for figures, want := range map[string]bool{
		"lines a 10\nnames a 4\ntests all 20":                                    true,
		"lines a 9\nnames a 3\ntests all 21":                                     true,
		"lines a 11\nnames a 4\ntests all 20":                                    false,
		"lines a 10\nnames a 5\ntests all 20":                                    false,
		"lines a 10\nnames a 4\ntests all 19":                                    false,
		"lines a 10\nnames a 4":                                                  false, // no floor
		"lines a 11\nnames a 4\ntests all 20\n# lines a 11: x":                   true,
		"lines a 12\nnames a 4\ntests all 20\n# lines a 11: x":                   false,
		"lines a 11\nnames a 4\ntests all 20\n# lines a 11:":                     false,
		"lines a 11\nnames a 4\ntests all 20\n# names a 11: x":                   false,
		"# tests all 19: x\nlines a 10\nnames a 4\ntests all 19":                 true,
		"# tests all 19: x\nlines a 10\nnames a 4\ntests all 18":                 false,
		"lines b 10\nlines a 2\nnames a 4\nuntested all 3\ntests all 20\n# none": true,
	} {
		for _, then := range []string{"", commit} {
			out, err := bash(t, t.TempDir(), `git init -q; mkdir .ci; set -euo pipefail
				printf 'lines a 10\nnames a 4\ntests all 20\n' >.ci/ceilings; `+commit+
				"printf '"+figures+"\n' >.ci/ceilings; "+then+"figures_kept")
			if (err == nil) != want {
				t.Errorf("%q: got %v, want success %t\n%s", figures, err, want, out)
			}
		}
	}
	out, err := bash(t, t.TempDir(), "git init -q a; cd a; mkdir .ci; echo 'lines a 10' >.ci/ceilings; "+commit+
		"cd ..; git clone -q --depth 1 file://$PWD/a b; cd b; figures_kept")
	if err == nil || !strings.HasSuffix(out, "are not here: git fetch --unshallow\n") {
		t.Errorf("without earlier commits: got %v\n%s", err, out)
	}
}

// A folder or a package that outgrows its ceiling is red. Tests do not count, and
// what lies in a folder without a ceiling belongs to the one around it.
func TestCeilingsKept(t *testing.T) {
	const tree = `mkdir -p .ci/surface a/in b c/node_modules/d; printf '1\n2\n' >a/a.go; printf '3\n' >a/in/in.go
		printf '4\n' >b/b.go; printf '5\n' | tee a/a_test.go a/a.txt c/node_modules/d/d.go >/dev/null
		printf 'package a // a\nfunc A()\nfunc (x X) B()\ntype X int\npackage in // a/in\nfunc I()\n' >.ci/surface/surface.txt
		set -euo pipefail; `
	const as = "# A comment.\nlines a 3\nlines b,c 1\nlines all 4\nnames a 3\nnames all 4\ntests all 9\n"
	out, err := bash(t, t.TempDir(), tree+"printf '"+as+"' | sed -E '/^[ln]/s/[0-9]$/7/' >.ci/ceilings; sizes")
	if err != nil || out != as {
		t.Errorf("got the sizes\n%s%v, want\n%s", out, err, as)
	}
	for _, lower := range []string{"", "lines a 2", "lines b,c 0", "lines all 3", "names a 2", "names all 3"} {
		what := strings.TrimRight(lower, "0123456789")
		out, err := bash(t, t.TempDir(), tree+"printf '"+as+"' | sed 's/^"+what+".$/"+lower+"/' >.ci/ceilings; ceilings_kept")
		if (err == nil) != (lower == "") || lower != "" && !strings.Contains(out, strings.TrimSpace(what)+": ") {
			t.Errorf("%q: got %v and\n%s", lower, err, out)
		}
	}
}

// Nothing of what fails in one module is lost.
func TestEachModule(t *testing.T) {
	for script, want := range map[string]bool{
		"modules=(a b); each_module true":                                  true,
		"modules=(a b); f() { [ $(basename $PWD) != a ]; }; each_module f": false,
		"modules=(a b); f() { false | cat; }; each_module f":               false,
		"modules=(a none); each_module true":                               false,
		"modules=(); each_module true":                                     false,
	} {
		dir := t.TempDir()
		for _, name := range []string{"a", "b"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := bash(t, dir, "set -uo pipefail; "+script); (err == nil) != want {
			t.Errorf("%s: got %v, want success %t\n%s", script, err, want, out)
		}
	}
}

// A server that ends at once keeps the tests from being started, also where no
// set -e does.
func TestServerThatDoesNotStart(t *testing.T) {
	servers, err := filepath.Abs("../servers.sh")
	if err != nil {
		t.Fatal(err)
	}
	for server, variable := range map[string]string{
		"postgres": "SALLYPORT_POSTGRES", "redis": "SALLYPORT_REDIS", "mariadb": "SALLYPORT_MARIADB",
	} {
		out, err := bash(t, t.TempDir(), "set -uo pipefail; . "+servers+`
			SALLYPORT_POSTGRES=x SALLYPORT_REDIS=x SALLYPORT_MARIADB=x
			programs() { :; }
			as() { :; }
			shuf() { echo 1; } # one port
			owner() { id -u; }
			`+server+"_server() { echo the words of "+server+"; exit 1; }\n"+
			variable+"=; start_servers")
		if err == nil || !strings.Contains(out, "the words of "+server) ||
			!strings.HasSuffix(out, server+" does not start; what it said stands above\n") {
			t.Errorf("%s: got %v, and it said:\n%s", server, err, out)
		}
	}
}

// The last line of a gate that is red names the stage.
func TestRunSaysWhy(t *testing.T) {
	dir := t.TempDir()
	scripts, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := bash(t, dir, `set -euo pipefail; git init -q; mkdir .ci
		cp -r `+scripts+`/{run,tests.sh,modules.sh,servers.sh,tally,surface} .ci
		echo 'programs() { :; }' >>.ci/servers.sh # nothing is installed here
		printf 'module github.com/sallyport-go/sallyport\ngo 1.26\n' >go.mod
		printf 'package a\n\nvar A int\nvar B int\n' >a.go
		printf 'tests all 9\nlines all 0\n' >.ci/ceilings
		sizes >figures; mv figures .ci/ceilings; surface >.ci/surface/surface.txt
		git add -A; git -c user.name=x -c user.email=x@x commit -qm x`); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for change, want := range map[string]string{
		"echo 'var  C int' >>a.go":                          "gofmt, and lines of at most 120 columns",
		"sed -i /B/d a.go":                                  "the exported surface",
		"echo 'var d int' >>a.go":                           "the size",
		"sed -i 's/lines all .*/lines all 9/' .ci/ceilings": "the size",
		"sed -i 's/tests all .*/tests all 1/' .ci/ceilings": "the size",
		"echo x >>.ci/tally/main.go":                        "it did not begin",
	} {
		out, err := bash(t, dir, "git reset -q --hard; "+change+"; unset TESTS_LOG; .ci/run 2>&1")
		if err == nil || !strings.HasSuffix(out, "\nred: "+want+"\n") {
			t.Errorf("%s: got %v, want red: %s as the last line of\n%s", change, err, want, out)
		}
	}
}

// bash runs a script with the functions of .ci/tests.sh in a folder.
func bash(t *testing.T, dir, script string) (string, error) {
	t.Helper()
	functions, err := filepath.Abs("../tests.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "work=$PWD; . "+functions+"; "+script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TESTS_LOG="+filepath.Join(dir, "log"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A release has its name in the changelog, and is not called unreleased there.
func TestTag(t *testing.T) {
	for changelog, want := range map[string]string{
		"## v0.1.0\n":                  "",
		"## v0.1.0: words\n":           "",
		"## v0.1.0: it (unreleased)\n": "unreleased",
		"## v0.1.0-rc.1\n":             "unreleased",
		"":                             "unreleased",
	} {
		scripts, err := filepath.Abs("..")
		if err != nil {
			t.Fatal(err)
		}
		out, err := bash(t, t.TempDir(), `set -euo pipefail; git init -q; mkdir .ci .github
			cp `+scripts+`/{tag,tests.sh,modules.sh} .ci; printf 'module m\n' >go.mod
			printf '`+changelog+`' >.github/CHANGELOG.md
			git add -A; git -c user.name=x -c user.email=x@x commit -qm x; .ci/tag -n v0.1.0`)
		if (err == nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%q: got %v, want %q in\n%s", changelog, err, want, out)
		}
	}
}
