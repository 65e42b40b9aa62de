// Tally runs tests, and says of all runs in a log how many tests there were and
// on which servers. A line of a log is an event of "go test -json".
//
//	tally test LOG [ARGUMENTS OF GO TEST]   runs the tests here and adds to LOG
//	tally total LOG                         says what ran, was left out and failed
//	tally want LOG CEILINGS [NAME…]         also fails if a test failed, was left
//	    out or has no end, or if fewer packages and tests ran than CEILINGS wants
//	    for a name: "all", or a server
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("tally: it needs a command and a log")
	}
	file, err := os.OpenFile(os.Args[2], os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		log.Fatal("tally: ", err)
	}
	switch os.Args[1] {
	case "test":
		err = test(file, os.Args[3:])
	case "total":
		_, err = total(file, os.Stdout)
	case "want":
		err = want(file, os.Stdout, os.Args[3], os.Args[4:])
	}
	if err != nil {
		log.Fatal("tally: ", err)
	}
}

// A set has each string once, however often it was met.
type set map[string]bool

func (s set) sorted() []string { return slices.Sorted(maps.Keys(s)) }

// test runs go test. Two may add to one log.
func test(to io.Writer, args []string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := read(out, os.Stdout, to); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// total prints the sums of a log.
func total(events io.Reader, w io.Writer) (*results, error) {
	r, err := read(events, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	for _, server := range slices.Sorted(maps.Keys(r.met)) {
		fmt.Fprintf(w, "%-8s %2d packages %5d tests\n", server, len(packages(r.met[server])), len(r.met[server]))
	}
	fmt.Fprintf(w, "%d packages without a test\n", len(r.untested()))
	for what, n := range r.needs {
		fmt.Fprintf(w, "%d left out: they need %s\n", n, what)
	}
	for _, name := range r.ended["fail"].sorted() {
		fmt.Fprintln(w, "failed:", name)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", len(r.ended["pass"]), len(r.ended["fail"]), len(r.ended["skip"]))
	return r, nil
}

// packages returns those of tests.
func packages(tests set) set {
	all := set{}
	for test := range tests {
		name, _, _ := strings.Cut(test, " ")
		all[name] = true
	}
	return all
}

// untested returns the packages of which no test has begun.
func (r *results) untested() set {
	none := maps.Clone(r.tested)
	for name := range packages(r.met["all"]) {
		delete(none, name)
	}
	return none
}

// want prints the sums, and returns what is missing or should not be there. A
// line of the file ceilings is "KIND NAME FIGURE", or a comment.
func want(events io.Reader, w io.Writer, ceilings string, names []string) error {
	r, err := total(events, w)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(ceilings)
	if err != nil {
		return err
	}
	figures := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var kind, name string
		var figure int
		if n, _ := fmt.Sscan(line, &kind, &name, &figure); n == 3 {
			figures[kind+" "+name] = figure
		}
	}
	if len(r.met["all"]) == 0 {
		return errors.New("no test ran")
	}
	maps.DeleteFunc(r.running, func(_ string, n int) bool { return n == 0 })
	maps.DeleteFunc(r.empty, func(_ string, is bool) bool { return !is })
	for _, bad := range []struct {
		names []string
		are   string
	}{
		{r.ended["fail"].sorted(), "failed"},
		{r.ended["skip"].sorted(), "skipped"},
		{slices.Sorted(maps.Keys(r.running)), "neither passed nor failed"},
		{r.empty.sorted(), "ran no test"},
	} {
		if len(bad.names) > 0 {
			return fmt.Errorf("%s: %s", bad.are, strings.Join(bad.names, ", "))
		}
	}
	for _, name := range names {
		tests := r.met[name]
		for kind, n := range map[string]int{"packages": len(packages(tests)), "tests": len(tests)} {
			if figure := figures[kind+" "+name]; figure == 0 || n < figure {
				return fmt.Errorf("%s %s: %d; %s wants %d", kind, name, n, ceilings, figure)
			}
		}
		if none := r.untested(); name == "all" && len(none) > figures["untested all"] {
			return fmt.Errorf("%d packages have no test; %s allows %d: %s",
				len(none), ceilings, figures["untested all"], strings.Join(none.sorted(), ", "))
		}
	}
	return nil
}
