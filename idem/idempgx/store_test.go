package idempgx_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
)

// Most tests of this package are those of idemsql, which run on its store too.

// patience is how long a test waits for connections that it has given back.
const patience = time.Minute

// newPool returns a pool in a schema of its own, with the tables.
func newPool(t testing.TB, size int, set func(*pgx.ConnConfig)) *pgxpool.Pool {
	t.Helper()
	conf, err := pgxpool.ParseConfig("")
	if err != nil {
		t.Fatal(err)
	}
	conf.ConnConfig, conf.MaxConns = pgtest.Schema(t), int32(size)
	if set != nil {
		set(conf.ConnConfig)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// It waits for what a test that panicked holds, and would hide its words.
		closed := make(chan struct{})
		go func() { defer close(closed); pool.Close() }()
		select {
		case <-closed:
		case <-time.After(patience):
			t.Errorf("a connection was not given back within %v", patience)
		}
	})
	if err := newStore(pool).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, pool, "CREATE TABLE tasks (title text NOT NULL)")
	return pool
}

func newStore(pool *pgxpool.Pool) *idempgx.Store {
	return idempgx.New(pool, idempgx.Options{Logger: slog.New(slog.DiscardHandler)})
}

// database is a pool or a transaction.
type database interface {
	Exec(ctx context.Context, statement string, args ...any) (tag, error)
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}

func execute(t testing.TB, db database, statement string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func mustCount(t testing.TB, db database, query string, want int) {
	t.Helper()
	var got int
	if err := db.QueryRow(t.Context(), query).Scan(&got); err != nil || got != want {
		t.Errorf("%s: got %d, error %v, want %d", query, got, err, want)
	}
}

func claim(key string) (c idem.Claim) {
	c = idem.Claim{Key: idem.NewKey("organization", key), Lease: time.Minute, Retention: time.Hour}
	rand.Read(c.Token[:])
	return c
}

var (
	finished = idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte("answer"), Retention: time.Hour}
	refusal  = idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte("answer"), Retention: time.Hour, RollBack: true}
)

func mustSettle(t testing.TB, j idem.Transaction, s idem.Settlement) {
	t.Helper()
	if err := j.Settle(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// join joins a claim of a new key.
func join(t testing.TB, store *idempgx.Store, key string) (pgx.Tx, idem.Transaction) {
	t.Helper()
	r, j, err := store.Join(t.Context(), claim(key), 0)
	if err != nil || r.State != idem.Claimed {
		t.Fatalf("Join: got %v, error %v, want claimed", r.State, err)
	}
	tx, ok := idempgx.Tx(j.Context(t.Context()))
	if !ok {
		t.Fatal("the context carries no transaction")
	}
	return tx, j
}

func TestMistakesPanic(t *testing.T) {
	pool := new(pgxpool.Pool)
	for name, make := range map[string]func(){
		"no pool":      func() { idempgx.New(nil, idempgx.Options{}) },
		"no prefix":    func() { idempgx.New(pool, idempgx.Options{Prefix: "a-b"}) },
		"no isolation": func() { idempgx.New(pool, idempgx.Options{Isolation: sql.LevelSnapshot}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: New returned, want a panic where the mistake is", name)
				}
			}()
			make()
		}()
	}
}

// A claim that is not there any more is not settled, and what stands in its
// transaction is not committed.
func TestClaimIsGone(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			pool := newPool(t, 2, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode })
			for name, lose := range map[string][]string{
				"in another transaction": {"ROLLBACK", "BEGIN"},
				"deleted":                {"DELETE FROM sallyport_idem"},
			} {
				for range 2 { // with and without the statements prepared
					tx, j := join(t, newStore(pool), name)
					for _, statement := range append(lose, "INSERT INTO tasks VALUES ('one')") {
						execute(t, tx, statement)
					}
					if err := j.Settle(t.Context(), finished); !errors.Is(err, idem.ErrCommitUnknown) {
						t.Errorf("%s: got error %v, want ErrCommitUnknown", name, err)
					}
					mustCount(t, pool, "SELECT count(*) FROM tasks", 0)
					if n := pool.Stat().AcquiredConns(); n != 0 {
						t.Errorf("%s: %d connections are in use, want 0", name, n)
					}
				}
			}
			if n := pool.Stat().NewConnsCount(); n > 2 {
				t.Errorf("the pool has opened %d connections, want each rolled back and kept", n)
			}
		})
	}
}
