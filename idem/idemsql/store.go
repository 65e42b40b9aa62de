package idemsql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

// Options are the settings of a [Store]. The zero value of each field stands
// for its default.
type Options struct {
	// Isolation is that of the transactions of joined requests. The default is
	// what the database has as its own: READ COMMITTED in Postgres, REPEATABLE
	// READ in MySQL. With a higher one a transaction may fail to serialize when
	// it is to be committed; it then leaves nothing, and the client is told to
	// try again. In Postgres a 4xx rolls back, so nothing checks what its
	// handler has read.
	Isolation sql.IsolationLevel
	// Prefix is what the names of the tables and their indexes begin with, in place of "sallyport_": at most 40 of the
	// characters a-z, 0-9 and _, and no digit first. Stores with different
	// prefixes in one database do not see each other.
	Prefix string
	// KeepCharges has Run keep a row for each charge until [Store.Acknowledge]. The
	// database remembers it: from then on all processes keep them, also those
	// without the option.
	KeepCharges bool
	// Logger gets a line for each handler that breaks the rules of joined mode.
	// The default is slog.Default().
	Logger *slog.Logger
}

// Store keeps claims and replies in a database. Its table has to be there, see
// [Store.Migrate].
//
// An error other than those of package idem means that the database could not
// answer, and wraps the driver's error. When a context has ended it wraps the
// error of the context, at once: the statement may then have been carried out,
// or may still be.
//
// A Store is used by many goroutines at once, and holds nothing that has to be
// closed. Use one Store for a database in a process: it counts the
// transactions that are open.
type Store struct {
	db *sql.DB
	dialect
	options Options
	joiner  *claims.Joiner
	names   *claims.Names
	swept   atomic.Pointer[time.Time] // see Swept
	counts  atomic.Bool               // somebody asks what is used, or there was something to add up
	marked  atomic.Bool               // the database knows of KeepCharges
}

var (
	_ idem.Eraser  = (*Store)(nil)
	_ idem.Joiner  = (*Store)(nil)
	_ idem.Counter = (*Store)(nil)
)

// Postgres returns a Store in the Postgres database db, which it asks nothing
// yet. The table is the one that the search_path of its connections finds at the
// first use. It panics when db is nil or the prefix is not valid.
func Postgres(db *sql.DB, o Options) *Store { return newStore(db, postgres, o) }

// SQLite returns a Store in the SQLite database db, which it asks nothing yet.
// It panics when db is nil or the prefix is not valid.
func SQLite(db *sql.DB, o Options) *Store { return newStore(db, sqlite, o) }

// MySQL returns a Store in the MySQL or MariaDB database db, which it asks
// nothing yet. The connections must have that database as their default. It
// panics when db is nil or the prefix is not valid.
func MySQL(db *sql.DB, o Options) *Store { return newStore(db, mysql, o) }

func newStore(db *sql.DB, d dialect, o Options) *Store {
	if db == nil {
		panic("idemsql: a Store needs a database")
	}
	o.Prefix = cmp.Or(o.Prefix, sqlschema.DefaultPrefix)
	sqlschema.CheckPrefix("idemsql", o.Prefix)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	form, names := d.sql, claims.NewNames(o.Prefix, d.home, d.where)
	_, d.steps = sqlschema.WithPrefix(o.Prefix, form, d.steps)
	d.sql = func(query string, args []any) (string, []any) { return form(names.Text(query), args) }
	s := &Store{db: db, dialect: d, options: o, names: names}
	s.joiner = s.newJoiner()
	return s
}

// Begin implements [idem.Store]. It never returns [idem.ErrFull].
func (s *Store) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	if err := claims.Check(c); err != nil {
		return idem.Record{}, fmt.Errorf("idemsql: %w", err)
	}
	return await(ctx, s, "begin", func(ctx context.Context, q querier) (idem.Record, error) {
		r, err := s.decide(ctx, q, s.begin, &c, c.Retention)
		if r.State == claims.Lapsed { // is marked before its outcome is said to be unknown
			r.State = idem.Unknown
			if err = s.write(ctx, q, s.mark, c.Key[:]); err == idem.ErrLost {
				err = claims.ErrOvertaken
			}
		}
		return r, err
	}, func(r idem.Record) {
		// The Runner may have freed the key before.
		if r.State == idem.Claimed {
			free := idem.Settlement{Outcome: idem.OutcomeFree, Retention: c.Retention, Units: c.Units}
			s.Settle(context.WithoutCancel(ctx), c.Key, c.Token, free)
		}
	})
}

// HonorsContext promises, in the meaning of [idem.Store], that no call outlasts
// its context, with whichever driver.
func (s *Store) HonorsContext() {}

// Extend implements [idem.Store].
func (s *Store) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	if lease <= 0 {
		return fmt.Errorf("idemsql: a lease of %v", lease)
	}
	return s.do(ctx, "extend", func(ctx context.Context, q querier) error {
		return s.write(ctx, q, s.extend, key[:], token[:], lease.Microseconds())
	})
}

// Settle implements [idem.Store].
func (s *Store) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, t idem.Settlement) error {
	switch {
	case t.Outcome > idem.OutcomeFree:
		return fmt.Errorf("idemsql: a settlement with the outcome %d", t.Outcome)
	case t.Retention <= 0:
		return fmt.Errorf("idemsql: a settlement with a retention of %v", t.Retention)
	}
	return s.do(ctx, "settle", func(ctx context.Context, q querier) error { return s.end(ctx, q, key, token, t) })
}

// do does what has no answer beside an error.
func (s *Store) do(ctx context.Context, doing string, do func(ctx context.Context, q querier) error) error {
	_, err := await(ctx, s, doing, func(ctx context.Context, q querier) (struct{}, error) {
		return struct{}{}, do(ctx, q)
	}, nil)
	return err
}

// end removes a claim or replaces it by its outcome. Its last statement only says
// why there was no claim.
func (s *Store) end(ctx context.Context, q querier, key idem.Key, token idem.ClaimToken, t idem.Settlement) error {
	args := claims.SettleArgs(key, token, t)
	end, ended, known := s.settle, s.settledAs, args[:4]
	if t.Outcome == idem.OutcomeFree {
		if err := s.write(ctx, q, s.release, args[:2]...); err != idem.ErrLost {
			return err
		}
		end, ended, known = s.giveUp, s.settled, args[:2]
	}
	if err := s.write(ctx, q, end, args...); err != idem.ErrLost {
		return err
	}
	var same bool
	switch err := s.one(ctx, q, ended, []any{&same}, known...); {
	case errors.Is(err, sql.ErrNoRows):
		return idem.ErrLost
	case err == nil && !same:
		return idem.ErrSettled
	default:
		return err
	}
}
