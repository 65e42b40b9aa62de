package idemsql_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// refusal is the settlement of a joined request that answered with a 4xx.
var refusal = idem.Settlement{Outcome: idem.Finished, Payload: []byte("refused"), Retention: time.Hour, Undo: true}

// isKeep reports whether a statement stores a reply after a rollback: it is the
// only one that stores one without having claimed the key.
func isKeep(statement string) bool {
	return strings.Contains(statement, "INSERT") && strings.Contains(statement, "1, 3,")
}

// Between the rollback and the reply another request may take the key. It then
// owns it, and nothing of the first one remains.
func TestTakenBeforeKept(t *testing.T) {
	d := postgres(t)
	other := idemsql.Postgres(d.open(t), idemsql.Options{})
	for name, take := range map[string]func(t *testing.T, c idem.Claim) (end func()){
		"joined": func(t *testing.T, c idem.Claim) func() {
			_, j := join(t, other, c, idem.Claimed)
			return func() {
				if err := j.Settle(t.Context(), finished("of the other")); err != nil {
					t.Error(err)
				}
			}
		},
		"with a lease": func(t *testing.T, c idem.Claim) func() {
			begin(t, other, c, idem.Claimed)
			return func() {
				if err := other.Settle(t.Context(), c.Key, c.Token, finished("of the other")); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(name)
			var end func()
			db := d.watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
				if isKeep(statement) {
					end = take(t, again(c))
				}
				return nil
			})
			store := idemsql.Postgres(db, idemsql.Options{})
			_, j := join(t, store, c, idem.Claimed)
			if err := j.Settle(t.Context(), refusal); err == nil || errors.Is(err, idem.ErrCommitUnknown) {
				t.Errorf("Settle: got error %v, want one that says that nothing was kept", err)
			}
			begin(t, store, again(c), idem.InFlight)
			end()
			if r := begin(t, store, again(c), idem.Done); string(r.Payload) != "of the other" {
				t.Errorf("got the payload %q, want the other's", r.Payload)
			}
			if n := db.Stats().InUse; n != 0 {
				t.Errorf("%d connections are in use afterwards, want 0", n)
			}
		})
	}
}

// When the connection breaks as the reply is stored, nobody knows.
func TestKeepUnknown(t *testing.T) {
	d := postgres(t)
	broken := errors.New("broken")
	db := d.watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
		if isKeep(statement) {
			return broken
		}
		return nil
	})
	store := idemsql.Postgres(db, idemsql.Options{})
	c := claim("key")
	_, j := join(t, store, c, idem.Claimed)
	if err := j.Settle(t.Context(), refusal); !errors.Is(err, idem.ErrCommitUnknown) || !errors.Is(err, broken) {
		t.Errorf("Settle: got error %v, want ErrCommitUnknown and the driver's", err)
	}
	_, j = join(t, store, again(c), idem.Claimed)
	j.Settle(t.Context(), notStarted)
}

// A handler that commits by a statement of its own and then answers with a 4xx
// leaves a claim, which its reply does not replace: its rows stand.
func TestKeepAfterHandlerCommits(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	store := idemsql.Postgres(db, idemsql.Options{})
	c := claim("key")
	_, j := join(t, store, c, idem.Claimed)
	tx, _ := idemsql.Tx(j.Context(t.Context()))
	if _, err := insert(t.Context(), tx, "title"); err != nil {
		t.Fatal(err)
	}
	execute(t, tx, "COMMIT")
	if err := j.Settle(t.Context(), refusal); err == nil {
		t.Error("Settle: got no error")
	}
	mustCount(t, db, "SELECT count(*) FROM tasks", 1)
	begin(t, store, again(c), idem.InFlight)
}

// A second attempt that is refused replaces the unknown outcome of the first.
func TestKeepTakenOver(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		begin(t, store, c, idem.Claimed)
		if err := store.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
		second := again(c)
		second.Reexecute = true
		r, j := join(t, store, second, idem.Claimed)
		if r.Attempt != 2 {
			t.Errorf("got attempt %d, want 2", r.Attempt)
		}
		if err := j.Settle(t.Context(), refusal); err != nil {
			t.Error(err)
		}
		if r := begin(t, store, again(c), idem.Done); string(r.Payload) != "refused" {
			t.Errorf("got the payload %q, want the refusal", r.Payload)
		}
	})
}

// Two keys can share the number of a lock. The second is told that it is in
// flight until the first has ended, and then has a claim of its own.
func TestKeysThatShareALock(t *testing.T) {
	d := postgres(t)
	store := idemsql.Postgres(d.open(t), idemsql.Options{})
	a, b := claim("a"), claim("b")
	copy(b.Key[:4], a.Key[:4])
	_, j := join(t, store, a, idem.Claimed)
	if r, _ := join(t, store, b, idem.InFlight); r.Fingerprint != (idem.Fingerprint{}) {
		t.Errorf("got the fingerprint %x, want none: it is another key's", r.Fingerprint)
	}
	begin(t, store, again(b), idem.InFlight)
	if err := j.Settle(t.Context(), finished("of a")); err != nil {
		t.Fatal(err)
	}
	_, j = join(t, store, again(b), idem.Claimed)
	if err := j.Settle(t.Context(), finished("of b")); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[idem.Claim]string{a: "of a", b: "of b"} {
		if r := begin(t, store, again(c), idem.Done); string(r.Payload) != want {
			t.Errorf("got the payload %q, want %q", r.Payload, want)
		}
	}
}

// A reply may be empty.
func TestKeepEmpty(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		_, j := join(t, store, c, idem.Claimed)
		empty := refusal
		empty.Payload = nil
		if err := j.Settle(t.Context(), empty); err != nil {
			t.Fatal(err)
		}
		if r := begin(t, store, again(c), idem.Done); len(r.Payload) != 0 {
			t.Errorf("got the payload %q, want none", r.Payload)
		}
	})
}

// The context of Settle bounds all of it.
func TestKeepWithinContext(t *testing.T) {
	d := postgres(t)
	ctx, cancel := context.WithCancel(t.Context())
	db := d.watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
		if statement == "ROLLBACK" {
			cancel()
		}
		return nil
	})
	store := idemsql.Postgres(db, idemsql.Options{})
	c := claim("key")
	_, j := join(t, store, c, idem.Claimed)
	if err := j.Settle(ctx, refusal); !errors.Is(err, context.Canceled) || errors.Is(err, idem.ErrCommitUnknown) {
		t.Errorf("Settle: got error %v, want one that says that nothing was kept", err)
	}
	within(t, "freeing the key", func() { // the server may hear of it by the end of the connection
		for {
			if r, err := store.Begin(t.Context(), again(c)); err != nil || r.State == idem.Claimed {
				return
			}
		}
	})
}
