package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// An event is a line of "go test -json".
type event struct{ Action, Package, Test, Output, Key, Value string }

// results are those of all runs of go test in a log. A test is called
// "PACKAGE NAME".
type results struct {
	ended   map[string]set // tests by how: pass, fail, skip
	met     map[string]set // tests that were not skipped, by server; "all" has all
	running map[string]int // how often a test has begun and not ended
	needs   map[string]int // what skipped tests say that they need
	tested  set            // packages
	empty   set            // packages where a pattern matched no test
}

var need = regexp.MustCompile(`left out: (?:.*; )?it needs ([^;\n]*)`)

// read returns what the events say. It shows a line for each package, and of a
// package that fails all that was said but by tests that passed. The rest of
// what a tool says goes through. Each event is written to log at once.
func read(events io.Reader, show, log io.Writer) (*results, error) {
	r := &results{map[string]set{}, map[string]set{}, map[string]int{}, map[string]int{}, set{}, set{}}
	said := map[string][]byte{} // by packages and tests that run
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintf(show, "%s\n", lines.Bytes())
			continue
		} else if _, err := fmt.Fprintf(log, "%s\n", lines.Bytes()); err != nil {
			return nil, err
		}
		name := e.Package + " " + e.Test
		switch {
		case e.Action == "run":
			r.running[name]++
		case e.Action == "attr" && e.Key == "server":
			add(r.met, e.Value, name)
		case e.Action == "build-output":
			io.WriteString(show, e.Output)
		case e.Action == "output":
			said[name] = append(said[name], e.Output...)
		case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		case e.Test == "":
			r.tested[e.Package] = true
			r.empty[e.Package] = r.empty[e.Package] || bytes.Contains(said[name], []byte("[no tests to run]"))
			end(e, said, show)
		default:
			r.running[name]--
			add(r.ended, e.Action, name)
			if e.Action == "skip" {
				for _, m := range need.FindAllSubmatch(said[name], -1) {
					r.needs[string(m[1])]++
				}
			} else {
				add(r.met, "all", name)
			}
			if e.Action != "fail" {
				delete(said, name)
			}
		}
	}
	return r, lines.Err()
}

func add(sets map[string]set, key, name string) {
	if sets[key] == nil {
		sets[key] = set{}
	}
	sets[key][name] = true
}

// end shows how a package has ended, and forgets what it said.
func end(e event, said map[string][]byte, show io.Writer) {
	own := said[e.Package+" "]
	if e.Action != "fail" {
		own = own[bytes.LastIndexByte(bytes.TrimSpace(own), '\n')+1:] // "ok", and how long it took
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if test, is := strings.CutPrefix(name, e.Package+" "); is && test != "" && e.Action == "fail" {
			show.Write(said[name])
		}
	}
	maps.DeleteFunc(said, func(name string, _ []byte) bool { return strings.HasPrefix(name, e.Package+" ") })
	show.Write(own)
}
