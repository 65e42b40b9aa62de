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
				d.fill(b, db, rows)
				execute(b, db, "ANALYZE")
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
						d.fillExpired(b, db, sweepSize-1) // after sweepSize there would be another sweep
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

// fillExpired puts n rows into the table whose time is over.
func (d database) fillExpired(b *testing.B, db execer, n int) {
	b.Helper()
	columns := "INSERT INTO sallyport_idem " +
		"(request_key, token, fingerprint, attempt, state, lease_ends, expires_at, payload) "
	if d.my != nil {
		execute(b, db, columns+`
			SELECT UNHEX(SHA2(CONCAT(n, RAND()), 256)), UNHEX('00'), UNHEX(SHA2('f', 256)), n, 3, 0,
				(UNIX_TIMESTAMP() - 1) * 1000000, REPEAT('{', 400)
			FROM `+mariadbSeries(n)+` AS s`)
		return
	}
	if d.conf != nil {
		execute(b, db, strings.Replace(columns, "payload", "payload, sweep_at", 1)+`
			SELECT sha256((n::text || random()::text)::bytea), '\x00', sha256('f'), n, 3, now(), now() - interval '1 second',
				decode(repeat('7b', 400), 'hex'), now() - interval '1 second'
			FROM generate_series(1, `+strconv.Itoa(n)+`) AS n`)
		return
	}
	series := "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < " + strconv.Itoa(n) + ") "
	execute(b, db, series+columns+`
		SELECT randomblob(32), x'00', zeroblob(32), n, 3, 0, (unixepoch() - 1) * 1000000, zeroblob(400)
		FROM s`)
}
