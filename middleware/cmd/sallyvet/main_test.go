package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

// host returns a module with the packages of testdata, which is built with the
// modules of this tree: a name that the checks look for, and that is not there
// any more, does not compile.
func host(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} { // of idempgx, which requires all that testdata imports
		text, err := os.ReadFile(filepath.Join(root, "idem", "idempgx", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{
		{"mod", "edit", "-module=example.com/host", "-require=" + ours + "idem/idempgx@v0.0.0",
			"-replace=" + strings.TrimSuffix(ours, "/") + "=" + root,
			"-replace=" + ours + "idem/idempgx=" + filepath.Join(root, "idem", "idempgx")},
		{"build", "./..."}, // it may fetch pgx, which analysistest does not
	} {
		if out, err := goCommand(t, dir, command...); err != nil {
			t.Fatalf("go %v: %v\n%s", command, err, out)
		}
	}
	return dir
}

func goCommand(t *testing.T, dir string, arguments ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", arguments...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// All checks see all packages, and in one go, because to load them takes seconds.
func TestChecks(t *testing.T) {
	all := &analysis.Analyzer{Name: "all", Doc: "all checks", Run: func(pass *analysis.Pass) (any, error) {
		for _, a := range checks {
			if _, err := a.Run(pass); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}}
	analysistest.Run(t, host(t), all, "./...")
}

func TestAsVettool(t *testing.T) {
	dir, tool := host(t), filepath.Join(t.TempDir(), "sallyvet")
	if out, err := goCommand(t, ".", "build", "-o", tool, "."); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := goCommand(t, dir, "vet", "-vettool="+tool, "./revealed")
	if err == nil || !strings.Contains(out, "this shows a secret") {
		t.Errorf("go vet: got %v, want a failure that says so:\n%s", err, out)
	}
	if out, err := goCommand(t, dir, "vet", "-vettool="+tool, "-revealed=false", "./revealed"); err != nil {
		t.Errorf("go vet -revealed=false: %v\n%s", err, out)
	}
}
