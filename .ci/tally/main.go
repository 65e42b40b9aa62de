// Tally says of all runs of tests in a folder how many tests there were and on
// which servers. A file there has the events of a "go test -json".
//
//	tally total FOLDER                   says what ran, was left out and failed
//	tally want FOLDER CEILINGS [NAME…]   also fails if a test failed, was left
//	    out or has no end, or if fewer packages and tests ran than CEILINGS wants
//	    for a name: "all", or a server
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("tally: ")
	if len(os.Args) < 3 {
		log.Fatal("it needs a command and a folder")
	}
	r := results{}
	files, err := filepath.Glob(filepath.Join(os.Args[2], "*"))
	for _, name := range files {
		file, bad := os.Open(name)
		err = errors.Join(err, bad, r.read(file))
	}
	r.total(os.Stdout)
	if err == nil && os.Args[1] == "want" {
		err = r.want(os.Args[3], os.Args[4:])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// An event is a line of "go test -json".
type event struct{ Action, Package, Test, Output, Key, Value string }

// A set has names of tests, which are "PACKAGE TEST", or of packages.
type set map[string]bool

func (s set) String() string { return strings.Join(slices.Sorted(maps.Keys(s)), ", ") }

// packages returns those of tests.
func (s set) packages() set {
	all := set{}
	for test := range s {
		name, _, _ := strings.Cut(test, " ")
		all[name] = true
	}
	return all
}

// results are those of all runs of go test: tests by how they ended, "running" if
// they did not, by "on SERVER", by "on all" if they were not skipped, and by "needs
// WHAT" if they were left out for want of it; packages by "tested" and "empty".
type results map[string]set

func (r results) add(what, name string) {
	if r[what] == nil {
		r[what] = set{}
	}
	r[what][name] = true
}

var need = regexp.MustCompile(`left out: (?:.*; )?it (needs [^;\n]*)`)

func (r results) read(events io.Reader) error {
	running := set{}
	for from := json.NewDecoder(events); ; {
		var e event
		if err := from.Decode(&e); err == io.EOF {
			for name := range running {
				r.add("running", name)
			}
			return nil
		} else if err != nil {
			return err
		}
		name := e.Package + " " + e.Test
		switch {
		case e.Action == "run":
			running[name] = true
		case e.Action == "attr" && e.Key == "server":
			r.add("on "+e.Value, name)
		case e.Action == "output" && strings.Contains(e.Output, "[no tests to run]"):
			r.add("empty", e.Package) // a pattern matches no test
		case e.Action == "output":
			if m := need.FindStringSubmatch(e.Output); m != nil {
				r.add(m[1], name)
			}
		case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		case e.Test == "":
			r.add("tested", e.Package)
		default:
			delete(running, name)
			r.add(e.Action, name)
			if e.Action != "skip" {
				r.add("on all", name)
			}
		}
	}
}

// untested returns the packages of which no test has begun.
func (r results) untested() set {
	none, some := maps.Clone(r["tested"]), r["on all"].packages()
	maps.DeleteFunc(none, func(name string, _ bool) bool { return some[name] })
	return none
}

func (r results) total(w io.Writer) {
	for _, what := range slices.Sorted(maps.Keys(r)) {
		if server, ok := strings.CutPrefix(what, "on "); ok {
			fmt.Fprintf(w, "%-8s %2d packages %5d tests\n", server, len(r[what].packages()), len(r[what]))
		} else if needed, ok := strings.CutPrefix(what, "needs "); ok {
			fmt.Fprintf(w, "%d left out: they need %s\n", len(r[what]), needed)
		}
	}
	fmt.Fprintf(w, "%d packages without a test\n", len(r.untested()))
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", len(r["pass"]), len(r["fail"]), len(r["skip"]))
}

// want returns what is missing or should not be there. A line of the file
// ceilings is "KIND NAME FIGURE", or a comment.
func (r results) want(ceilings string, names []string) error {
	text, err := os.ReadFile(ceilings)
	bad := func(format string, a ...any) { err = errors.Join(err, fmt.Errorf(format, a...)) }
	figures := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var kind, name string
		var figure int
		if n, _ := fmt.Sscan(line, &kind, &name, &figure); n == 3 {
			figures[kind+" "+name] = figure
		}
	}
	for what, said := range map[string]string{"fail": "failed", "skip": "skipped",
		"running": "neither passed nor failed", "empty": "ran no test"} {
		if len(r[what]) > 0 {
			bad("%s: %s", said, r[what])
		}
	}
	if len(r["on all"]) == 0 {
		bad("no test ran")
	}
	for _, name := range names {
		tests := r["on "+name]
		for kind, n := range map[string]int{"packages": len(tests.packages()), "tests": len(tests)} {
			if figure := figures[kind+" "+name]; figure == 0 || n < figure {
				bad("%s %s: %d; %s wants %d", kind, name, n, ceilings, figure)
			}
		}
	}
	if none, allowed := r.untested(), figures["untested all"]; slices.Contains(names, "all") && len(none) > allowed {
		bad("%d packages have no test; %s allows %d: %s", len(none), ceilings, allowed, none)
	}
	return err
}
