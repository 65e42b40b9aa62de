package idemsql_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// The lease ends by the database's clock: no time ever travels to it.
func TestDatabaseClock(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("long")
		c.Lease = 2 * patience
		begun := time.Now()
		begin(t, store, c, idem.Claimed)
		left := begin(t, store, again(c), idem.InProgress).RetryAfter
		if spent := time.Since(begun); left > c.Lease || left < c.Lease-spent-10*time.Millisecond {
			t.Errorf("got %v left of a lease of %v after %v", left, c.Lease, spent)
		}
		c = claim("short")
		c.Lease = 300 * time.Millisecond
		begun = time.Now()
		begin(t, store, c, idem.Claimed)
		granted := time.Now()
		for {
			asked := time.Since(granted)
			r, err := store.Begin(t.Context(), again(c))
			answered := time.Since(begun)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case r.State == idem.Unknown && answered < c.Lease-10*time.Millisecond:
				t.Fatalf("the lease of %v had lapsed after %v", c.Lease, answered)
			case r.State == idem.Unknown:
				return
			case asked > c.Lease+10*time.Millisecond:
				t.Fatalf("the lease of %v had not lapsed after %v", c.Lease, asked)
			}
		}
	})
}

// A retention without end is one.
func TestLongestRetention(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		c.Retention = 1<<63 - 1
		begin(t, store, c, idem.Claimed)
		s := finished("answer")
		s.Retention = c.Retention
		mustSettle(t, store, c, s)
		begin(t, store, again(c), idem.Done)
	})
}

func TestMalformedCalls(t *testing.T) {
	t.Parallel()
	store := idemsql.SQLite(sqliteFile(t).open(t), idemsql.Options{})
	short, none := claim("key"), claim("key")
	short.Retention, none.Lease = time.Second, 0
	for _, c := range []idem.Claim{short, none} {
		if _, err := store.Begin(t.Context(), c); err == nil {
			t.Errorf("Begin with a lease of %v and a retention of %v: got no error", c.Lease, c.Retention)
		}
		if _, _, err := store.Join(t.Context(), c, 0); err == nil {
			t.Errorf("Join with a lease of %v and a retention of %v: got no error", c.Lease, c.Retention)
		}
	}
	c := claim("key")
	begin(t, store, c, idem.Claimed)
	if err := store.Extend(t.Context(), c.Key, c.Token, 0); err == nil {
		t.Error("Extend by nothing: got no error")
	}
	for _, s := range []idem.Settlement{{Outcome: idem.OutcomeDone}, {Outcome: 9, Retention: time.Hour}} {
		if err := store.Settle(t.Context(), c.Key, c.Token, s); err == nil {
			t.Errorf("Settle as %v: got no error", s)
		}
	}
	begin(t, store, again(c), idem.InProgress)
}

// Who joins while another writes waits for that, and is not refused because
// what it saw before has changed.
func TestJoinWaitsForWriter(t *testing.T) {
	t.Parallel()
	d := sqliteFile(t)
	store := d.on(d.open(t), idemsql.Options{})
	writer, err := d.open(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	execute(t, writer, "BEGIN IMMEDIATE")
	execute(t, writer, "INSERT INTO tasks (id, title) VALUES ('other', 'title')")
	settled := make(chan error)
	go func() {
		_, j, err := store.Join(t.Context(), claim("key"), 0)
		if err == nil {
			err = j.Settle(t.Context(), finished("answer"))
		}
		settled <- err
	}()
	select {
	case err := <-settled:
		t.Fatalf("Join did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	execute(t, writer, "COMMIT")
	if err := <-settled; err != nil {
		t.Error(err)
	}
}

// While a transaction takes an expired or unknown row over, nobody is told the
// fingerprint of the request that the row was for.
func TestJoinOverOldRow(t *testing.T) {
	inServers(t, func(t *testing.T, d database) {
		db := d.open(t)
		store, elsewhere := d.on(db, idemsql.Options{}), d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		begin(t, store, c, idem.Claimed)
		d.advance(t, db, 2*time.Hour)
		other := again(c)
		other.Fingerprint = [32]byte{2}
		_, j := join(t, store, other, idem.Claimed)
		joined, _ := join(t, elsewhere, again(other), idem.InProgress)
		leased := begin(t, elsewhere, again(other), idem.InProgress)
		for _, r := range []idem.Record{joined, leased} {
			if r.Fingerprint == c.Fingerprint || r.RetryAfter < 0 {
				t.Errorf("got %+v, want nothing of the expired request", r)
			}
		}
		mustEnd(t, j, finished("answer"))
		if r := begin(t, elsewhere, again(other), idem.Done); r.Fingerprint != other.Fingerprint {
			t.Errorf("got %+v, want the fingerprint of the request that was answered", r)
		}
	})
}

// suite returns a suite for a store on one pool, whose time the test moves.
func suite(d database, db *sql.DB) idemtest.Suite {
	store := d.on(db, idemsql.Options{KeepCharges: true})
	return idemtest.Suite{
		New: func(t *testing.T) idem.Store {
			for _, table := range []string{"sallyport_idem", "sallyport_usage", "sallyport_used WHERE day > 1", "tasks"} {
				execute(t, db, "DELETE FROM "+table)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var adds sync.WaitGroup
			adds.Go(func() { addUp(ctx, store) })
			t.Cleanup(adds.Wait)
			t.Cleanup(cancel)
			return store
		},
		Advance: func(t *testing.T, _ idem.Store, by time.Duration) { d.advance(t, db, by) },
		Write: func(ctx context.Context, row string) error {
			tx, ok := inTx(ctx)
			if !ok {
				return errors.New("the context carries no transaction")
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO tasks (id, title) VALUES ('"+row+"', 'title')")
			return err
		},
		Rows: func(t *testing.T, _ idem.Store) (rows []string) {
			found, err := db.QueryContext(t.Context(), "SELECT id FROM tasks")
			if err != nil {
				t.Fatal(err)
			}
			defer found.Close()
			for found.Next() {
				var row string
				if err := found.Scan(&row); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, row)
			}
			if err := found.Err(); err != nil {
				t.Fatal(err)
			}
			return rows
		},
	}
}

func TestSuite(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		try := func(name string, d database) {
			t.Run(name, func(t *testing.T) { suite(d, d.open(t)).Run(t) })
		}
		try("plain", d)
		t.Run("one connection", func(t *testing.T) {
			s := suite(d, d.of(1).open(t))
			s.Write, s.Rows = nil, nil // a transaction needs a connection of its own
			s.Run(t)
		})
		if d.conf == nil {
			return
		}
		for _, level := range []string{"repeatable read", "serializable"} { // defaults of a server or a role
			try(level, d.with("default_transaction_isolation", level))
		}
		try("describe exec", d.mode(pgx.QueryExecModeDescribeExec))
		d.conf = pgtest.PgBouncer(t, d.conf) // gives each transaction another connection
		for _, mode := range poolerModes {
			try("PgBouncer, "+mode.String(), d.mode(mode))
		}
	})
}
