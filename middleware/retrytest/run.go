package retrytest

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// run is a create under one fault, until its client has an answer.
type run struct {
	create  Create
	fault   fault
	at      place
	key     string
	reply   reply
	verdict verdict
	added   map[string]int // to the effects
	wrong   string         // with them

	first, second *Process
	// Done when the second has asked for a claim, when it has its answer, and
	// when the first knows that its own claim is lost.
	asks, answered, told context.Context
	ask, answer, tell    context.CancelFunc
	beside               chan reply // of the second, where it runs beside the first
	leave                context.CancelFunc
	tries                int  // how often it was tried before
	hung                 bool // the handler leaves goroutines behind that do not end

	mu    sync.Mutex
	steps []*step
	fired bool
	freed bool // the key was
}

// maxTries is how often a client repeats.
const maxTries = 8

// execute sends a create under a fault, repeats it as a client would, and counts
// the effects. Those of learned are right.
func (s *Suite) execute(t testing.TB, c Create, f fault, at place, limit int, learned *run, tries int) *run {
	t.Helper()
	random := strings.NewReplacer("{{random}}", strings.ToLower(rand.Text()))
	c.Path, c.Body = random.Replace(c.Path), random.Replace(c.Body)
	r := &run{create: c, fault: f, at: at, key: rand.Text(), tries: tries}
	if learned != nil {
		r.hung = learned.first.hung
	}
	r.asks, r.ask = context.WithCancel(context.Background())
	r.answered, r.answer = context.WithCancel(context.Background())
	r.told, r.tell = context.WithCancel(context.Background())
	had := s.count(t)
	r.first = s.process(t, r, 1)
	defer func() { r.first.stop() }()
	if f == concurrent || f == lostClaim {
		r.second = s.process(t, r, 2)
	}
	r.reply = r.first.send(limit)
	if r.first.died.Err() != nil || f == expired { // where the deadline is short for repeats too
		r.first.stop()
		r.second = s.process(t, r, 2)
	}
	p := r.first
	if r.second != nil {
		p = r.second
		defer p.stop()
	}
	if r.beside != nil {
		r.reply = <-r.beside
	}
	for repeats := 0; learned != nil && !r.reply.isFinal() && repeats < maxTries; repeats++ {
		wait(nil, time.Duration(repeats)*time.Millisecond)
		r.reply = p.send(unlimited)
	}
	r.judge(had, s.count(t), learned)
	return r
}

func (s *Suite) process(t testing.TB, r *run, number int) *Process {
	t.Helper()
	p := &Process{t: t, run: r, number: number, hung: r.hung}
	p.died, p.die = context.WithCancel(context.Background())
	if p.handler = s.Server(p); !p.keyed {
		t.Fatal("retrytest: Server must give its IdempotencyOptions through Process.Idempotency")
	}
	return p
}

// longer is a time that is longer with each try.
func (r *run) longer(d time.Duration) time.Duration { return d << (2 * r.tries) }

// asked notes that a process asks for a claim.
func (r *run) asked(p *Process) {
	if p.number == 2 {
		r.ask()
	}
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
		r.beside <- r.second.send(unlimited)
		r.ask()
		r.answer()
	}()
	if r.fault == concurrent {
		<-r.asks.Done()
		return
	}
	<-r.answered.Done()
	r.mu.Lock()
	took := slices.ContainsFunc(r.steps, func(s *step) bool { return s.process == 2 && s.site != "" })
	r.mu.Unlock()
	if took && r.first.claimed.Load() {
		wait(r.told.Done(), 10*patience)
		if ctx.Done() != nil { // else it never learns of it
			wait(ctx.Done(), patience)
		}
	}
}
