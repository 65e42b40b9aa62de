package idempgx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
)

// A relay keeps what a server answers, and may change it.
type relay struct {
	mu       sync.Mutex
	answers  []byte
	from, to []byte // what is replaced, and by what
}

type relayed struct {
	net.Conn
	*relay
}

// newRelay lets connections go through a relay.
func newRelay(c *pgx.ConnConfig) *relay {
	r, dial := &relay{}, c.DialFunc
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return relayed{conn, r}, err
	}
	return r
}

func (c relayed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return copy(b, c.change(b[:n])), err
}

func (r *relay) change(b []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, b...)
	if r.from == nil {
		return b
	}
	return bytes.ReplaceAll(b, r.from, r.to)
}

func (r *relay) replace(from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from, r.to = []byte(from), []byte(to)
}

// trips returns how often the server has said that it is ready for the next
// query, and forgets it.
func (r *relay) trips() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := bytes.Count(r.answers, []byte("Z\x00\x00\x00\x05"))
	r.answers = nil
	return n
}

// A create takes three round trips, that of the handler among them.
func TestTrips(t *testing.T) {
	var wire *relay
	pool := newPool(t, 1, func(c *pgx.ConnConfig) { wire = newRelay(c) })
	store := newStore(pool)
	for i := range 100 { // until it looks at no role any more
		_, j := join(t, store, "warm "+strconv.Itoa(i))
		mustSettle(t, j, finished)
	}
	for _, row := range []struct {
		name string
		s    idem.Settlement
		want int
	}{
		{"created", finished, 3},
		{"refused", refusal, 4},
		{"failed", idem.Settlement{Outcome: idem.OutcomeFree}, 3},
	} {
		for i := range 2 {
			wire.trips()
			tx, j := join(t, store, row.name+strconv.Itoa(i))
			execute(t, tx, "INSERT INTO tasks VALUES ('one')")
			mustSettle(t, j, row.s)
			// The first time it prepares statements.
			if got := wire.trips(); i > 0 && got != row.want {
				t.Errorf("%s: got %d round trips, want %d", row.name, got, row.want)
			}
		}
	}
	for i := range 2 {
		wire.trips()
		if r, _, err := store.Join(t.Context(), claim("created0"), 0); err != nil || r.State != idem.Done {
			t.Errorf("a repeat: got %v, error %v, want done", r.State, err)
		}
		if got := wire.trips(); i > 0 && got != 3 {
			t.Errorf("a repeat: got %d round trips, want 3", got)
		}
	}
}

// A COMMIT that the server answers with ROLLBACK is none.
func TestCommitRollsBack(t *testing.T) {
	var wire *relay
	pool := newPool(t, 1, func(c *pgx.ConnConfig) { wire = newRelay(c) })
	_, j := join(t, newStore(pool), "key")
	wire.replace("C\x00\x00\x00\x0bCOMMIT\x00", "C\x00\x00\x00\x0dROLLBACK\x00")
	if err := j.Settle(t.Context(), finished); err == nil || errors.Is(err, idem.ErrCommitUnknown) {
		t.Errorf("got error %v, want one that says that nothing was saved", err)
	}
}

// What the error of a settlement proves of the COMMIT behind it.
func TestNotReached(t *testing.T) {
	server := func(severity, code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{SeverityUnlocalized: severity, Code: code})
	}
	conn, err := pgx.ConnectConfig(t.Context(), pgtest.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())
	_, closed := conn.Exec(t.Context(), "SELECT 1")
	if !pgconn.SafeToRetry(closed) {
		t.Errorf("got error %v, want one that pgconn takes for safe to retry", closed)
	}
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"disk full":                       {server("ERROR", "53100"), true},
		"cancelled":                       {server("ERROR", "57014"), true},
		"division by zero":                {server("ERROR", "22012"), true},
		"idle session":                    {server("FATAL", "25P03"), true},
		"deadlock, and the session ended": {server("FATAL", "40P01"), true},
		"session terminated":              {server("FATAL", "57P01"), false},
		"server crashed":                  {server("PANIC", "XX000"), false},
		"a pooler lost the server":        {server("ERROR", "08P01"), false},
		"a pooler without severity":       {server("", "58000"), false},
		"not prepared":                    {pgx.ErrPreprocessingBatch{}, true},
		"broken":                          {errors.New("broken pipe"), false},
		"deadline":                        {context.DeadlineExceeded, false},
		"closed while it was read":        {closed, false},
	} {
		if got := idempgx.NotReached(row.err); got != row.want {
			t.Errorf("%s (%v): got %t, want %t", name, row.err, got, row.want)
		}
	}
}

// A statement of the handler whose context ends costs the connection. Nothing is
// saved, and that is known. Only a failure needs nothing to be saved.
func TestStatementIsCancelled(t *testing.T) {
	pool := newPool(t, 2, nil)
	store := newStore(pool)
	for name, s := range map[string]idem.Settlement{
		"created": finished, "refused": refusal, "failed": {Outcome: idem.OutcomeFree},
	} {
		tx, j := join(t, store, name)
		execute(t, tx, "INSERT INTO tasks VALUES ('one')")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := tx.Exec(ctx, "SELECT pg_sleep(600)"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got error %v, want that of the deadline", name, err)
		}
		err := j.Settle(t.Context(), s)
		if (err == nil) == (s.Outcome == idem.OutcomeDone) || errors.Is(err, idem.ErrCommitUnknown) {
			t.Errorf("%s: got error %v, want one that says that nothing was saved", name, err)
		}
	}
	mustCount(t, pool, "SELECT count(*) FROM tasks", 0)
	for deadline := time.Now().Add(time.Minute); pool.Stat().AcquiredConns() > 0; { // closed in the background
		if time.Now().After(deadline) {
			t.Fatal("a connection is still in use")
		}
	}
}

// Rows that a handler has left open keep its reply from being saved, and the
// connection from the next request. It is closed when Settle returns, and not
// later beside a handler that goes on to read them.
func TestRowsLeftOpen(t *testing.T) {
	pool := newPool(t, 1, nil)
	store := newStore(pool)
	for i := range 10 {
		for _, s := range []idem.Settlement{finished, {Outcome: idem.OutcomeFree}} {
			// The server may hold the key until it sees that nobody reads.
			tx, j := join(t, store, fmt.Sprint("key ", i, s.Outcome))
			conn := tx.Conn()
			rows, err := tx.Query(t.Context(), "SELECT repeat('x', 1000) FROM generate_series(1, 10000)")
			if err != nil {
				t.Fatal(err)
			}
			err = j.Settle(t.Context(), s)
			if errors.Is(err, idem.ErrBroken) != (s.Outcome == idem.OutcomeDone) {
				t.Errorf("Settle as %v: got error %v; ErrBroken is for a reply", s.Outcome, err)
			}
			if !conn.IsClosed() {
				t.Error("the connection is open")
			}
			for rows.Next() {
			}
			if rows.Err() == nil {
				t.Error("all rows were read")
			}
		}
	}
	tx, j := join(t, store, "the next")
	execute(t, tx, "INSERT INTO tasks VALUES ('one')")
	mustSettle(t, j, finished)
	mustCount(t, pool, "SELECT count(*) FROM tasks", 1)
}
