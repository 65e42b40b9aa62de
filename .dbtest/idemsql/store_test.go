package idemsql_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strconv"
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
	t.Parallel()
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
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		c.Retention = 1<<63 - 1
		begin(t, store, c, idem.Claimed)
		s := finished("answer")
		s.Retention = c.Retention
		if err := store.Settle(t.Context(), c.Key, c.Token, s); err != nil {
			t.Fatal(err)
		}
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

// A row that something else has written is an error: its zero fingerprint would
// be another request's, which tells the client to give up.
func TestCorruptRow(t *testing.T) {
	t.Parallel()
	d := sqliteFile(t)
	db := d.open(t)
	db.SetMaxOpenConns(1)
	store := d.on(db, idemsql.Options{})
	c := claim("key")
	begin(t, store, c, idem.Claimed)
	execute(t, db, "PRAGMA ignore_check_constraints = ON")
	execute(t, db, "UPDATE sallyport_idem SET fingerprint = x'01', state = 3")
	if r, err := store.Begin(t.Context(), again(c)); err == nil {
		t.Errorf("Begin: got %v, want an error", r.State)
	}
	if r, _, err := store.Join(t.Context(), again(c), 0); err == nil {
		t.Errorf("Join: got %v, want an error", r.State)
	}
}

// A claim whose retention is over is gone, also while its row is there.
func TestExpiredClaimIsGone(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		store := d.on(db, idemsql.Options{})
		c := claim("key")
		begin(t, store, c, idem.Claimed)
		d.advance(t, db, 2*time.Hour)
		if err := store.Extend(t.Context(), c.Key, c.Token, time.Minute); err != idem.ErrLost {
			t.Errorf("Extend: got error %v, want ErrLost", err)
		}
		for _, s := range []idem.Settlement{finished("late"), {Retention: time.Hour}, outcomeFree} {
			if err := store.Settle(t.Context(), c.Key, c.Token, s); err != idem.ErrLost {
				t.Errorf("Settle as %v: got error %v, want ErrLost", s.Outcome, err)
			}
		}
	})
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
	t.Parallel()
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
		if err := j.Settle(t.Context(), finished("answer")); err != nil {
			t.Fatal(err)
		}
		if r := begin(t, elsewhere, again(other), idem.Done); r.Fingerprint != other.Fingerprint {
			t.Errorf("got %+v, want the fingerprint of the request that was answered", r)
		}
	})
}

// suite returns a suite for a store on one pool, whose time the test moves.
func suite(d database, db *sql.DB) idemtest.Suite {
	store := d.on(db, idemsql.Options{})
	return idemtest.Suite{
		New: func(t *testing.T) idem.Store {
			execute(t, db, "DELETE FROM sallyport_idem")
			execute(t, db, "DELETE FROM tasks")
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
	t.Parallel()
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

// With a Seal the table does not have what clients were told, in either mode,
// and who has the key is told it again.
func TestSealedReply(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		for _, join := range []bool{false, true} {
			with := func(keys string) *server {
				seal, err := idem.ParseSeal(keys)
				if err != nil {
					t.Fatal(err)
				}
				return newServer(t, d, options{Options: idem.Options{Join: join, Seal: seal}},
					func(w http.ResponseWriter, r *http.Request, s *server) {
						w.WriteHeader(http.StatusCreated)
						io.WriteString(w, "of a client")
					})
			}
			one := base64.StdEncoding.EncodeToString(make([]byte, 32))
			two := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
			s, key := with(one), strconv.FormatBool(join)
			first := s.post(key, "title")
			first.mustBe(t, 201, "")
			s.post(key, "title").mustReplay(t, first)
			with(two+","+one).post(key, "title").mustReplay(t, first)
			without := with(two)
			without.post(key, "title").mustBe(t, 409, "idempotency_response_not_retained")
			without.log.mustSay(t, "its key is not among those of the Seal")
			if n := without.log.lines(); n != 1 {
				t.Errorf("got %d lines, want one", n)
			}
			var payload []byte
			if err := s.db.QueryRow("SELECT payload FROM sallyport_idem WHERE state = 3").Scan(&payload); err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(payload, []byte("\xffsl\x01")) || bytes.Contains(payload, []byte("client")) {
				t.Errorf("the table has %q", payload)
			}
			execute(t, s.db, "DELETE FROM sallyport_idem")
		}
	})
}
