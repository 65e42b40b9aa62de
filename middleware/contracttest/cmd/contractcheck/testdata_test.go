package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
)

// The keys file of testdata describes a server whole, and the workflow calls
// the program with flags that it has.
func TestTestdata(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/contract.json")
	if err != nil {
		t.Fatal(err)
	}
	keys := reference.Keys()
	contract := string(text)
	for name, key := range keys {
		for _, shown := range []string{"svc_live_…", "svc_test_…"} {
			contract = strings.Replace(contract, `"`+name+`": "`+shown+`"`, `"`+name+`": "`+key+`"`, 1)
		}
	}
	file := filepath.Join(t.TempDir(), "contract.json")
	if err := os.WriteFile(file, []byte(contract), 0o600); err != nil {
		t.Fatal(err)
	}
	clean := serve(t, creates)
	served, err := os.ReadFile(clean)
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(string(served), `"base_url":"`)
	url, _, _ = strings.Cut(url, `"`)
	got := check(t, "CI=true", "-keys", file, "-url", url, quick)
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
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, sample, _ := strings.Cut(string(source), "//\tsteps:\n")
	sample, _, _ = strings.Cut(sample, "//\n")
	if sample == "" {
		t.Error("the package comment has no steps")
	}
	for step := range strings.Lines(sample) { // as YAML, which the workflow is
		if step = strings.Repeat(" ", 4) + strings.TrimPrefix(step, "//\t"); !strings.Contains(string(workflow), step) {
			t.Errorf("the workflow does not have the line %q of the package comment", step)
		}
	}
	c, err := parseFlags(strings.Fields(line), func(name string) string {
		return map[string]string{"CI": "true",
			"GITHUB_ACTIONS": "true"}[name]
	},
		strings.NewReader(contract), t.Output())
	if err != nil || !c.strict || !c.github || c.junit == "" || c.target.Keys["full"] != keys["full"] {
		t.Errorf("contractcheck %s: got %+v, %v", line, c, err)
	}
}
