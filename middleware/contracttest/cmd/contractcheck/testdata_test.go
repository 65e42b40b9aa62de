package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
)

// The command of the guides has flags that the program has.
func TestTheGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../../.github/GUIDES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(string(guide), "\ncontractcheck ")
	command, _, _ = strings.Cut(command, "\n```")
	words, err := exec.Command("bash", "-c", `printf '%s\0' `+command).Output()
	if !found || err != nil {
		t.Fatalf("the guide does not call contractcheck: %v", err)
	}
	args := strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00")
	keys := strings.NewReader(`{"keys": {"full": "svc_live_1"}}`)
	args[slices.Index(args, "keys.json")] = "-"
	c, err := parseFlags(args, func(string) string { return "" }, keys, t.Output())
	if err != nil || len(c.target.Creates) != 1 || c.target.Creates[0].List != "/api/v1/tasks" {
		t.Errorf("contractcheck %q: got %+v, %v", args, c, err)
	}
}

// The keys file of testdata describes a server whole, and the workflow calls
// the program with flags that it has.
func TestTestdata(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/contract.json")
	if err != nil {
		t.Fatal(err)
	}
	keys, contract := reference.Keys(), string(text)
	for name, key := range keys {
		for _, shown := range []string{"svc_live_…", "svc_test_…"} {
			contract = strings.Replace(contract, `"`+name+`": "`+shown+`"`, `"`+name+`": "`+key+`"`, 1)
		}
	}
	file := filepath.Join(t.TempDir(), "contract.json")
	if err := os.WriteFile(file, []byte(contract), 0o600); err != nil {
		t.Fatal(err)
	}
	got := check(t, "CI=true", "-keys", file, "-url", serveAt(t), quick)
	if got.status != 0 {
		t.Errorf("contract.json: got status %d\n%s\n%s", got.status, got.stdout, got.stderr)
	}

	workflow, err := os.ReadFile("testdata/workflow.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(workflow), "run: contractcheck ")
	line, _, _ = strings.Cut(line, " <<<")
	if !found {
		t.Fatal("the workflow does not call contractcheck")
	}
	on := func(string) string { return "true" } // CI and GITHUB_ACTIONS
	c, err := parseFlags(strings.Fields(line), on, strings.NewReader(contract), t.Output())
	if err != nil || !c.strict || !c.github || c.junit == "" || c.target.Keys["full"] != keys["full"] {
		t.Errorf("contractcheck %s: got %+v, %v", line, c, err)
	}
}
