package keysql_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/sqltest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// TestPromotedReplica: a replica that was promoted counts its changes from an
// earlier number than the primary had reached. A position of the primary is
// then unknown to it, however many transactions follow, so that caches forget
// all.
func TestPromotedReplica(t *testing.T) {
	primary, replica := sqltest.NewPostgres(t), sqltest.NewPostgres(t)
	primary.Init()
	primary.Start()
	db := primary.Open()
	store := keysql.Postgres(db, keysql.Options{})
	migrate(t, store)
	k := inserted(t, store, "acme", 1)[0]
	replica.Run("pg_basebackup", "-D", replica.Data(), "-R", "-c", "fast", "--no-sync", "-h", primary.Dir, "-U", "postgres")
	spendTransactions(t, db, 50) // which the replica never gets
	position := present(t, store)
	db.Close()
	primary.Kill()

	replica.Start()
	db = replica.Open()
	execute(t, db, "SELECT pg_promote(wait_seconds => 600)")
	store = keysql.Postgres(db, keysql.Options{})
	k.RevokedAt = time.Now()
	update(t, store, k)
	spendTransactions(t, db, 200)
	if _, _, err := store.Changes(t.Context(), position); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("a position of the primary on the promoted replica: got %v, want ErrNotFound", err)
	}
	since := present(t, store)
	spendTransactions(t, db, 10)
	if _, _, err := store.Changes(t.Context(), since); err != nil {
		t.Errorf("a position of its own: got %v", err)
	}
	// A crash may lose the last numbers too.
	replica.Kill()
	replica.Start()
	db = replica.Open()
	spendTransactions(t, db, 200)
	if _, _, err := keysql.Postgres(db, keysql.Options{}).Changes(t.Context(), since); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("a position of before a crash: got %v, want ErrNotFound", err)
	}
}

// spendTransactions makes the numbers of transactions grow.
func spendTransactions(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for range n {
		if _, err := db.ExecContext(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
			t.Fatal(err)
		}
	}
}
