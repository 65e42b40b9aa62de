package keysql_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// Two stores in one database do not see each other's keys, changes or schema.
func TestPrefix(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		plain, other := d.wrap(db, keysql.Options{}), d.wrap(db, keysql.Options{Prefix: "_other2_"})
		if _, err := other.Lookup(t.Context(), keystore.Digest{}); err == nil || errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("Lookup without the tables: got error %v, want the database's", err)
		}
		migrate(t, other)
		migrate(t, other)

		k := inserted(t, other, "acme", 1)[0]
		if _, err := plain.Lookup(t.Context(), k.Digest); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("Lookup in the other store: got error %v, want ErrNotFound", err)
		}
		if err := insert(t.Context(), plain, k); err != nil {
			t.Errorf("Insert of the same key in the other store: %v", err)
		}
		position, of := present(t, plain), present(t, other)
		k.Name = "changed"
		update(t, other, k)
		if changed, _ := changes(t, plain, position); len(changed) != 0 {
			t.Errorf("the other store says that %d keys have changed, want none", len(changed))
		}
		if changed, _ := changes(t, other, of); !slices.Contains(changed, k.Digest) {
			t.Error("the feed does not name the key that has changed")
		}
		if got := lookup(t, plain, k); got.Name == "changed" {
			t.Error("the key in the other store has changed")
		}
		page, err := other.List(t.Context(), "acme", issuing.Query{})
		if err != nil || len(page.Keys) != 1 {
			t.Errorf("List: got %d keys, error %v, want one", len(page.Keys), err)
		}
		if err := other.AddUses(t.Context(), []keystore.Use{{Organization: k.Organization, ID: k.ID,
			At: k.CreatedAt}}); err != nil {
			t.Error(err)
		}
		if lookup(t, other, k).LastUsedAt.IsZero() || !lookup(t, plain, k).LastUsedAt.IsZero() {
			t.Error("AddUses has touched the wrong key")
		}
		for _, step := range other.Schema() {
			if strings.Contains(step, "sallyport_") {
				t.Errorf("the schema still has the prefix sallyport_:\n%s", step)
			}
		}
	})
}

// The longest prefix makes names that the database takes whole.
func TestLongestPrefix(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		for _, last := range []string{"a", "b"} {
			store := d.wrap(db, keysql.Options{Prefix: strings.Repeat("x", 39) + last})
			migrate(t, store)
			update(t, store, inserted(t, store, "acme", 1)[0])
		}
	})
}
