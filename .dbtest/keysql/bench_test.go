package keysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// Each benchmark runs on a thousand and on a hundred thousand keys of one
// organization: what an index serves costs about the same on both.
func inSizes(b *testing.B, f func(b *testing.B, d database, n int)) {
	for _, kind := range []struct {
		name string
		open func(testing.TB) database
	}{{"sqlite", sqliteFile}, {"postgres", postgres}} {
		for _, n := range []int{1_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, n), func(b *testing.B) {
				d := kind.open(b)
				seed(b, d, "acme", n)
				execute(b, d.open(b), "ANALYZE")
				f(b, d, n)
			})
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	inSizes(b, func(b *testing.B, d database, n int) {
		store := d.store(b)
		i := 0
		for b.Loop() {
			i = (i + 7919) % n
			if _, err := store.Lookup(b.Context(), seeded("acme", i+1)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTouch1000(b *testing.B) {
	inSizes(b, func(b *testing.B, d database, n int) {
		store := d.store(b)
		batch := make([]keystore.Use, 1000)
		now := time.Now()
		for i := 0; b.Loop(); i++ {
			for j := range batch {
				batch[j] = keystore.Use{Organization: "acme", ID: fmt.Sprint("acme_key_", j*(n/1000)+1),
					At: now.Add(time.Duration(i) * time.Second)}
			}
			if err := store.AddUses(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkListPage(b *testing.B) {
	inSizes(b, func(b *testing.B, d database, n int) {
		store := d.store(b)
		middle, err := store.Lookup(b.Context(), seeded("acme", n/2))
		if err != nil {
			b.Fatal(err)
		}
		for name, q := range map[string]issuing.Query{
			"first":  {},
			"middle": {After: middle, Status: keystore.Active},
		} {
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					page, err := store.List(b.Context(), "acme", q)
					if err != nil || len(page.Keys) != 50 {
						b.Fatalf("%d keys and %v", len(page.Keys), err)
					}
				}
			})
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	inSizes(b, func(b *testing.B, d database, n int) {
		store := d.store(b)
		k, err := store.Lookup(b.Context(), seeded("acme", n/2))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := store.Update(b.Context(), k, newEntry(k)); err != nil {
				b.Fatal(err)
			}
			k.Version++
		}
	})
}

// What each server asks every few seconds, when nothing has changed since,
// although everything has changed once.
func BenchmarkChangesNone(b *testing.B) {
	inSizes(b, func(b *testing.B, d database, n int) {
		store := d.store(b)
		execute(b, d.open(b), "UPDATE sallyport_keys SET suspended = true")
		_, since, err := store.Changes(b.Context(), "")
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if changed, _, err := store.Changes(b.Context(), since); err != nil || len(changed) > 0 {
				b.Fatalf("%d changes and %v", len(changed), err)
			}
		}
	})
}
