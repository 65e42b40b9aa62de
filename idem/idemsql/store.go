package idemsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sallyport-go/sallyport/idem"
)

// Options are the settings of a [Store]. The zero value of each field stands
// for its default.
type Options struct {
	// Isolation is that of the transactions of joined requests. The default is
	// what the database has as its own, READ COMMITTED in Postgres. With a higher
	// one a transaction may fail to serialize when it is to be committed; it then
	// leaves nothing, and the client is told to try again.
	Isolation sql.IsolationLevel
	// Logger is told of handlers that endanger what joined mode promises. The
	// default is slog.Default().
	Logger *slog.Logger
}

// Store keeps claims and replies in a database. Its table has to be there, see
// [Store.Migrate].
//
// An error other than those of package idem means that the database could not
// answer, and wraps the driver's error. When a context has ended it wraps the
// error of the context, at once: what was under way may then have taken place,
// or still do.
//
// A Store is used by many goroutines at once, and holds nothing that has to be
// closed. Use one Store for a database in a process: it counts the
// transactions that are open.
type Store struct {
	db *sql.DB
	dialect
	options Options
	turns   func() *semaphore.Weighted

	mu   sync.Mutex
	open map[idem.Key]struct{} // held by transactions of this Store
}

var (
	_ idem.Store  = (*Store)(nil)
	_ idem.Joiner = (*Store)(nil)
)

// Postgres returns a Store in the Postgres database db, which it asks nothing
// yet. The table is the one that the search_path of its connections finds. It
// panics when db is nil.
func Postgres(db *sql.DB, o Options) *Store { return newStore(db, postgres, o) }

// SQLite returns a Store in the SQLite database db, which it asks nothing yet.
// It panics when db is nil.
func SQLite(db *sql.DB, o Options) *Store { return newStore(db, sqlite, o) }

func newStore(db *sql.DB, d dialect, o Options) *Store {
	if db == nil {
		panic("idemsql: a Store needs a database")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Store{db: db, dialect: d, options: o, open: make(map[idem.Key]struct{})}
	// The pool's size is set after sql.Open, so it is not looked at before the
	// first request needs it.
	s.turns = sync.OnceValue(s.newTurns)
	return s
}

// Begin implements [idem.Store]. It never returns [idem.ErrFull].
func (s *Store) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	if err := check(c); err != nil {
		return idem.Record{}, err
	}
	return await(ctx, "begin", func() (r idem.Record, err error) {
		err = s.onPool(ctx, func(ctx context.Context, q querier) error {
			r, err = s.decide(ctx, q, s.begin, c)
			return err
		})
		return r, err
	}, nil)
}

// Extend implements [idem.Store].
func (s *Store) Extend(ctx context.Context, key idem.Key, token idem.Token, lease time.Duration) error {
	if lease <= 0 {
		return fmt.Errorf("idemsql: a lease of %v", lease)
	}
	return s.exec(ctx, "extend", s.extend, key.Partition[:], key.Digest[:], token[:], lease.Microseconds())
}

// Settle implements [idem.Store].
func (s *Store) Settle(ctx context.Context, key idem.Key, token idem.Token, t idem.Settlement) error {
	switch {
	case t.Outcome > idem.NotStarted:
		return fmt.Errorf("idemsql: a settlement as %v", t.Outcome)
	case t.Outcome == idem.NotStarted:
		return s.free(ctx, key, token)
	case t.Retention <= 0:
		return fmt.Errorf("idemsql: a settlement with a retention of %v", t.Retention)
	}
	return s.do(ctx, "settle", func(ctx context.Context, q querier) error { return s.save(ctx, q, key, token, t) })
}

// do does what has no answer beside an error.
func (s *Store) do(ctx context.Context, doing string, do func(ctx context.Context, q querier) error) error {
	_, err := await(ctx, doing, func() (struct{}, error) { return struct{}{}, s.onPool(ctx, do) }, nil)
	return err
}

// save replaces a claim by its outcome.
func (s *Store) save(ctx context.Context, q querier, key idem.Key, token idem.Token, t idem.Settlement) error {
	state, payload := idem.Unknown, []byte{}
	if t.Outcome == idem.Finished {
		state = idem.Done
		if t.Payload != nil { // it would be NULL
			payload = t.Payload
		}
	}
	var same bool
	err := one(ctx, q, s.settle, []any{&same}, key.Partition[:], key.Digest[:], token[:], int64(state), payload, t.Retention.Microseconds())
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return idem.ErrLost
	case err == nil && !same:
		return idem.ErrSettled
	}
	return err
}

// free removes a claim. Its second statement only says why there was none.
func (s *Store) free(ctx context.Context, key idem.Key, token idem.Token) error {
	id := []any{key.Partition[:], key.Digest[:], token[:]}
	err := s.exec(ctx, "settle", s.release, id...)
	if err != idem.ErrLost {
		return err
	}
	return s.do(ctx, "settle", func(ctx context.Context, q querier) error {
		var settled bool
		switch err := one(ctx, q, s.settled, []any{&settled}, id...); {
		case errors.Is(err, sql.ErrNoRows):
			return idem.ErrLost
		case err != nil:
			return err
		}
		return idem.ErrSettled
	})
}

// exec runs a write of one row. ErrLost when it found no row to write.
func (s *Store) exec(ctx context.Context, doing, query string, args ...any) error {
	return s.do(ctx, doing, func(ctx context.Context, q querier) error {
		result, err := q.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		if err == nil && rows == 0 {
			err = idem.ErrLost
		}
		return err
	})
}

func check(c idem.Claim) error {
	if c.Lease <= 0 || c.Retention < c.Lease {
		return fmt.Errorf("idemsql: a claim with a lease of %v and a retention of %v", c.Lease, c.Retention)
	}
	return nil
}
