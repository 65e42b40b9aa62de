package retrytest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// Suite is a server and what its clients create.
type Suite struct {
	// Server makes a process of the server: its handler as it is served, on the
	// databases that p opens and with the idempotency that p is given. It is
	// called for each run, and twice where a repeat goes to another process.
	// All of them share the data. It starts no work in the background, such as
	// idemsql's Store.Run, and has no rate limit that a hundred requests reach.
	Server func(p *Process) http.Handler
	// Creates are tried one after the other.
	Creates []Create
	// Effects counts what there is, by name: the rows of a table, the charges
	// at a payment service's fake. They must not go through a Process. What a
	// create adds when nothing fails is what it must add.
	Effects map[string]func(context.Context) (int, error)
}

// Create is a request that must have its effect once.
type Create struct {
	Method string // POST by default
	Path   string
	Header http.Header // with the credentials; an Idempotency-Key is added
	// Body is sent with each request. In Path and Body {{random}} is text that
	// no other run has; a repeat sends the same.
	Body string
}

func (c Create) method() string { return cmp.Or(c.Method, http.MethodPost) }
func (c Create) name() string   { return c.method() + " " + c.Path }

// Run tries each create as often as it has steps and faults, and fails the test
// for what is not right.
func (s Suite) Run(t testing.TB) {
	t.Helper()
	if s.Server == nil || len(s.Creates) == 0 || len(s.Effects) == 0 {
		t.Fatal("retrytest: a Suite needs Server, Creates and Effects")
	}
	for _, c := range s.Creates {
		s.try(t, c)
	}
}

// try learns the steps of a create from a run without a fault. A trial is a step
// and a fault: its run notes what happens, judge compares that with the run
// without a fault, and the report counts and prints the verdicts.
func (s *Suite) try(t testing.TB, c Create) {
	t.Helper()
	var learned *run
	for range 2 { // the first fills the caches that processes share
		learned = s.execute(t, c, trial{})
		if !learned.reply.isFinal() || learned.reply.status >= 400 || !learned.adds() {
			t.Error(learned.failure())
			return
		}
	}
	steps := slices.DeleteFunc(slices.Clone(learned.steps), func(s *step) bool { return s.wraps })
	result := report{counts: map[outcome]int{}}
	var missed place
	for _, tr := range learned.trials(steps) {
		if tr.at == missed {
			continue
		}
		tr.hangs = learned.first.hangs
		if r := s.under(t, c, tr, learned); r != nil {
			result.add(r, r.judge(learned))
		} else {
			missed = tr.at
		}
	}
	t.Logf("%s  %d steps  %s", c.name(), len(steps), &result)
	if text := result.failures(); text != "" {
		t.Errorf("%s is not safe to retry:%s", c.name(), text)
	}
}

// trials are those of what a run without a fault has done.
func (r *run) trials(steps []*step) (all []trial) {
	for _, s := range steps {
		for _, f := range s.faults(r.joins.Load()) {
			all = append(all, trial{fault: f, at: s.place})
		}
	}
	half := len(r.reply.body) / 2
	for _, limit := range slices.Compact([]int{0, min(1, half), half}) {
		all = append(all, trial{fault: cutResponse, at: place{text: fmt.Sprintf("after %d bytes", limit)}, limit: limit})
	}
	return all
}

// under runs a create until the fault takes effect: on a slow machine the
// deadline may pass before the step. Nor does it accuse in haste.
func (s *Suite) under(t testing.TB, c Create, tr trial, learned *run) *run {
	t.Helper()
	for tr.tries = range 5 {
		r := s.execute(t, c, tr)
		if r.fired && (!r.hasty || tr.tries > 1 || r.judge(learned).wrong == "") {
			return r
		}
	}
	t.Errorf("%s: a fault never took effect: %s\n  Neither the text of this step nor the count of its line came again "+
		"in %d runs: let the create take the same steps each time.", c.name(), tr, tr.tries+1)
	return nil
}

func (s *Suite) count(t testing.TB) map[string]int {
	t.Helper()
	all := map[string]int{}
	for name, count := range s.Effects {
		n, err := count(t.Context())
		if err != nil {
			t.Fatalf("retrytest: the effects %q were not counted: %v", name, err)
		}
		all[name] = n
	}
	return all
}
