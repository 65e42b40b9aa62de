// Contractcheck holds a server that is running to the contract and prints what it found.
//
//	go run github.com/sallyport-go/sallyport/middleware/contracttest/cmd/contractcheck -keys keys.json -create /api/v1/tasks -body '{"title":"A task"}'
//
// It ends with status 0 when every rule of the contract that could be checked holds, 1 when one is broken, and 2 when it was
// called wrongly, cannot reach the server or could not find out. Optional rules are reported and do not count.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// limit is how long all rules may take together.
const limit = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without the process around it. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	session, err := rules.Open(ctx, c.target)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	defer session.Close()

	var out reporter = &textReport{w: stdout}
	plan := stdout
	if c.json {
		out, plan = &jsonReport{w: stdout}, stderr
	}
	fmt.Fprintln(plan, session.Plan())
	var total tally
	for _, r := range rules.All() {
		if !c.wanted(r.Name) {
			continue
		}
		result := session.Check(ctx, r)
		total.add(result)
		out.report(result)
	}
	fmt.Fprint(plan, total.String())
	return total.exitStatus()
}
