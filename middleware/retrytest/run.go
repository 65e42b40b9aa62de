package retrytest

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// run is what happens to a create under one fault, until its answer is final.
type run struct {
	trial
	create Create
	key    string
	reply  reply          // the last
	added  map[string]int // to the effects

	first, second *Process
	beside        chan reply // of the second, if it runs while the first is at a step

	joins, freed atomic.Bool // the claim is joined; the key was freed
	reexecutes   atomic.Bool // the handler is run again after an unknown outcome
	waited       atomic.Bool // for a connection, while all of its pool were in use
	mu           sync.Mutex
	steps        []*step
	fired        bool // the fault took effect
	hasty        bool // a context may have had too little time to end
}

// signal is given by one goroutine and seen by others, and stays.
type signal struct {
	context.Context
	give context.CancelFunc
}

func newSignal() (s signal)  { s.Context, s.give = context.WithCancel(context.Background()); return s }
func (s signal) given() bool { return s.Err() != nil }

// execute sends a create under a fault, repeats it as a client would, and counts
// what it has added.
func (s *Suite) execute(t testing.TB, c Create, tr trial) *run {
	t.Helper()
	random := strings.NewReplacer("{{random}}", strings.ToLower(rand.Text()))
	c.Path, c.Body = random.Replace(c.Path), random.Replace(c.Body)
	r := &run{trial: tr, create: c, key: rand.Text()}
	had := s.count(t)
	r.first = s.process(t, r, r.fault)
	defer r.first.stop()
	if r.fault == concurrent || r.fault == lostClaim {
		r.second = s.process(t, r, none)
	}
	r.reply = r.first.send()
	if r.first.died.given() || r.fault == expired { // where the deadline is short for repeats too
		r.first.stop()
		r.second = s.process(t, r, none)
	}
	p := r.first
	if r.second != nil {
		p = r.second
		defer p.stop()
	}
	if r.beside != nil {
		r.reply = <-r.beside
	}
	for repeats := 0; r.fault != none && !r.reply.isFinal() && repeats < maxRepeats; repeats++ {
		wait(nil, time.Duration(repeats)*time.Millisecond)
		r.reply = p.send()
	}
	r.added = s.count(t)
	for name, n := range had {
		r.added[name] -= n
	}
	return r
}

// adds reports whether there is more of an effect than before.
func (r *run) adds() bool { return slices.Max(slices.Collect(maps.Values(r.added))) > 0 }

func (s *Suite) process(t testing.TB, r *run, f fault) *Process {
	t.Helper()
	p := &Process{run: r, fault: f, hangs: r.hangs,
		died: newSignal(), asks: newSignal(), told: newSignal(), answered: newSignal()}
	if p.handler = s.Server(p); !p.keyed {
		t.Fatal("retrytest: Server must give its IdempotencyOptions through Process.Idempotency")
	}
	return p
}

// meanwhile lets a second process have a repeat while the first is at a step.
// The first goes on when the second asks for the claim, or where it loses its
// own, when it knows.
func (r *run) meanwhile(ctx context.Context) {
	if r.beside != nil {
		return // database/sql runs a statement again, in another way, after driver.ErrSkip
	}
	r.beside = make(chan reply, 1)
	go func() {
		r.beside <- r.second.send()
		r.second.asks.give()
		r.second.answered.give()
	}()
	if r.fault == concurrent {
		<-r.second.asks.Done()
		return
	}
	<-r.second.answered.Done()
	r.mu.Lock()
	took := slices.ContainsFunc(r.steps, func(s *step) bool { return s.process == r.second && s.site != "" })
	r.mu.Unlock()
	if took && r.first.claimed.Load() {
		select {
		case <-r.first.told.Done():
		case <-ctx.Done(): // its own clock said first that the lease is over; nothing asks the store then
		case <-time.After(10 * patience):
		}
		if ctx.Done() != nil { // else it never learns of it
			wait(ctx.Done(), r.longer(grace))
			r.hasty = ctx.Err() == nil
		}
	}
}
