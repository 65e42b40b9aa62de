package idempgx_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
)

type tag = pgconn.CommandTag

// A handler has all that a transaction of pgx offers, but for its end.
func TestTx(t *testing.T) {
	pool := newPool(t, 2, nil)
	tx, j := join(t, newStore(pool), "key")
	insert := func(tx pgx.Tx, title string) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), "INSERT INTO tasks VALUES ($1)", title); err != nil {
			t.Errorf("%s: %v", title, err)
		}
	}
	begin := func(tx pgx.Tx) pgx.Tx {
		t.Helper()
		savepoint, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return savepoint
	}

	insert(tx, "Exec")
	for name, end := range map[string]error{"Commit": tx.Commit(t.Context()), "Rollback": tx.Rollback(t.Context())} {
		if end == nil || !strings.Contains(end.Error(), name+" of a joined transaction") {
			t.Errorf("%s: got error %v, want one that says who ends the transaction", name, end)
		}
	}
	outer := begin(tx)
	insert(outer, "savepoint")
	inner := begin(outer)
	insert(inner, "taken back")
	undone, kept := inner.Rollback(t.Context()), outer.Commit(t.Context())
	_, copied := tx.CopyFrom(t.Context(), pgx.Identifier{"tasks"}, []string{"title"},
		pgx.CopyFromRows([][]any{{"CopyFrom"}}))
	b := &pgx.Batch{}
	b.Queue("INSERT INTO tasks VALUES ('SendBatch')")
	sent := tx.SendBatch(t.Context(), b).Close()
	_, prepared := tx.Prepare(t.Context(), "prepared", "INSERT INTO tasks VALUES ('Prepare')")
	_, executed := tx.Exec(t.Context(), "prepared")
	objects := tx.LargeObjects()
	id, object := objects.Create(t.Context(), 0)
	_, direct := tx.Conn().Exec(t.Context(), "INSERT INTO tasks VALUES ('Conn')")
	err := errors.Join(undone, kept, copied, sent, prepared, executed, object, objects.Unlink(t.Context(), id), direct)
	if err != nil {
		t.Error(err)
	}
	mustCount(t, tx, "SELECT count(*) FROM tasks", 6)
	mustCount(t, pool, "SELECT count(*) FROM tasks", 0)
	mustSettle(t, j, finished)
	rows, _ := pool.Query(t.Context(), "SELECT title FROM tasks ORDER BY title COLLATE \"C\"")
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if want := []string{"Conn", "CopyFrom", "Exec", "Prepare", "SendBatch", "savepoint"}; !slices.Equal(got, want) {
		t.Errorf("got %q, error %v, want %q", got, err, want)
	}
}

// When the transaction has ended, for example by a response that streams, its
// handler cannot reach the connection, which goes back to the pool.
func TestTxHasEnded(t *testing.T) {
	pool := newPool(t, 1, nil)
	tx, j := join(t, newStore(pool), "key")
	savepoint, err := tx.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := tx.Conn().PgConn().PID()
	mustSettle(t, j, finished)
	for name, tx := range map[string]pgx.Tx{"the transaction": tx, "a savepoint": savepoint} {
		calls := map[string]func() error{
			"Exec":      func() error { _, err := tx.Exec(t.Context(), "SELECT 1"); return err },
			"Query":     func() error { _, err := tx.Query(t.Context(), "SELECT 1"); return err },
			"QueryRow":  func() error { return tx.QueryRow(t.Context(), "SELECT 1").Scan(new(int)) },
			"Begin":     func() error { _, err := tx.Begin(t.Context()); return err },
			"Prepare":   func() error { _, err := tx.Prepare(t.Context(), "name", "SELECT 1"); return err },
			"SendBatch": func() error { return tx.SendBatch(t.Context(), &pgx.Batch{}).Close() },
			"CopyFrom": func() error {
				_, err := tx.CopyFrom(t.Context(), pgx.Identifier{"tasks"}, []string{"title"}, pgx.CopyFromRows(nil))
				return err
			},
			"LargeObjects": func() error { o := tx.LargeObjects(); _, err := o.Create(t.Context(), 0); return err },
		}
		if name == "a savepoint" {
			calls["Commit"] = func() error { return tx.Commit(t.Context()) }
			calls["Rollback"] = func() error { return tx.Rollback(t.Context()) }
		}
		for call, do := range calls {
			if err := do(); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s of %s: got error %v, want ErrTxClosed", call, name, err)
			}
		}
		if tx.Conn() != nil {
			t.Errorf("Conn of %s: got the connection, want none", name)
		}
	}
	next, j := join(t, newStore(pool), "the next")
	if got := next.Conn().PgConn().PID(); got != pid {
		t.Errorf("got session %d, want that of the first, %d", got, pid)
	}
	mustSettle(t, j, finished)
}

// A handler that commits and begins another transaction has its reply in that
// one.
func TestCommitAndChain(t *testing.T) {
	pool := newPool(t, 2, nil)
	store := newStore(pool)
	tx, j := join(t, store, "key")
	execute(t, tx, "INSERT INTO tasks VALUES ('one')")
	execute(t, tx, "COMMIT AND CHAIN")
	mustCount(t, pool, "SELECT count(*) FROM tasks", 1)
	execute(t, tx, "INSERT INTO tasks VALUES ('two')")
	mustSettle(t, j, finished)
	mustCount(t, pool, "SELECT count(*) FROM tasks", 2)
	if r, _, err := store.Join(t.Context(), claim("key"), 0); err != nil || r.State != idem.Done {
		t.Errorf("a repeat: got %v, error %v, want done", r.State, err)
	}
}

func TestWithTx(t *testing.T) {
	if tx, ok := idempgx.Tx(t.Context()); ok || tx != nil {
		t.Errorf("without a transaction: got %v", tx)
	}
	type ofTheTest struct{ pgx.Tx }
	if tx, ok := idempgx.Tx(idempgx.WithTx(t.Context(), ofTheTest{})); !ok || tx != (ofTheTest{}) {
		t.Errorf("got %v, %t, want that of the test", tx, ok)
	}
}
