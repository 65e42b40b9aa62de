package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sallyport-go/sallyport/idem"
)

// joiner is a Store with transactions, in memory: the rows that a handler
// writes with insert are there for others once Settle has committed.
type joiner struct {
	*idem.Memory

	mu   sync.Mutex
	rows []string
	// noTurn says that no Join gets a turn.
	noTurn bool
	// ending, when set, is told when a transaction is about to end.
	ending func()
	// commit, when set, stands in for COMMIT: it makes it happen by do or fail
	// by undo, and the error is what the database says.
	commit func(do, undo func()) error
}

func newJoiner() *joiner { return &joiner{Memory: idem.NewMemory(idem.MemoryOptions{})} }

func (j *joiner) committed() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.rows)
}

func (j *joiner) Join(ctx context.Context, c idem.Claim) (idem.Record, idem.Transaction, error) {
	if j.noTurn {
		return idem.Record{}, nil, fmt.Errorf("busy: %w", idem.ErrNoTurn)
	}
	record, err := j.Begin(ctx, c)
	if err != nil || record.State != idem.Claimed {
		return record, nil, err
	}
	return record, &transaction{store: j, claim: c}, nil
}

type transaction struct {
	store *joiner
	claim idem.Claim
	rows  []string
}

type transactionKey struct{}

// insert writes a row within the transaction that ctx carries.
func insert(ctx context.Context, row string) {
	tx := ctx.Value(transactionKey{}).(*transaction)
	tx.rows = append(tx.rows, row)
}

func (tx *transaction) Context(parent context.Context) context.Context {
	return context.WithValue(parent, transactionKey{}, tx)
}

func (tx *transaction) Settle(ctx context.Context, s idem.Settlement) error {
	end := func(s idem.Settlement) {
		if err := tx.store.Memory.Settle(context.Background(), tx.claim.Key, tx.claim.Token, s); err != nil {
			panic(err)
		}
		if s.Outcome == idem.Finished && !s.Undo {
			tx.store.mu.Lock()
			tx.store.rows = append(tx.store.rows, tx.rows...)
			tx.store.mu.Unlock()
		}
	}
	if tx.store.ending != nil {
		tx.store.ending()
	}
	if s.Outcome == idem.Finished && tx.store.commit != nil {
		return tx.store.commit(func() { end(s) }, func() { end(idem.Settlement{Outcome: idem.NotStarted}) })
	}
	end(s)
	return nil
}
