// Mutate changes the code in small ways, one at a time, and runs the tests
// on each mutant. A mutant that no test notices has survived: a line that is
// not tested. The mutator edits no file; it lays the changed one over the
// real one with "go test -overlay".
//
//	go run ./.ci/mutate                            # all packages of all modules: days
//	go run ./.ci/mutate -sample 40                 # 40 mutants of each package
//	go run ./.ci/mutate -sample 40 -seed 7 ./scope ./middleware/internal/...
//	go run ./.ci/mutate -list ./scope              # the mutants, without a test
//	go run ./.ci/mutate -only 'edits: .*deleted' ./scope
//	go run ./.ci/mutate -run 'Defects|Clean' ./middleware/contracttest/internal/rules
//
// A mutant is judged by the tests of its package, and by the suite of that name
// in .suites or .side/figures, of a store also by those that it shares with
// others; in an internal package by those of the packages that import it as
// well. Set the addresses of the servers (CONTRIBUTING.md), or what runs on them
// survives. Mutants that do not build do not count. One is killed when it takes
// three times what the tests take without it, and 20 s. Each survivor is printed
// as
//
//	file:line: function: before → after
//
// Either write a test that fails on it or, if no test can, add the printed
// line to the file of equivalents with the reason below it: at most ten a
// package. Without its arrow the line stands for all mutants of the expression.
// The exit status is 1 if a package scores less than -least percent, and 2 if
// the tests could not be run.
//
// The same seed gives the same sample, as long as the code stays the same.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

var (
	sample = flag.Int("sample", 0, "try `N` mutants of each package, chosen at random (default all)")
	seed   = flag.Uint64("seed", 1, "choose the sample by this `number`")
	only   = flag.String("only", "",
		"try the mutants whose printed line matches this `expression`, as when a test for a survivor is written")
	named = flag.String("run", "",
		"judge by the tests whose names match this `expression` alone, where the others take too long")
	least   = flag.Float64("least", 95, "exit 1 if a package scores less than this `percentage`")
	list    = flag.Bool("list", false, "print the mutants and do not test them")
	verbose = flag.Bool("v", false, "print what became of each mutant")
)

// memory bounds the data of each process: a mutant may append for ever. It is no
// bound of addresses, of which Node takes more than there is memory.
const memory = 8 << 30

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	low, err := mutate(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if low {
		os.Exit(1)
	}
}

// mutate reports whether a package scored too low.
func mutate(ctx context.Context) (low bool, err error) {
	packages, err := load(ctx, flag.Args())
	if err != nil {
		return false, err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return false, err
	}
	known, err := readEquivalents(".ci/mutate/equivalents.txt")
	if err != nil {
		return false, err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: memory, Max: memory}); err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)

	fmt.Printf("seed %d\n", *seed)
	tests := runner{work: work, limits: map[string]time.Duration{}}
	for i, p := range packages {
		mutants, err := p.mutants(known)
		if err != nil {
			return low, err
		}
		mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !wanted.MatchString(m.String()) })
		mutants = choose(mutants, uint64(i))
		if *list {
			for _, m := range mutants {
				fmt.Println(m)
			}
			continue
		}
		if len(mutants) == 0 {
			continue
		}
		if len(p.tests) == 0 {
			return low, fmt.Errorf("%s has no test that judges it", p.ImportPath)
		}
		if err := tests.baseline(ctx, p.tests); err != nil {
			return low, err
		}
		t, err := try(ctx, &tests, p, mutants)
		fmt.Printf("%s: %s\n", p.ImportPath, t) // also if it was interrupted
		if err != nil {
			return low, err
		}
		low = low || t.score() < *least
	}
	for _, m := range known.unused(packages) {
		fmt.Printf("equivalent, but no longer there: %s\n", m)
	}
	return low, nil
}

// choose returns a sample in the order of the code.
func choose(all []mutant, stream uint64) []mutant {
	if *sample <= 0 || *sample >= len(all) {
		return all
	}
	chosen := rand.New(rand.NewPCG(*seed, stream)).Perm(len(all))[:*sample]
	slices.Sort(chosen)
	var some []mutant
	for _, i := range chosen {
		some = append(some, all[i])
	}
	return some
}

// tally counts what became of the mutants of a package.
type tally map[fate]int

func (t tally) score() float64 {
	tried := t[killed] + t[timedOut] + t[survived]
	if tried == 0 {
		return 100
	}
	return 100 * float64(tried-t[survived]) / float64(tried)
}

func (t tally) String() string {
	return fmt.Sprintf("%.1f %% (%d killed, %d timed out, %d survived; %d did not build)",
		t.score(), t[killed], t[timedOut], t[survived], t[unbuilt])
}

// try tests the mutants, one on each processor at a time.
func try(ctx context.Context, tests *runner, p *pkg, mutants []mutant) (tally, error) {
	var mu sync.Mutex
	t := tally{}
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for _, m := range mutants {
		group.Go(func() error {
			fate, by, err := tests.try(each, p.tests, m)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			t[fate]++
			if fate == survived || *verbose {
				fmt.Printf("%s %s%s\n", fate, m, by)
			}
			return nil
		})
	}
	return t, group.Wait()
}
