package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// equivalentSet holds mutants by their text, which has no line number: code
// that moves takes its entry along.
type equivalentSet map[string]bool

var lineNumber = regexp.MustCompile(`^([^:]+):\d+:`)

// readEquivalents reads groups of lines: mutants as they were printed, and
// below them, indented, why no test can tell them from the code. A line that
// ends in a slash names the folder of the files that follow.
func readEquivalents(name string) (equivalentSet, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	known := equivalentSet{}
	var open string // a mutant that has no reason yet
	folder := ""
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
		case strings.HasSuffix(line, "/"):
			folder = line
		default:
			open = folder + lineNumber.ReplaceAllString(line, "$1:")
			known[open] = true
		}
	}
	return known, nil
}

// unused returns the entries for files of these packages, and for files that
// are gone, that match no mutant any more.
func (known equivalentSet) unused(packages []*pkg) []string {
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
