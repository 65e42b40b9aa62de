package bench_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// A day of 200 creates a second.
const creates = 200 * 24 * 60 * 60

// plan reports the bytes of a create whose answer has so many as answered says,
// and what a day of creates takes.
func plan(b *testing.B, what string, bytes float64) {
	b.ReportMetric(bytes/float64(b.N), what+"-B/create")
	b.ReportMetric(bytes/float64(b.N)*creates/1e9, what+"-GB/day")
}

func settle(b *testing.B, store idem.Store, i int) {
	b.Helper()
	c := claim(i)
	if _, err := store.Begin(context.Background(), c); err != nil {
		b.Fatal(err)
	}
	s := idem.Settlement{Outcome: idem.OutcomeDone, Payload: make([]byte, answered), Summary: make([]byte, 64),
		Retention: 24 * time.Hour}
	rand.Read(s.Payload) // a database would compress zeros
	rand.Read(s.Summary)
	if err := store.Settle(context.Background(), c.Key, c.Token, s); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPlanMemory counts what lives in the heap for each reply.
func BenchmarkPlanMemory(b *testing.B) {
	before := heap()
	m := &idem.Memory{Budget: 8 << 30}
	for i := range b.N {
		settle(b, m, i)
	}
	plan(b, "charged", float64(m.Stats().Bytes))
	plan(b, "live", float64(heap()-before))
	runtime.KeepAlive(m)
}

// BenchmarkPlanPostgres asks Postgres for the size of the table with its
// indexes.
func BenchmarkPlanPostgres(b *testing.B) {
	config := pgtest.Schema(b)
	db := stdlib.OpenDB(*config)
	defer db.Close()
	db.SetMaxOpenConns(1) // so that SET lasts
	store := idemsql.Postgres(db, idemsql.Options{})
	if err := store.Migrate(context.Background()); err != nil {
		b.Fatal(err)
	}
	run(b, db, "SET synchronous_commit = off")
	for i := range b.N {
		settle(b, store, i)
	}
	size := func() (bytes float64) {
		const query = `SELECT sum(pg_total_relation_size(oid)) FROM pg_class
			WHERE relkind = 'r' AND relnamespace = $1::regnamespace`
		if err := db.QueryRow(query, config.RuntimeParams["search_path"]).Scan(&bytes); err != nil {
			b.Fatal(err)
		}
		return bytes
	}
	plan(b, "dead-rows", size())
	var tables string
	const query = `SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = $1`
	if err := db.QueryRow(query, config.RuntimeParams["search_path"]).Scan(&tables); err != nil {
		b.Fatal(err)
	}
	run(b, db, "VACUUM FULL "+tables)
	plan(b, "packed", size())
}

func run(b *testing.B, db *sql.DB, statement string) {
	b.Helper()
	if _, err := db.Exec(statement); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPlanRedis asks Redis what its keys take.
func BenchmarkPlanRedis(b *testing.B) {
	client := redistest.Connect(b, redistest.Options(b))
	ctx := context.Background()
	prefix := redistest.OwnPrefix(b, client)
	store := idemredis.New(client, idemredis.Options{Prefix: prefix})
	for i := range b.N {
		settle(b, store, i)
	}
	total, keys := int64(0), redistest.KeysOf(b, client, prefix)
	for _, key := range keys {
		bytes, err := client.MemoryUsage(ctx, key).Result()
		if err != nil {
			b.Fatal(err)
		}
		total += bytes
	}
	if len(keys) != b.N {
		b.Fatalf("found %d keys, want %d", len(keys), b.N)
	}
	plan(b, "used", float64(total))
}
