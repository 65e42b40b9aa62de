package keysql_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// Ids are sorted by their bytes, also where the database has another language.
func TestListSortsBytes(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		created := newKey("acme").CreatedAt
		want := []string{"é", "z", "ab", "aB", "a b", "a", "_", "Z", "B", "-"}
		for _, id := range want {
			k := newKey("acme")
			k.ID, k.CreatedAt = id, created
			mustInsert(t, store, k)
		}
		var got []string
		for q := (issuing.Query{Limit: 3}); len(got) < len(want); {
			page, err := store.List(t.Context(), "acme", q)
			if err != nil || len(page.Keys) == 0 {
				t.Fatalf("List after %q returned %d keys and %v", got, len(page.Keys), err)
			}
			for _, k := range page.Keys {
				got = append(got, k.ID)
				q.After = k
			}
		}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("List returned %q, want %q", got, want)
		}
	})
}

func TestPostgresCollation(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	var column string
	err := d.open(t).QueryRowContext(t.Context(), `
		SELECT coalesce(string_agg(attname, ', '), '') FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation
		WHERE attrelid = 'sallyport_keys'::regclass AND collname <> 'C'`).Scan(&column)
	if err != nil || column != "" {
		t.Errorf("columns %q (%v) are sorted by the rules of the database's language, want all texts by their bytes",
			column, err)
	}
}

// A page reads of no more than 1000 keys which scopes they needed.
func TestScopesUnusedOfManyKeys(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		const organization = "many"
		seed(t, d, organization, 1100)
		db, now := d.open(t), time.Now()
		execute(t, db, "UPDATE sallyport_keys SET observed_since = created_at")
		execute(t, db, fmt.Sprintf("INSERT INTO sallyport_keys_scopes (id, scope, day) "+
			"SELECT id, 'tasks:read', %d FROM sallyport_keys", now.Unix()/(24*60*60)))
		q := issuing.Query{ScopesUnusedSince: now, Total: true, Limit: 150}
		for _, want := range []int{1000, 950, 800} {
			page, err := d.wrap(db, keysql.Options{}).List(t.Context(), organization, q)
			if err != nil || len(page.Keys) != 150 || page.Total != want {
				t.Fatalf("got %d of %d keys, %v, want 150 of %d", len(page.Keys), page.Total, err, want)
			}
			q.After = page.Keys[149]
		}
	})
}
