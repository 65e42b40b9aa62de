package keysql_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// A key that is stored while its organization is erased goes with its entry, or
// stays with it, before whichever statement of Erase it comes.
func TestInsertDuringErase(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		for _, before := range []string{"DELETE FROM sallyport_keys_scopes", "UPDATE sallyport_keys",
			"DELETE FROM sallyport_keys_audit", "COMMIT"} {
			inserted(t, store, "acme", 1)
			k, done, begun := newKey("acme"), make(chan error, 1), false
			meanwhile := d.breaking(t, func(what string) error {
				if !begun && strings.Contains(what, before) {
					begun = true
					go func() { done <- insert(t.Context(), store, k) }()
					select {
					case err := <-done:
						done <- err
					case <-time.After(100 * time.Millisecond): // it waits for Erase
					}
				}
				return nil
			})
			if _, _, err := d.wrap(meanwhile, keysql.Options{}).Erase(t.Context(), "acme", erasure); err != nil || !begun {
				t.Fatal(before, begun, err)
			}
			if err := <-done; err != nil {
				t.Fatal(before, err)
			}
			_, err := store.Find(t.Context(), "acme", k.ID)
			entries, failed := store.Audit(t.Context(), "acme", issuing.AuditQuery{Act: "issue"})
			if gone := errors.Is(err, keystore.ErrNotFound); gone != (len(entries) == 0) || failed != nil {
				t.Errorf("inserted before %s: Find returned %v, and there are %d entries, %v", before, err, len(entries), failed)
			}
			erase(t, store, "acme")
		}
	})
}
