package idemsql_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// BenchmarkStore is what a request costs in the store while the table has as
// many rows as the name says, and what it costs to sweep a thousand expired
// ones out of it.
func BenchmarkStore(b *testing.B) {
	for _, rows := range []int{1e3, 1e5, 1e6} {
		for name, open := range map[string]func(testing.TB) database{
			"sqlite": sqliteFile, "postgres": postgres, "mariadb": mariadb,
		} {
			b.Run(strconv.Itoa(rows)+"/"+name, func(b *testing.B) {
				d := open(b)
				db := d.open(b)
				store := d.on(db, idemsql.Options{})
				d.fill(b, db, rows, aDay)
				if d.my == nil { // MariaDB has no such statement for all tables
					execute(b, db, "ANALYZE")
				}
				fresh := 0
				next := func() idem.Claim {
					fresh++
					return claim("fresh " + strconv.Itoa(fresh))
				}
				answer := finished(strings.Repeat("x", 400))
				b.Run("claim and settle", func(b *testing.B) {
					for b.Loop() {
						c := next()
						if _, err := store.Begin(b.Context(), c); err != nil {
							b.Fatal(err)
						}
						if err := store.Settle(b.Context(), c.Key, c.Token, answer); err != nil {
							b.Fatal(err)
						}
					}
				})
				b.Run("join and commit", func(b *testing.B) {
					for b.Loop() {
						_, j, err := store.Join(b.Context(), next(), 0)
						if err != nil {
							b.Fatal(err)
						}
						if err := j.Settle(b.Context(), answer); err != nil {
							b.Fatal(err)
						}
					}
				})
				b.Run("sweep", func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						d.fill(b, db, sweepSize-1, -sweepSize) // after sweepSize there would be another sweep
						b.StartTimer()
						swept(b, store)
					}
				})
				b.Run("replay", func(b *testing.B) {
					c := next()
					begin(b, store, c, idem.Claimed)
					if err := store.Settle(b.Context(), c.Key, c.Token, answer); err != nil {
						b.Fatal(err)
					}
					for b.Loop() {
						if r, err := store.Begin(b.Context(), again(c)); err != nil || r.State != idem.Done {
							b.Fatal(r.State, err)
						}
					}
				})
			})
		}
	}
}
