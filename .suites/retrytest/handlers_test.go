package retrytest_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"io"
	"net/http"
	"sync"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
)

type plan struct {
	options idem.Options
	says    string
	handler handler
}

var wrongs = map[string]plan{
	"db beside the transaction": {joined, "idemsql.Tx(r.Context())",
		func(h host, w http.ResponseWriter, r *http.Request) {
			if _, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()); err != nil { // here: db beside the transaction
				fail(w)
				return
			}
			made(w)
		}},
	"charge before the row": {joined, "outbox", func(h host, w http.ResponseWriter, r *http.Request) {
		tx, _ := idemsql.Tx(r.Context())
		if err := h.charge(""); err != nil { // here: charge before the row
			fail(w)
			return
		}
		if _, err := tx.ExecContext(r.Context(), h.insert, rand.Text()); err != nil {
			fail(w)
			return
		}
		made(w)
	}},
	"goroutine left behind": {joined, "the transaction of the request",
		func(h host, w http.ResponseWriter, r *http.Request) {
			go func() {
				_, _ = h.db.Exec(h.insert, rand.Text()) // here: goroutine left behind
			}()
			made(w)
		}},
	"key freed after a write": {leases, "Execution.Free", func(h host, w http.ResponseWriter, r *http.Request) {
		_, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()) // here: key freed after a write
		if err == nil {
			err = h.charge(r.Header.Get("Idempotency-Key"))
		}
		if err != nil {
			middleware.ExecutionFrom(r.Context()).Free()
			fail(w)
			return
		}
		made(w)
	}},
	"context ignored": {idem.Options{Reexecute: true}, "the context of the request",
		func(h host, w http.ResponseWriter, r *http.Request) {
			id := r.Header.Get("Idempotency-Key")
			if middleware.ExecutionFrom(r.Context()).Attempt() > 1 {
				_, _ = h.db.ExecContext(r.Context(), "DELETE FROM parcels WHERE id LIKE $1", id+"%")
			}
			_, err := h.db.ExecContext(context.Background(), h.insert, id+rand.Text()) // here: context ignored
			if err != nil {
				fail(w)
				return
			}
			made(w)
		}},
	"transaction of a second pool": {joined, "idemsql.Tx(r.Context())",
		func(h host, w http.ResponseWriter, r *http.Request) {
			tx, err := h.other.BeginTx(r.Context(), nil)
			if err != nil {
				fail(w)
				return
			}
			defer tx.Rollback()
			_, err = tx.ExecContext(r.Context(), h.insert, rand.Text()) // here: transaction of a second pool
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				fail(w)
				return
			}
			made(w)
		}},
	"error of Exec swallowed": {leases, "answer 500", func(h host, w http.ResponseWriter, r *http.Request) {
		h.db.ExecContext(r.Context(), h.insert, rand.Text()) // here: error of Exec swallowed
		made(w)
	}},
	"write after the response": {leases, "nothing after the response",
		func(h host, w http.ResponseWriter, r *http.Request) {
			made(w)
			_, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()) // here: write after the response
			if err != nil {
				fail(w)
			}
		}},
	"retries of its own": {leases, "within a request", func(h host, w http.ResponseWriter, r *http.Request) {
		for range 3 {
			if _, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()); err == nil { // here: retries of its own
				made(w)
				return
			}
		}
		fail(w)
	}},
	"event before the commit": {joined, "outbox", func(h host, w http.ResponseWriter, r *http.Request) {
		tx, _ := idemsql.Tx(r.Context())
		if _, err := tx.ExecContext(r.Context(), h.insert, rand.Text()); err != nil {
			fail(w)
			return
		}
		if err := h.charge(""); err != nil { // here: event before the commit
			fail(w)
			return
		}
		made(w)
	}},
}

