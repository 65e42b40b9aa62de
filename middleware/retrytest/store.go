package retrytest

import (
	"context"
	"runtime/pprof"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// Idempotency returns the options with a Runner that the process owns, on the
// same store. All options with which the server makes routes idempotent go
// through it.
func (p *Process) Idempotency(o middleware.IdempotencyOptions) middleware.IdempotencyOptions {
	if o.Runner == nil {
		o.Runner = idem.NewRunner(&idem.Memory{}, idem.Options{})
	}
	ro := o.Runner.Options()
	switch p.fault {
	case expired:
		o.Timeout = p.run.longer(shortTimeout)
	case lostClaim:
		ro.Lease = p.run.longer(shortLease)
	}
	p.keyed = true
	s := &store{o.Runner.Store(), p}
	if c, counts := s.Store.(idem.Counter); counts {
		o.Runner = idem.NewRunner(counter{s, c}, ro)
	} else {
		o.Runner = idem.NewRunner(s, ro)
	}
	return o
}

// store is the store of a process's claims.
type store struct {
	idem.Store
	p *Process
}

// counter is a store that counts units. What it counts is no step.
type counter struct {
	*store
	counts
}

// counts is what an [idem.Counter] has beside a store's methods.
type counts interface {
	Count(ctx context.Context, a idem.Account, units int64) error
	Used(ctx context.Context, a idem.Account, since time.Time) (int64, time.Time, error)
	Charges(ctx context.Context, limit int) ([]idem.Charge, error)
	Acknowledge(ctx context.Context, number int64) error
	Uncertain(ctx context.Context, limit int) ([]idem.Charge, error)
}

var _ idem.Counter = counter{}

// HonorsContext and JoinHonorsContext let the calls be made in the goroutine of
// the request: one that a crash has stopped must not be left behind.
func (s *store) HonorsContext()     {}
func (s *store) JoinHonorsContext() {}

func (s *store) Begin(ctx context.Context, c idem.Claim) (r idem.Record, err error) {
	s.p.asks.give()
	s.p.run.reexecutes.Store(c.Reexecute)
	if f := s.p.fault; f == crashBefore || f == crashAfter || f == lostClaim {
		c.Lease = time.Millisecond // it will have lapsed, although this process does not know
	}
	err = s.call(ctx, "claim of the key", func() error { r, err = s.Store.Begin(ctx, c); return err })
	s.p.claimed.Store(err == nil && r.State == idem.Claimed)
	return r, err
}

func (s *store) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	if s.p.died.given() {
		s.p.crash(false)
	}
	if s.p.fault == lostClaim && !s.p.run.second.answered.given() {
		return nil // not the store's answer: the claim is to lapse
	}
	err := s.Store.Extend(ctx, key, token, lease)
	if err == idem.ErrLost {
		s.p.told.give()
	}
	return err
}

func (s *store) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, o idem.Settlement) error {
	if o.Outcome == idem.OutcomeFree {
		s.p.run.freed.Store(true)
	}
	return s.call(ctx, "settlement of the key", func() error { return s.Store.Settle(ctx, key, token, o) })
}

func (s *store) call(ctx context.Context, what string, do func() error) error {
	l := &link{p: s.p, claims: true}
	pprof.SetGoroutineLabels(context.Background()) // what it starts, or waits for in vain, is not the request's
	defer pprof.SetGoroutineLabels(ctx)
	return l.take(ctx, what, func(bool) error { return do() }, func() error { return errBroken })
}

func (s *store) Join(ctx context.Context, c idem.Claim, d time.Duration) (idem.Record, idem.Transaction, error) {
	s.p.asks.give()
	s.p.run.joins.Store(true)
	pprof.SetGoroutineLabels(context.Background())
	defer pprof.SetGoroutineLabels(ctx)
	return s.Store.(idem.Joiner).Join(ctx, c, d)
}
