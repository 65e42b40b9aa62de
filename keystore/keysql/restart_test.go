package keysql_test

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// A program that ends and starts again finds every key as it was, and a
// position in the feed is still one.
func TestRestart(t *testing.T) {
	d := emptySQLite(filepath.Join(t.TempDir(), "keys.db"))
	db := d.open(t)
	store := d.wrap(db, keysql.Options{})
	migrate(t, store)
	keys := inserted(t, store, "acme", 20)
	start := present(t, store)
	keys[3].RevokedAt, keys[3].ExpiresAt, keys[3].Scopes = time.Now(), time.Now().Add(time.Hour), nil
	update(t, store, keys[3])
	if err := store.Touch(t.Context(), uses(keys[:7], time.Now())); err != nil {
		t.Fatal(err)
	}
	before, err := store.List(t.Context(), "acme", keystore.Page{})
	if err != nil || len(before) != len(keys) {
		t.Fatalf("List returned %d keys and %v, want %d", len(before), err, len(keys))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	store = d.store(t)
	migrate(t, store)
	after, err := store.List(t.Context(), "acme", keystore.Page{})
	if err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("List after a restart returned %d keys and %v, not what it returned before", len(after), err)
	}
	changed, _ := changes(t, store, start)
	wantNamed(t, changed, keys[3], "a change from before the restart")
}
