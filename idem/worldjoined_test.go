package idem_test

import (
	"context"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// Join is a claim in a transaction of a model of a database. What its server
// does not commit is rolled back with its connection.
func (s *server) Join(ctx context.Context, c idem.Claim, _ time.Duration) (idem.Record, idem.Transaction, error) {
	v := s.wait(ctx, "begin", c.Token)
	s.mu.Lock()
	defer s.mu.Unlock()
	if v == dies || v == refused {
		return idem.Record{}, nil, errNetwork
	}
	c.Lease = c.Retention // it has none
	r, err := s.store.Begin(ctx, c)
	switch {
	case r.State == idem.InProgress:
		r.Fingerprint, r.RetryAfter = [32]byte{}, 0 // what another transaction holds cannot be read
	case r.State == idem.Claimed && (v == loses || s.dead):
		s.rollBack()
	}
	switch {
	case v == loses:
		return idem.Record{}, nil, errNetwork
	case r.State == idem.Claimed:
		return r, transactionOf{s, c}, err
	}
	return r, nil, err
}

type transactionOf struct {
	*server
	claim idem.Claim
}

func (x transactionOf) Context(parent context.Context) context.Context { return parent }

// Settle has the effect of the handler with its COMMIT.
func (x transactionOf) Settle(ctx context.Context, o idem.Settlement) error {
	what := [...]string{idem.OutcomeDone: "commit", idem.OutcomeFree: "roll back"}[o.Outcome]
	done := false
	err := x.call(ctx, what, x.claim.Token, func() error {
		done = true
		err := x.store.Settle(ctx, x.claim.Key, x.claim.Token, o)
		if err == nil && o.Outcome == idem.OutcomeDone {
			x.effects++
		}
		return err
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == errNetwork {
		if x.rollBack(); done {
			return idem.ErrCommitUnknown
		}
	}
	return err
}

// rollBack ends the transaction that the server has open, if it has one.
func (s *server) rollBack() {
	if s.holds() {
		r := s.record().claim
		s.store.Settle(context.Background(), r.Key, r.Token, freed)
	}
}

// late reports whether the end of a transaction comes later than it is waited
// for.
func (s *server) late() bool {
	return slices.ContainsFunc(s.steps, func(p *step) bool {
		return p.server == s && p.ctx.Err() != nil && p.what != "begin"
	})
}
