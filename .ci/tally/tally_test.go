package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// events makes of lines "ACTION PACKAGE TEST REST" what go test prints of them.
// REST is an output, or a server. The TEST of a package itself is "-".
func events(lines string) string {
	var text strings.Builder
	for line := range strings.Lines(lines) {
		word := append(strings.SplitN(strings.TrimSpace(line), " ", 4), "")
		e := event{Action: word[0], Package: word[1], Test: strings.Trim(word[2], "-"), Output: word[3] + "\n"}
		if e.Action == "attr" {
			e.Key, e.Value, e.Output = "server", word[3], ""
		}
		one, _ := json.Marshal(e)
		fmt.Fprintf(&text, "%s\n", one)
	}
	return text.String()
}

// round is between the lines of one run of go test and those of the next.
const round = "\n"

// tally returns the results of rounds.
func tally(t *testing.T, rounds string) results {
	t.Helper()
	r := results{}
	for lines := range strings.SplitSeq(rounds, "\n\n") {
		if err := r.read(strings.NewReader(events(lines))); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// passed is two packages: three tests, one on Redis.
const passed = "run a TestA\nattr a TestA Redis\nrun a TestA/sub\npass a TestA/sub\npass a TestA\n" +
	"output a - ok a\npass a -\nrun b TestB\npass b TestB\noutput b - ok b\npass b -\n" +
	"output known - ? known\nskip known -\n"

func TestWant(t *testing.T) {
	const all = "packages all 2\ntests all 3\nuntested all 1\n"
	const floors = "# A comment.\n" + all + "packages Redis 1\ntests Redis 1\n"
	for _, tt := range []struct {
		name, log, floors string
		want              string // what it says, or none if it passes
	}{
		{"all is there", passed, floors, ""},
		{"no test", "", floors, "no test ran"},
		{"no floor", passed, all, "Redis: 1; "},
		{"a floor without a figure", passed, all + "packages Redis 1\ntests Redis\n", "tests Redis: 1; "},
		{"a floor that is a comment", passed, all + "packages Redis 1\n# tests Redis 1\n", "tests Redis: 1; "},
		{"a test too few", passed, strings.Replace(floors, "3", "4", 1), "tests all: 3; CEILINGS wants 4"},
		{"a package too few", passed, strings.Replace(floors, "2", "3", 1), "packages all: 2; CEILINGS wants 3"},
		{"a server too few", passed, strings.Replace(floors, "packages Redis 1", "packages Redis 2", 1),
			"packages Redis: 1; CEILINGS wants 2"},
		{"twice is once", passed + round + passed, strings.Replace(floors, "3", "4", 1), "tests all: 3; CEILINGS wants 4"},
		{"a failure", passed + "run c TestC\nfail c TestC\nfail c -\n", floors, "failed: c TestC"},
		{"a skip", passed + "run c TestC\nskip c TestC\npass c -\n", floors, "skipped: c TestC"},
		{"a skip in one round of two", strings.Replace(passed, "pass b TestB", "skip b TestB", 1) + round + passed, floors,
			"skipped: b TestB"},
		{"no end", passed + "run c TestC\npass c -\n", floors, "neither passed nor failed: c TestC"},
		{"no end in one round of two", strings.Replace(passed, "pass b TestB\n", "", 1) + round + passed, floors,
			"neither passed nor failed: b TestB"},
		{"a pattern that matches none", passed + "output a - ok a [no tests to run]\npass a -\n", floors, "ran no test: a"},
		{"a package that ends at once", passed + "output c - ok c\npass c -\n", floors,
			"2 packages have no test; CEILINGS allows 1: c, known"},
		{"a package that has tests elsewhere", passed + "output a - ? a\nskip a -\n", floors, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ceilings := filepath.Join(t.TempDir(), "ceilings")
			if err := os.WriteFile(ceilings, []byte(tt.floors), 0o644); err != nil {
				t.Fatal(err)
			}
			err := tally(t, tt.log).want(ceilings, []string{"all", "Redis"})
			said := strings.ReplaceAll(fmt.Sprint(err), ceilings, "CEILINGS")
			if (err == nil) != (tt.want == "") || !strings.Contains(said, tt.want) && err != nil {
				t.Errorf("got %s, want %q", said, tt.want)
			}
		})
	}
}

// Without a server the sums say what was left out, and for want of what.
func TestTotal(t *testing.T) {
	var shown strings.Builder
	tally(t, passed+"run c TestC\noutput c TestC c_test.go:1: left out: C; it needs SALLYPORT_REDIS; so\n"+
		"skip c TestC\npass c -\n").total(&shown)
	const want = "1 left out: they need SALLYPORT_REDIS\nRedis     1 packages     1 tests\n" +
		"all       2 packages     3 tests\n2 packages without a test\n3 passed, 0 failed, 1 skipped\n"
	if shown.String() != want {
		t.Errorf("got\n%s, want\n%s", shown.String(), want)
	}
}
