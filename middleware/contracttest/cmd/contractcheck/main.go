// Contractcheck checks a running server, in any language, against the
// contract, and prints what it found.
//
//	go install github.com/sallyport-go/sallyport/middleware/contracttest/cmd/contractcheck@latest
//	contractcheck -url http://127.0.0.1:8080 -keys keys.json \
//		-create /api/v1/tasks -body '{"title":"{{random}}"}' -list /api/v1/tasks
//
// The keys file is JSON. It may hold the whole description of the server, as
// testdata/contract.json does, so that contractcheck -keys contract.json says it
// all. With -keys - it is read from standard input, as from a secret of a CI:
// testdata/workflow.yml does so.
//
// It ends with status 0 when every contract rule, the letter of the contract,
// holds, with 1 when one is broken or, with -strict, could not be checked, and
// with 2 when it was called wrongly, when the server is not what it is said to
// be, when something could not be found out, or when -run and -skip leave no
// rule to check. A broken reading, which is reasonable and not the only one, is
// a warning. Warnings and advice are reported, and count with -advice alone.
// With GITHUB_ACTIONS=true in the environment it annotates the run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// lookTime bounds the first look, which finds out how fast the server is.
const lookTime = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run is the program without the process around it. It returns the exit status.
func run(
	ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer,
) int {
	c, err := parseFlags(args, getenv, stdin, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, withoutKeys(err.Error()))
		return 2
	}
	if c.rules {
		printRules(stdout)
		return 0
	}
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	lookContext, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	session, err := rules.Open(lookContext, c.target)
	if err != nil && c.timeout > 0 && errors.Is(lookContext.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("there was no time left to look at the server within -timeout %v", c.timeout)
	}
	if err != nil {
		fmt.Fprintln(stderr, withoutKeys(err.Error()))
		return 2
	}
	defer session.Close()
	if c.timeout == 0 {
		ctx, cancel = context.WithTimeout(ctx, session.Budget())
		defer cancel()
	}

	var results []rules.Result
	prose := stdout
	if c.json {
		prose = stderr
	}
	fmt.Fprintln(prose, session.Plan())
	session.Run(ctx, c.wanted, func(r rules.Result) {
		results = append(results, r)
		if c.json {
			printJSON(stdout, r)
		} else {
			printText(stdout, r)
		}
	})
	summarize(prose, results, c)
	if c.github {
		annotate(prose, results, c)
	}
	if c.junit != "" {
		if err := writeJUnit(c.junit, results, c); err != nil {
			fmt.Fprintln(stderr, err)
			return 2
		}
	}
	if !slices.ContainsFunc(results, looked) {
		fmt.Fprintln(stderr, "no rule was checked: do -run, -skip and -without leave any?")
		return max(status(results, c), 2)
	}
	return status(results, c)
}

// looked reports whether a rule was checked, or is known to be unchecked.
func looked(r rules.Result) bool { return r.Status != rules.LeftOut }

var keyShape = regexp.MustCompile(`((?:live|test)_)[^\s"',:]{4,}`)

// withoutKeys hides what has the shape of a key in a mistake: a key may stand
// where a file, an argument or a name should.
func withoutKeys(text string) string { return keyShape.ReplaceAllString(text, "${1}[hidden]") }

func status(results []rules.Result, c config) int {
	status := 0
	for _, r := range results {
		switch {
		case !r.Failed(c.strict, c.advice):
		case r.Status == rules.Unclear:
			status = max(status, 2)
		default:
			return 1
		}
	}
	return status
}
