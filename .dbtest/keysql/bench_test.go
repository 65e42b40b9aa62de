package keysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// Each call runs on a thousand and on a hundred thousand keys of one
// organization: what an index serves costs about the same on both.
func BenchmarkStore(b *testing.B) {
	for name, open := range map[string]func(testing.TB) database{"sqlite": sqliteFile, "postgres": postgres} {
		for _, n := range []int{1_000, 100_000} {
			d := open(b)
			seed(b, d, "acme", n)
			for _, statement := range []string{"UPDATE sallyport_keys SET suspended = true",
				"UPDATE sallyport_keys SET suspended = false", "ANALYZE"} {
				execute(b, d.open(b), statement)
			}
			store, now, batch := d.store(b), time.Now(), make([]keystore.Use, 1000)
			middle := lookup(b, store, &keystore.Key{Digest: seeded("acme", n/2)})
			since := present(b, store) // although everything has changed once
			list := func(q issuing.Query) error {
				page, err := store.List(b.Context(), "acme", q)
				if len(page.Keys) != 50 {
					b.Fatalf("%d keys and %v", len(page.Keys), err)
				}
				return err
			}
			for _, c := range []struct {
				what string
				do   func(i int) error
			}{
				{"Lookup", func(i int) error {
					_, err := store.Lookup(b.Context(), seeded("acme", i*7919%n+1))
					return err
				}},
				{"ListFirst", func(int) error { return list(issuing.Query{}) }},
				{"ListMiddle", func(int) error { return list(issuing.Query{After: middle, Status: keystore.Active}) }},
				{"ChangesNone", func(int) error { _, _, err := store.Changes(b.Context(), since); return err }},
				{"AddUses1000", func(i int) error {
					for j := range batch {
						batch[j] = keystore.Use{Organization: "acme", ID: fmt.Sprint("acme_key_", j*(n/1000)+1),
							At: now.Add(time.Duration(i) * time.Second)}
					}
					return store.AddUses(b.Context(), batch)
				}},
				{"Update", func(int) error {
					err := store.Update(b.Context(), middle, newEntry(middle))
					middle.Version++
					return err
				}},
			} {
				b.Run(fmt.Sprintf("%s/%d/%s", c.what, n, name), func(b *testing.B) {
					for i := 0; b.Loop(); i++ {
						if err := c.do(i); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
