package keysql_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// A look-up of a key without a parent is one statement, and that of a child
// two, however many ancestors it has.
func TestStatementsOfAChild(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		statements := 0
		store := d.wrap(d.breaking(t, func(what string) error {
			if what != sqltest.Row {
				statements++
			}
			return nil
		}), keysql.Options{})
		parent := ""
		for depth := range 4 {
			k := newKey("acme")
			k.Parent, parent = parent, k.ID
			mustInsert(t, store, k)
			statements = 0
			got, err := store.Lookup(t.Context(), k.Digest)
			if want := min(depth, 1) + 1; err != nil || got.Refused() != nil || statements != want {
				t.Errorf("a look-up below %d ancestors took %d statements, %v, want %d", depth, statements, err, want)
			}
		}
		execute(t, d.open(t), "UPDATE sallyport_keys SET scopes = 'null' WHERE parent = ''")
		if k, err := store.Find(t.Context(), "acme", parent); !errors.Is(err, keystore.ErrCorrupt) {
			t.Errorf("a key whose first ancestor is corrupt: got %v, %v, want ErrCorrupt", k, err)
		}
	})
}

// An erased child is unknown, and so is one whose parent was deleted by hand.
func TestTokenOfAnErasedChild(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		issuer := issuing.New(store, issuing.Options{})
		for _, end := range []func(id string){
			func(string) {
				if _, _, err := issuer.Erase(t.Context(), "acme"); err != nil {
					t.Error(err)
				}
			},
			func(id string) { execute(t, d.open(t), fmt.Sprintf("DELETE FROM sallyport_keys WHERE id = '%s'", id)) },
		} {
			_, parent, err := issuer.Issue(t.Context(), keystore.Key{Organization: "acme", Environment: keystore.Sandbox})
			if err != nil {
				t.Fatal(err)
			}
			secret, _, err := issuer.Delegate(t.Context(), keystore.Key{Organization: "acme", Parent: parent.ID,
				ExpiresAt: time.Now().Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			token, err := issuer.Service().Parse(secret.Reveal())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := token.Caller(t.Context(), store, nil); err != nil {
				t.Fatal(err)
			}
			end(parent.ID)
			if c, err := token.Caller(t.Context(), store, nil); !errors.Is(err, keystore.ErrNotFound) {
				t.Errorf("got %v, %v, want that there is no such key", c, err)
			}
		}
	})
}
