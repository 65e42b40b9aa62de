package idemsql_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

func sweep(t testing.TB, s *idemsql.Store, want int) {
	t.Helper()
	if got, err := s.Sweep(t.Context()); err != nil || got != want {
		t.Errorf("Sweep: got %d, error %v, want %d", got, err, want)
	}
}

func TestSweep(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		store := d.on(db, idemsql.Options{})
		sweep(t, store, 0)
		old, kept := claim("old"), claim("kept")
		kept.Retention = 3 * time.Hour
		begin(t, store, old, idem.Claimed)
		begin(t, store, kept, idem.Claimed)
		d.advance(t, db, 2*time.Hour)
		sweep(t, store, 1)
		sweep(t, store, 0)
		begin(t, store, again(kept), idem.Unknown)
		begin(t, store, again(old), idem.Claimed)
	})
}

// A call removes so many and no more, and those first whose time ended first.
func TestSweepIsBounded(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		store := d.on(db, idemsql.Options{})
		d.fill(t, db, 2*idemsql.SweepBatch+5)
		d.advance(t, db, 48*time.Hour)
		sweep(t, store, idemsql.SweepBatch)
		mustCount(t, db, "SELECT count(*) FROM sallyport_idem WHERE attempt <= "+strconv.Itoa(idemsql.SweepBatch), 0)
		sweep(t, store, idemsql.SweepBatch)
		sweep(t, store, 5)
		sweep(t, store, 0)
	})
}

// fill puts n settled rows into the table, numbered in the order in which they expire.
func (d database) fill(t testing.TB, db execer, n int) {
	t.Helper()
	columns := "INSERT INTO sallyport_idem (partition_hash, digest, token, fingerprint, attempt, state, lease_ends, expires_at, payload) "
	if d.conf != nil {
		execute(t, db, columns+`
			SELECT sha256('o'), sha256(n::text::bytea), '\x00', sha256('f'), n, 3, now(), now() + interval '1 day' + n * interval '1 second',
				decode(repeat('7b', 400), 'hex')
			FROM generate_series(1, `+strconv.Itoa(n)+`) AS n`)
		return
	}
	execute(t, db, "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < "+strconv.Itoa(n)+") "+columns+`
		SELECT zeroblob(32), CAST(substr(hex(randomblob(16)), 1, 32) AS BLOB), x'00', zeroblob(32), n, 3, 0, (unixepoch() + 86400 + n) * 1000000,
			zeroblob(400)
		FROM s`)
}

// Sweep neither waits for a request that reuses an expired row nor takes the row from under it.
func TestSweepWhileServing(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	store := d.on(db, idemsql.Options{})
	c := claim("reused")
	begin(t, store, c, idem.Claimed)
	begin(t, store, claim("other"), idem.Claimed)
	d.advance(t, db, 2*time.Hour)
	_, j := join(t, store, again(c), idem.Claimed)
	within(t, 5*time.Second, "Sweep", func() { sweep(t, store, 1) })
	if err := j.Settle(t.Context(), finished("answer")); err != nil {
		t.Fatal(err)
	}
	sweep(t, store, 0)
	begin(t, store, again(c), idem.Done)
}

func TestMigrate(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		store := d.on(db, idemsql.Options{})
		c := claim("key")
		begin(t, store, c, idem.Claimed)
		if err := store.Migrate(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
		begin(t, store, again(c), idem.InFlight)

		execute(t, db, "UPDATE sallyport_idem_schema SET version = 99")
		if err := store.Migrate(t.Context()); err != nil {
			t.Errorf("of a newer version: %v", err)
		}
		mustCount(t, db, "SELECT version FROM sallyport_idem_schema", 99)

		execute(t, db, "DROP TABLE sallyport_idem")
		execute(t, db, "DROP TABLE sallyport_idem_schema")
		var wg sync.WaitGroup
		for range 8 {
			store := d.on(d.open(t), idemsql.Options{})
			wg.Go(func() {
				if err := store.Migrate(t.Context()); err != nil {
					t.Errorf("several at once: %v", err)
				}
			})
		}
		wg.Wait()
		begin(t, store, c, idem.Claimed)

		execute(t, db, "DROP TABLE sallyport_idem")
		if _, err := store.Begin(t.Context(), c); err == nil {
			t.Error("Begin without a table: got no error")
		}
		for _, step := range store.Schema() {
			execute(t, db, step)
		}
		begin(t, store, c, idem.Claimed)
	})
}
