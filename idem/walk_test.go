//go:build !race

// A schedule is one step after the other, which the race detector makes eight
// times as long.

package idem_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// schedules calls run with each list of choices, depth first. It returns how
// many there are.
func schedules(run func(choose func(n int) int) bool) (total int) {
	type choice struct{ made, of int }
	for path := []choice{{0, 1}}; len(path) > 0; total++ {
		at := 0
		if !run(func(n int) int {
			if at++; at == len(path) {
				path = append(path, choice{0, n})
			}
			if path[at].of != n {
				panic("a schedule does not repeat")
			}
			return path[at].made
		}) {
			return total
		}
		last := len(path) - 1
		for ; last >= 0 && path[last].made+1 == path[last].of; last-- {
		}
		if path = path[:last+1]; last >= 0 {
			path[last].made++
		}
	}
	return total
}

// begins is what a service does with a request.
func begins(s *server, f [32]byte) (string, time.Duration) {
	req := idem.Claim{Key: request.Key, Tenant: request.Tenant, Fingerprint: f,
		Account: idem.NewAccount("units", request.Tenant, s.name), Units: claimUnits}
	record, e, err := s.runner.Begin(context.Background(), req, nil)
	switch {
	case errors.Is(err, errNetwork), errors.Is(err, context.DeadlineExceeded):
		return "error", 0
	case err == idem.ErrMismatch:
		return "mismatch", 0
	case err != nil:
		return err.Error(), 0
	case e == nil && record.State == idem.Done:
		return string(record.Payload), 0
	case e == nil:
		return record.State.String(), 0
	}
	ctx := e.Context(context.Background())
	text, v := s.handle(ctx, f, record.Attempt)
	if ctx.Err() != nil && e.Context(context.Background()).Err() == nil {
		return "a new context of a lost claim lives", 0
	}
	settlement := map[verdict]idem.Settlement{passes: answer(text), refused: freed}[v]
	if v == passes || v == refused { // An outcome that is not known costs what the claim said.
		settlement.Units = unitsOf(text)
	}
	err = e.Settle(ctx, settlement)
	if again := e.Settle(ctx, freed); again != idem.ErrSettled {
		return "settled again", 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.joined && err != nil && (v != passes || errors.Is(err, errNetwork) != errors.Is(err, idem.ErrCommitUnknown)):
		return "error", 0
	case err == nil && v == passes && !s.stored(text):
		return "not saved", 0
	case err == nil, errors.Is(err, errNetwork), errors.Is(err, context.DeadlineExceeded):
		s.knows = s.knows || v == passes
		return text, 0
	case err == idem.ErrLost && (s.taken+s.gone > 0 || s.dead) && s.runner.Stats().Lost > 0:
		return "nothing", 0
	}
	return "Settle: " + err.Error(), 0
}

type mode int

const (
	leases mode = iota
	takesOver
	joins
)

// All schedules of a few requests and at most so many faults: a call fails, takes
// effect without an answer, or hangs and comes late; the store is away; a server
// crashes; the records are erased; a lease ends unrenewed; a handler does nothing,
// panics, or needs a renewal. Only renewals and new claims never hang beside
// another call that does.
func TestWalk(t *testing.T) {
	one, another := [32]byte{1}, [32]byte{2}
	a, b := sent{to: 0, fingerprint: one}, sent{to: 1, fingerprint: one}
	of2 := 0 // schedules of two requests with two faults
	for _, test := range []struct {
		name         string
		queues       [][]sent
		mode         mode
		faults, want int
	}{
		{"two servers", [][]sent{{a, b}}, leases, 2, 12022},
		{"one server", [][]sent{{a, a}}, leases, 2, 6968},
		{"take-over", [][]sent{{a, b}}, takesOver, 2, 12334},
		{"another request", [][]sent{{a}, {{to: 0, fingerprint: another}}}, leases, 1, 414},
		{"three requests", [][]sent{{a, a}, {b}}, leases, 0, 40},
		{"joined, two servers", [][]sent{{a, b}}, joins, 2, 2764},
		{"joined, one server", [][]sent{{a, a}}, joins, 2, 1563},
		{"joined, another request", [][]sent{{a}, {{to: 0, fingerprint: another}}}, joins, 1, 216},
	} {
		if test.faults == 2 {
			of2 += test.want
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			more, _ := strconv.Atoi(os.Getenv("SALLYPORT_WALK_FAULTS")) // in the night
			n := schedules(func(choose func(n int) int) bool {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(choose, test.faults+more, test.queues...)
					w.serve, w.reexecute, w.joined = begins, test.mode == takesOver, test.mode == joins
					w.run(t, "A", "B")
				})
				return !t.Failed()
			})
			if t.Logf("%d schedules", n); n != test.want && more == 0 {
				t.Errorf("got %d schedules, want %d", n, test.want)
			}
		})
	}
	readme, _ := os.ReadFile("../README.md")
	if text := fmt.Sprintf("%d,%03d schedules of two requests with two faults", of2/1000, of2%1000); !strings.Contains(
		strings.Join(strings.Fields(string(readme)), " "), text) {
		t.Errorf("the README does not say %q", text)
	}
}