// attacks are found too, with less to say of some.
var attacks = map[string]plan{
	"charge that is no step": {joined, "Process.Conn",
		func(h host, w http.ResponseWriter, r *http.Request) {
			tx, _ := idemsql.Tx(r.Context())
			_ = h.charges.charge("")
			if _, err := tx.ExecContext(r.Context(), h.insert, rand.Text()); err != nil { // here: charge that is no step
				fail(w)
				return
			}
			made(w)
		}},
	"run again without a look": {idem.Options{Reexecute: true}, "joined mode",
		func(h host, w http.ResponseWriter, r *http.Request) {
			if _, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()); err != nil { // here: run again without a look
				fail(w)
				return
			}
			made(w)
		}},
	"part by the pool, and 409": {joined, "idemsql.Tx(r.Context())",
		func(h host, w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			insert := h.insert + " ON CONFLICT DO NOTHING"
			added, err := h.db.ExecContext(r.Context(), insert, body) // here: part by the pool, and 409
			if err != nil {
				fail(w)
				return
			}
			if n, _ := added.RowsAffected(); n == 0 {
				w.WriteHeader(http.StatusConflict)
				return
			}
			tx, _ := idemsql.Tx(r.Context())
			if _, err := tx.ExecContext(r.Context(), h.insert, rand.Text()); err != nil {
				fail(w)
				return
			}
			made(w)
		}},
	"conflict with its own row": {joined, "idemsql.Tx(r.Context())",
		func(h host, w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			insert := h.insert + " ON CONFLICT DO NOTHING"
			added, err := h.db.ExecContext(r.Context(), insert, body) // here: conflict with its own row
			if err != nil {
				fail(w)
				return
			}
			if n, _ := added.RowsAffected(); n == 0 {
				w.WriteHeader(http.StatusConflict)
				return
			}
			made(w)
		}},
	"error of COMMIT swallowed": {leases, "answer 500",
		func(h host, w http.ResponseWriter, r *http.Request) {
			tx, err := h.db.BeginTx(r.Context(), nil)
			if err != nil {
				fail(w)
				return
			}
			defer tx.Rollback()
			if _, err = tx.ExecContext(r.Context(), h.insert, rand.Text()); err != nil {
				fail(w)
				return
			}
			tx.Commit() // here: error of COMMIT swallowed
			made(w)
		}},
}

// asked is a cache that all processes have.
var asked sync.Map

var rights = map[string]plan{
	"joined": {joined, "", func(h host, w http.ResponseWriter, r *http.Request) {
		tx, _ := idemsql.Tx(r.Context())
		if _, err := tx.ExecContext(r.Context(), h.insert, rand.Text()); err != nil {
			fail(w)
			return
		}
		made(w)
	}},
	"joined, reads beside and prepares": {joined, "", func(h host, w http.ResponseWriter, r *http.Request) {
		var n int
		err := h.db.QueryRowContext(r.Context(), "SELECT count(*) FROM parcels").Scan(&n)
		tx, _ := idemsql.Tx(r.Context())
		if err == nil {
			err = tx.QueryRowContext(r.Context(), h.insert+" RETURNING 1", rand.Text()).Scan(&n)
		}
		var s *sql.Stmt
		if err == nil {
			s, err = tx.PrepareContext(r.Context(), h.insert)
		}
		if err == nil {
			defer s.Close()
			_, err = s.ExecContext(r.Context(), rand.Text())
		}
		if err != nil {
			fail(w)
			return
		}
		made(w)
	}},
	"leases, one row": {leases, "", func(h host, w http.ResponseWriter, r *http.Request) {
		if _, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()); err != nil {
			fail(w)
			return
		}
		made(w)
	}},
	"unique key and a loop": {idem.Options{Reexecute: true}, "", func(h host, w http.ResponseWriter, r *http.Request) {
		for range 3 {
			_, err := h.db.ExecContext(r.Context(), h.insert+" ON CONFLICT DO NOTHING", r.Header.Get("Idempotency-Key"))
			if err == nil {
				made(w)
				return
			}
		}
		fail(w)
	}},
	"charge with the key": {joined, "", func(h host, w http.ResponseWriter, r *http.Request) {
		tx, _ := idemsql.Tx(r.Context())
		err := h.charge(r.Header.Get("Idempotency-Key"))
		if err == nil {
			_, err = tx.ExecContext(r.Context(), h.insert, rand.Text())
		}
		if err != nil {
			fail(w)
			return
		}
		made(w)
	}},
	"a cache of all processes, and a goroutine that does not end": {joined, "",
		func(h host, w http.ResponseWriter, r *http.Request) {
			tx, _ := idemsql.Tx(r.Context())
			if _, known := asked.LoadOrStore(h.charges, true); !known {
				var n int
				if err := tx.QueryRowContext(r.Context(), "SELECT 1").Scan(&n); err != nil {
					fail(w)
					return
				}
			}
			go func() { select {} }()
			if _, err := tx.ExecContext(r.Context(), h.insert, rand.Text()); err != nil {
				fail(w)
				return
			}
			made(w)
		}},
	"stream": {joined, "", func(h host, w http.ResponseWriter, r *http.Request) {
		tx, _ := idemsql.Tx(r.Context())
		if _, err := tx.ExecContext(r.Context(), h.insert, rand.Text()); err != nil {
			fail(w)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			io.WriteString(w, "data: a parcel\n\n")
			http.NewResponseController(w).Flush()
		}
	}},
}
