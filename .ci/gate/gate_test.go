// Package gate tests what makes .ci/run and .ci/nightly fail.
package gate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const path = "github.com/sallyport-go/sallyport/"

// passed is what go test prints of two packages: three tests, one on Redis.
const passed = "=== RUN   TestA\n=== ATTR  TestA server Redis\n=== RUN   TestA/sub\n--- PASS: TestA (0.00s)\n" +
	"    --- PASS: TestA/sub (0.00s)\nPASS\nok  \t" + path + "a\t0.1s\n" +
	"=== RUN   TestB\n--- PASS: TestB (0.01s)\nPASS\nok  \t" + path + "b\t0.1s\n" +
	"?   \t" + path + "known\t[no test files]\n"

func TestNoneLeftOut(t *testing.T) {
	const floors = "# A comment.\nall 2 3\nRedis 1 1\n"
	for _, tt := range []struct {
		name, log, floors string
		want              string // what it says, or none if it passes
	}{
		{"all is there", passed, floors, ""},
		{"no test", "", floors, "all: 0 packages and 0 tests"},
		{"no floor", passed, "all 2 3\n", "no figures for Redis"},
		{"a floor without figures", passed, "all 2 3\nRedis\n", "no figures for Redis"},
		{"a test too few", passed, "all 2 4\nRedis 1 1\n", "all: 2 packages and 3 tests; .ci/floors asks for 2 and 4"},
		{"a package too few", passed, "all 3 3\nRedis 1 1\n", "all: 2 packages and 3 tests"},
		{"a server too few", passed, "all 2 3\nRedis 2 1\n", "Redis: 1 packages and 1 tests"},
		{"twice is once", passed + passed, "all 2 4\nRedis 1 1\n", "all: 2 packages and 3 tests"},
		{"tests inside a test", "=== RUN   TestC\n    c.go:1: =\n        === RUN   TestIn\n" +
			"        --- PASS: TestIn (0.00s)\n        --- SKIP: TestIn (0.00s)\n" +
			"--- PASS: TestC (0.00s)\nok  \t" + path + "c\t0.1s\n" + passed,
			"all 3 5\nRedis 1 1\n", "all: 3 packages and 4 tests"},
		{"a skip", "=== RUN   TestC\n--- SKIP: TestC (0.00s)\nok  \t" + path + "c\t0.1s\n" + passed, floors,
			"c TestC\nthe tests above were skipped"},
		{"a skip behind output", "=== RUN   TestC\nwords--- SKIP: TestC (0.00s)\nok  \t" + path + "c\t0.1s\n" + passed,
			floors, "c TestC\nthe tests above were skipped"},
		{"a skip in one round of two", strings.Replace(passed, "--- PASS: TestB", "--- SKIP: TestB", 1) + passed, floors,
			"b TestB\nthe tests above were skipped"},
		{"no end", "=== RUN   TestC\nok  \t" + path + "c\t0.1s\n" + passed, floors,
			"c TestC\nthe tests above neither passed nor failed"},
		{"a pattern that matches none", passed + "ok  \t" + path + "a\t0.1s [no tests to run]\n", floors, "ran no test"},
		{"a package that ends at once", passed + "ok  \t" + path + "c\t0.1s\n", floors, "c has no test\n"},
		{"a package whose tests are gone", passed + "?   \t" + path + "c\t[no test files]\n", floors, "c has no test\n"},
		{"a package with tests again", passed + "=== RUN   TestC\n--- PASS: TestC (0.00s)\nok  \t" + path + "known\t0.1s\n",
			floors, "known has a test\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"log": tt.log, ".ci/floors": tt.floors, ".ci/untested": "# A comment.\nknown\n",
			} {
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			// As nightly, and as run.
			for _, options := range []string{"-uo", "-euo"} {
				out, err := bash(t, dir, "set "+options+" pipefail; none_left_out all Redis")
				if (err == nil) != (tt.want == "") || !strings.Contains(out, tt.want) {
					t.Errorf("set %s: got %v, want %q in\n%s", options, err, tt.want, out)
				}
			}
		})
	}
}

// A floor that is lowered needs a line that says from which figure, and why.
func TestFloorsKept(t *testing.T) {
	const commit = "git add -A && git -c user.name=x -c user.email=x@x commit -qm x; "
	for floors, want := range map[string]bool{
		"all 2 9\nRedis 1 1":                        false,
		"all 2 9\n# lowered all 10: x\nRedis 1 1":   true,
		"all 2 9\n# lowered all 8: x\nRedis 1 1":    false,
		"all 2 9\n# lowered all 10:\nRedis 1 1":     false,
		"all 2 9\n# lowered Redis 10: x\nRedis 1 1": false,
		"all 2 10":                          false,
		"# A comment.\nall 2 11\nRedis 1 1": true,
	} {
		for _, then := range []string{"", commit} {
			out, err := bash(t, t.TempDir(), `git init -q; mkdir .ci; set -euo pipefail
				printf 'all 2 10\nRedis 1 1\n' >.ci/floors; `+commit+
				"printf '"+floors+"\n' >.ci/floors; "+then+"floors_kept")
			if (err == nil) != want {
				t.Errorf("%q: got %v, want success %t\n%s", floors, err, want, out)
			}
		}
	}
}

func TestNoLog(t *testing.T) {
	if out, err := bash(t, t.TempDir(), "set -uo pipefail; none_left_out"); err == nil {
		t.Errorf("it passed where no test has run:\n%s", out)
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
			directory() { mkdir "$work/$1"; }
			`+server+"_server() { echo the words of "+server+"; exit 1; }\n"+
			variable+"=; start_servers")
		if err == nil || !strings.Contains(out, "the words of "+server) {
			t.Errorf("%s: got %v, and it said:\n%s", server, err, out)
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
