package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// most is how many equivalents a package may have. A package with more has
// numbers that are no part of what it promises: give them a name and a test, or
// take them out.
const most = 10

// equivalents holds mutants by their text, which has no line number: code that
// moves takes its entry along. An entry without an arrow is all mutants of the
// expression that it ends in.
type equivalents map[string]bool

var lineNumber = regexp.MustCompile(`^([^:]+):\d+:`)

// readEquivalents reads groups of lines: mutants as they were printed, and
// below them, indented, why no test can tell them from the code.
func readEquivalents(name string) (equivalents, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	known, count := equivalents{}, map[string]int{}
	var open string // a mutant that has no reason yet
	for line := range strings.Lines(string(text) + "\n\n") {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			if open != "" {
				return nil, fmt.Errorf("%s: no reason is given for %s", name, open)
			}
		case strings.HasPrefix(line, "\t") || strings.HasPrefix(line, " "):
			open = ""
		default:
			open = lineNumber.ReplaceAllString(line, "$1:")
			known[open] = true
			folder := filepath.Dir(strings.SplitN(open, ":", 2)[0])
			if count[folder]++; count[folder] > most {
				return nil, fmt.Errorf("%s: %s has more than %d equivalents", name, folder, most)
			}
		}
	}
	return known, nil
}

// has reports whether no test can tell the mutant from the code.
func (known equivalents) has(m mutant) bool { return known[m.text()] || known[m.place()] }

// unused returns the entries for files of these packages, and for files that
// are gone, that match no mutant any more.
func (known equivalents) unused(packages []*pkg) []string {
	var unused []string
	for _, text := range slices.Sorted(maps.Keys(known)) {
		file, _, _ := strings.Cut(text, ":")
		listed, found := false, false
		for _, p := range packages {
			listed = listed || p.files[file]
			found = found || p.seen[text]
		}
		_, err := os.Stat(file)
		if (listed || os.IsNotExist(err)) && !found {
			unused = append(unused, text)
		}
	}
	return unused
}
