package bench_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// A day of 200 creates a second.
const creates = 200 * 24 * 60 * 60

func logPlan(t *testing.T, store string, bytes float64) {
	t.Helper()
	t.Logf("%s: %.0f bytes a create with an answer of %d; 24 h of 200 creates/s: %.1f GB", store, bytes, answered, bytes*creates/1e9)
}

func settle(t *testing.T, store idem.Store, i int) {
	t.Helper()
	c := claim(i)
	if _, err := store.Begin(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	s := idem.Settlement{Outcome: idem.Finished, Payload: make([]byte, answered), Summary: make([]byte, 64), Retention: 24 * time.Hour}
	rand.Read(s.Payload) // a database would compress zeros
	rand.Read(s.Summary)
	if err := store.Settle(context.Background(), c.Key, c.Token, s); err != nil {
		t.Fatal(err)
	}
}

// TestPlanMemory counts what lives in the heap for each reply.
func TestPlanMemory(t *testing.T) {
	before := heap()
	m := idem.NewMemory(idem.MemoryOptions{Budget: 8 << 30})
	const n = 100_000
	for i := range n {
		settle(t, m, i)
	}
	logPlan(t, "memory, charged", float64(m.Stats().Bytes)/n)
	logPlan(t, "memory, live", float64(heap()-before)/n)
	runtime.KeepAlive(m)
}

// TestPlanPostgres asks Postgres for the size of the table with its indexes.
func TestPlanPostgres(t *testing.T) {
	dsn := os.Getenv("SALLYPORT_POSTGRES")
	if dsn == "" {
		t.Skip("SALLYPORT_POSTGRES is not set")
	}
	admin := open(t, dsn)
	schema := fmt.Sprintf("bench_%d", time.Now().UnixNano())
	run(t, admin, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { run(t, admin, "DROP SCHEMA "+schema+" CASCADE") })
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()

	db := open(t, u.String())
	store := idemsql.Postgres(db, idemsql.Options{})
	if err := store.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	const n = 5_000
	run(t, db, "SET synchronous_commit = off")
	for i := range n {
		settle(t, store, i)
	}
	size := func() (bytes float64) {
		const query = `SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = $1::regnamespace`
		if err := db.QueryRow(query, schema).Scan(&bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	logPlan(t, "Postgres, before VACUUM", size()/n)
	rows, err := db.Query("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
	if err != nil {
		t.Fatal(err)
	}
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	rows.Close()
	for _, name := range tables {
		run(t, db, "VACUUM FULL "+name)
	}
	logPlan(t, "Postgres, packed", size()/n)
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1) // so that SET lasts
	t.Cleanup(func() { db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

// TestPlanRedis asks Redis what its keys take.
func TestPlanRedis(t *testing.T) {
	address := os.Getenv("SALLYPORT_REDIS")
	if address == "" {
		t.Skip("SALLYPORT_REDIS is not set")
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	ctx := context.Background()
	prefix := fmt.Sprintf("bench%d:", time.Now().UnixNano())
	store := idemredis.New(client, idemredis.Options{Prefix: prefix})
	const n = 500
	for i := range n {
		settle(t, store, i)
	}
	total, count := int64(0), 0
	for keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator(); keys.Next(ctx); {
		bytes, err := client.MemoryUsage(ctx, keys.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		total, count = total+bytes, count+1
		client.Unlink(ctx, keys.Val())
	}
	if count != n {
		t.Fatalf("found %d keys, want %d", count, n)
	}
	logPlan(t, "Redis", float64(total)/n)
}
