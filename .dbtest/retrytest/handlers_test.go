package retrytest_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
)

// plan is a handler, and what its accusation says.
type plan struct {
	options idem.Options
	says    string
	handler handler
}

// handler creates a parcel. Its client gets a 201, a 500 for an error, or what
// the handler has written itself if the error is errAnswered.
type handler func(c call) error

// call is a request of a server under test.
type call struct {
	host
	w http.ResponseWriter
	r *http.Request
}

var errAnswered = errors.New("answered")

const unlessKnown = " ON CONFLICT DO NOTHING"

func (create handler) serve(h host, w http.ResponseWriter, r *http.Request) {
	if err := create(call{h, w, r}); err == nil {
		made(w)
	} else if err != errAnswered {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func made(w http.ResponseWriter) {
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, "a parcel to Lisbon")
}

// insertJoined inserts a parcel by the transaction of the request.
func (c call) insertJoined() error {
	tx, _ := idemsql.Tx(c.r.Context())
	_, err := tx.ExecContext(c.r.Context(), c.insert, rand.Text())
	return err
}

var wrongs = map[string]plan{
	"db beside the transaction": {joined, "idemsql.Tx(r.Context())", func(c call) error {
		_, err := c.db.ExecContext(c.r.Context(), c.insert, rand.Text()) // here: db beside the transaction
		return err
	}},
	"charge before the row": {joined, "outbox", func(c call) error {
		if err := c.charge(""); err != nil { // here: charge before the row
			return err
		}
		return c.insertJoined()
	}},
	"goroutine left behind": {joined, "the transaction of the request", func(c call) error {
		go func() {
			_, _ = c.db.Exec(c.insert, rand.Text()) // here: goroutine left behind
		}()
		return nil
	}},
	"key freed after a write": {leases, "Execution.Free", func(c call) error {
		_, err := c.db.ExecContext(c.r.Context(), c.insert, rand.Text()) // here: key freed after a write
		if err == nil {
			err = c.charge(c.r.Header.Get("Idempotency-Key"))
		}
		if err != nil {
			middleware.ExecutionFrom(c.r.Context()).Free()
		}
		return err
	}},
	"context ignored": {idem.Options{Reexecute: true}, "the context of the request", func(c call) error {
		id := c.r.Header.Get("Idempotency-Key")
		if middleware.ExecutionFrom(c.r.Context()).Attempt() > 1 {
			_, _ = c.db.ExecContext(c.r.Context(), "DELETE FROM parcels WHERE id LIKE $1", id+"%")
		}
		_, err := c.db.ExecContext(context.Background(), c.insert, id+rand.Text()) // here: context ignored
		return err
	}},
	"transaction of a second pool": {joined, "idemsql.Tx(r.Context())", func(c call) error {
		tx, err := c.other.BeginTx(c.r.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err = tx.ExecContext(c.r.Context(), c.insert, rand.Text()); err != nil { // here: transaction of a second pool
			return err
		}
		return tx.Commit()
	}},
	"error of Exec swallowed": {leases, "answer 500", func(c call) error {
		c.db.ExecContext(c.r.Context(), c.insert, rand.Text()) // here: error of Exec swallowed
		return nil
	}},
	"write after the response": {leases, "nothing after the response", func(c call) error {
		made(c.w)
		if _, err := c.db.ExecContext(c.r.Context(), c.insert, rand.Text()); err != nil { // here: write after the response
			return err
		}
		return errAnswered
	}},
	"retries of its own": {leases, "within a request", func(c call) (err error) {
		for range 3 {
			if _, err = c.db.ExecContext(c.r.Context(), c.insert, rand.Text()); err == nil { // here: retries of its own
				return nil
			}
		}
		return err
	}},
	"event before the commit": {joined, "outbox", func(c call) error {
		if err := c.insertJoined(); err != nil {
			return err
		}
		return c.charge("") // here: event before the commit
	}},
}

// attacks are found too, with less to say of some.
var attacks = map[string]plan{
	"charge that is no step": {joined, "Process.Conn", func(c call) error {
		tx, _ := idemsql.Tx(c.r.Context())
		_ = c.charges.Charge("")
		_, err := tx.ExecContext(c.r.Context(), c.insert, rand.Text()) // here: charge that is no step
		return err
	}},
	"run again without a look": {idem.Options{Reexecute: true}, "joined mode", func(c call) error {
		_, err := c.db.ExecContext(c.r.Context(), c.insert, rand.Text()) // here: run again without a look
		return err
	}},
	"part by the pool, and 409": {joined, "idemsql.Tx(r.Context())", func(c call) error {
		body, _ := io.ReadAll(c.r.Body)
		added, err := c.db.ExecContext(c.r.Context(), c.insert+unlessKnown, body) // here: part by the pool, and 409
		if err != nil {
			return err
		}
		if n, _ := added.RowsAffected(); n == 0 {
			c.w.WriteHeader(http.StatusConflict)
			return errAnswered
		}
		return c.insertJoined()
	}},
	"conflict with its own row": {joined, "idemsql.Tx(r.Context())", func(c call) error {
		body, _ := io.ReadAll(c.r.Body)
		added, err := c.db.ExecContext(c.r.Context(), c.insert+unlessKnown, body) // here: conflict with its own row
		if err != nil {
			return err
		}
		if n, _ := added.RowsAffected(); n == 0 {
			c.w.WriteHeader(http.StatusConflict)
			return errAnswered
		}
		return nil
	}},
	"error of COMMIT swallowed": {leases, "answer 500", func(c call) error {
		tx, err := c.db.BeginTx(c.r.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err = tx.ExecContext(c.r.Context(), c.insert, rand.Text()); err != nil {
			return err
		}
		tx.Commit() // here: error of COMMIT swallowed
		return nil
	}},
}

// failing are wrong also without a fault.
var failing = map[string]plan{
	"pool beside the transaction": {joined, "database is locked", func(c call) error {
		if err := c.insertJoined(); err != nil {
			return err
		}
		_, err := c.replies.ExecContext(c.r.Context(), c.insert, rand.Text()) // here: pool beside the transaction
		return err
	}},
	"transaction beside the transaction": {joined, "idemsql.Tx(r.Context())", func(c call) error {
		_, err := c.replies.ExecContext(c.r.Context(), "BEGIN IMMEDIATE") // here: transaction beside the transaction
		return err
	}},
}

// waiting has no step to show: the pool has no connection for it.
var waiting = map[string]plan{
	"pool of one connection": {joined, "all connections of a pool were in use", func(c call) error {
		c.replies.SetMaxOpenConns(1)
		ctx, cancel := context.WithTimeout(c.r.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.replies.ExecContext(ctx, c.insert, rand.Text())
		return err
	}},
}

// asked is a cache that all processes have.
var asked sync.Map

var rights = map[string]plan{
	"joined": {joined, "", func(c call) error { return c.insertJoined() }},
	"joined, reads beside and prepares": {joined, "", func(c call) error {
		var n int
		err := c.db.QueryRowContext(c.r.Context(), "SELECT count(*) FROM parcels").Scan(&n)
		tx, _ := idemsql.Tx(c.r.Context())
		if err == nil {
			err = tx.QueryRowContext(c.r.Context(), c.insert+" RETURNING 1", rand.Text()).Scan(&n)
		}
		var s *sql.Stmt
		if err == nil {
			s, err = tx.PrepareContext(c.r.Context(), c.insert)
		}
		if err == nil {
			defer s.Close()
			_, err = s.ExecContext(c.r.Context(), rand.Text())
		}
		return err
	}},
	"leases, one row": {leases, "", func(c call) error {
		_, err := c.db.ExecContext(c.r.Context(), c.insert, rand.Text())
		return err
	}},
	"unique key and a loop": {idem.Options{Reexecute: true}, "", func(c call) (err error) {
		for range 3 {
			key := c.r.Header.Get("Idempotency-Key")
			if _, err = c.db.ExecContext(c.r.Context(), c.insert+unlessKnown, key); err == nil {
				return nil
			}
		}
		return err
	}},
	"charge with the key": {joined, "", func(c call) error {
		if err := c.charge(c.r.Header.Get("Idempotency-Key")); err != nil {
			return err
		}
		return c.insertJoined()
	}},
	"a cache of all processes, and a goroutine that does not end": {joined, "", func(c call) error {
		tx, _ := idemsql.Tx(c.r.Context())
		if _, known := asked.LoadOrStore(c.charges, true); !known {
			var n int
			if err := tx.QueryRowContext(c.r.Context(), "SELECT 1").Scan(&n); err != nil {
				return err
			}
		}
		go func() { <-c.over }()
		return c.insertJoined()
	}},
	"early hints": {joined, "", func(c call) error {
		c.w.WriteHeader(http.StatusEarlyHints)
		return c.insertJoined()
	}},
	"stream": {joined, "", func(c call) error {
		if err := c.insertJoined(); err != nil {
			return err
		}
		c.w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			io.WriteString(c.w, "data: a parcel\n\n")
			http.NewResponseController(c.w).Flush()
		}
		return errAnswered
	}},
}
