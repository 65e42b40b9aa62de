package idemtest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// modelTx is a transaction of a model: what it writes becomes a row when it
// commits, and what it replaced comes back when it does not.
type modelTx struct {
	model  *model
	ctx    context.Context // of Join
	claim  idem.Claim
	before *modelRecord
	rows   []string
}

type modelTxKey struct{}

func (m *model) Join(ctx context.Context, c idem.Claim, _ time.Duration) (idem.Record, idem.Transaction, error) {
	if ctx.Err() != nil && !m.has("holds the key for a dead Join") {
		return idem.Record{}, nil, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == 16 {
		return idem.Record{}, nil, idem.ErrNoTurn
	}
	tx := &modelTx{model: m, ctx: ctx, claim: c}
	r := m.find(c.Key)
	switch _, open := m.open[c.Key]; {
	case open && m.has("joins beside an open transaction"):
		return idem.Record{State: idem.Claimed, Fingerprint: c.Fingerprint, Attempt: 1}, tx, nil
	case open && m.has("fails while a transaction is open"):
		return idem.Record{}, nil, context.DeadlineExceeded
	case r != nil:
		before := *r
		tx.before = &before
		if m.has("joins without looking at leases") && r.held && !open {
			delete(m.records, m.key(c.Key))
		}
	}
	c.Lease = c.Retention
	record := m.begin(c)
	if r != nil && m.has("renews what a Join said to be unknown") {
		r.told = false
	}
	if record.State != idem.Claimed && m.has("keeps the turn of a Join that gets none") {
		m.kept++
	}
	if record.State != idem.Claimed || ctx.Err() != nil {
		return record, nil, ctx.Err()
	}
	m.open[c.Key] = struct{}{}
	if m.has("charges at Join") {
		m.charge(m.records[m.key(c.Key)].use, c.Units, false)
	}
	return record, tx, nil
}

func (x *modelTx) Context(parent context.Context) context.Context {
	return context.WithValue(parent, modelTxKey{}, x)
}

func (x *modelTx) Settle(ctx context.Context, s idem.Settlement) error {
	m := x.model
	key := m.key(x.claim.Key)
	var err error
	if x.ctx.Err() != nil && m.has("ends a transaction with the context of Join") {
		s, err = idem.Settlement{Outcome: idem.OutcomeFree}, x.ctx.Err()
	}
	if s.RollBack && !m.has("charges what is rolled back") {
		s.Units = 0
	}
	if s.RollBack && m.has("rolls the answer back too") {
		s.Outcome = idem.OutcomeFree
	}
	if m.has("keeps joined answers for ever") {
		s.Retention = 1000 * time.Hour
	}
	commit := s.Outcome == idem.OutcomeDone
	if commit {
		err = m.Settle(ctx, x.claim.Key, x.claim.Token, s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, x.claim.Key)
	if !commit && m.has("keeps the turn of what was not started") {
		m.kept++
	}
	if !commit {
		delete(m.records, key)
		if x.before != nil && !m.has("takes over for good") {
			m.records[key] = x.before
		}
		if !m.has("keeps rows that were rolled back") {
			return err
		}
	}
	switch {
	case s.RollBack && !m.has("rolls nothing back"):
	case m.has("loses rows") || m.has("shows rows at once"):
	default:
		m.rows = append(m.rows, x.rows...)
	}
	return err
}

func writeRow(ctx context.Context, row string) error {
	x := ctx.Value(modelTxKey{}).(*modelTx)
	x.rows = append(x.rows, row)
	if m := x.model; m.has("shows rows at once") {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.rows = append(m.rows, row)
	}
	return nil
}

func rowsOf(t *testing.T, s idem.Store) []string {
	m := s.(*model)
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.rows)
}

var _ idem.Joiner = (*model)(nil)
