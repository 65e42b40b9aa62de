package retrytest_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"sync"

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
// the handler has written itself if the error is answered.
type handler func(h host, w http.ResponseWriter, r *http.Request) error

var answered = errors.New("answered")

func (create handler) serve(h host, w http.ResponseWriter, r *http.Request) {
	if err := create(h, w, r); err == nil {
		made(w)
	} else if err != answered {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func made(w http.ResponseWriter) {
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, "a parcel to Lisbon")
}

// insertJoined inserts a parcel by the transaction of the request.
func (h host) insertJoined(r *http.Request) error {
	tx, _ := idemsql.Tx(r.Context())
	_, err := tx.ExecContext(r.Context(), h.insert, rand.Text())
	return err
}

var wrongs = map[string]plan{
	"db beside the transaction": {joined, "idemsql.Tx(r.Context())",
		func(h host, _ http.ResponseWriter, r *http.Request) error {
			_, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()) // here: db beside the transaction
			return err
		}},
	"charge before the row": {joined, "outbox", func(h host, _ http.ResponseWriter, r *http.Request) error {
		if err := h.charge(""); err != nil { // here: charge before the row
			return err
		}
		return h.insertJoined(r)
	}},
	"goroutine left behind": {joined, "the transaction of the request",
		func(h host, _ http.ResponseWriter, _ *http.Request) error {
			go func() {
				_, _ = h.db.Exec(h.insert, rand.Text()) // here: goroutine left behind
			}()
			return nil
		}},
	"key freed after a write": {leases, "Execution.Free", func(h host, _ http.ResponseWriter, r *http.Request) error {
		_, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()) // here: key freed after a write
		if err == nil {
			err = h.charge(r.Header.Get("Idempotency-Key"))
		}
		if err != nil {
			middleware.ExecutionFrom(r.Context()).Free()
		}
		return err
	}},
	"context ignored": {idem.Options{Reexecute: true}, "the context of the request",
		func(h host, _ http.ResponseWriter, r *http.Request) error {
			id := r.Header.Get("Idempotency-Key")
			if middleware.ExecutionFrom(r.Context()).Attempt() > 1 {
				_, _ = h.db.ExecContext(r.Context(), "DELETE FROM parcels WHERE id LIKE $1", id+"%")
			}
			_, err := h.db.ExecContext(context.Background(), h.insert, id+rand.Text()) // here: context ignored
			return err
		}},
	"transaction of a second pool": {joined, "idemsql.Tx(r.Context())",
		func(h host, _ http.ResponseWriter, r *http.Request) error {
			tx, err := h.other.BeginTx(r.Context(), nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			_, err = tx.ExecContext(r.Context(), h.insert, rand.Text()) // here: transaction of a second pool
			if err != nil {
				return err
			}
			return tx.Commit()
		}},
	"error of Exec swallowed": {leases, "answer 500", func(h host, _ http.ResponseWriter, r *http.Request) error {
		h.db.ExecContext(r.Context(), h.insert, rand.Text()) // here: error of Exec swallowed
		return nil
	}},
	"write after the response": {leases, "nothing after the response",
		func(h host, w http.ResponseWriter, r *http.Request) error {
			made(w)
			_, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()) // here: write after the response
			if err != nil {
				return err
			}
			return answered
		}},
	"retries of its own": {leases, "within a request", func(h host, _ http.ResponseWriter, r *http.Request) (err error) {
		for range 3 {
			if _, err = h.db.ExecContext(r.Context(), h.insert, rand.Text()); err == nil { // here: retries of its own
				return nil
			}
		}
		return err
	}},
	"event before the commit": {joined, "outbox", func(h host, _ http.ResponseWriter, r *http.Request) error {
		if err := h.insertJoined(r); err != nil {
			return err
		}
		return h.charge("") // here: event before the commit
	}},
}

// attacks are found too, with less to say of some.
var attacks = map[string]plan{
	"charge that is no step": {joined, "Process.Conn", func(h host, _ http.ResponseWriter, r *http.Request) error {
		tx, _ := idemsql.Tx(r.Context())
		_ = h.charges.charge("")
		_, err := tx.ExecContext(r.Context(), h.insert, rand.Text()) // here: charge that is no step
		return err
	}},
	"run again without a look": {idem.Options{Reexecute: true}, "joined mode",
		func(h host, _ http.ResponseWriter, r *http.Request) error {
			_, err := h.db.ExecContext(r.Context(), h.insert, rand.Text()) // here: run again without a look
			return err
		}},
	"part by the pool, and 409": {joined, "idemsql.Tx(r.Context())",
		func(h host, w http.ResponseWriter, r *http.Request) error {
			body, _ := io.ReadAll(r.Body)
			insert := h.insert + " ON CONFLICT DO NOTHING"
			added, err := h.db.ExecContext(r.Context(), insert, body) // here: part by the pool, and 409
			if err != nil {
				return err
			}
			if n, _ := added.RowsAffected(); n == 0 {
				w.WriteHeader(http.StatusConflict)
				return answered
			}
			return h.insertJoined(r)
		}},
	"conflict with its own row": {joined, "idemsql.Tx(r.Context())",
		func(h host, w http.ResponseWriter, r *http.Request) error {
			body, _ := io.ReadAll(r.Body)
			insert := h.insert + " ON CONFLICT DO NOTHING"
			added, err := h.db.ExecContext(r.Context(), insert, body) // here: conflict with its own row
			if err != nil {
				return err
			}
			if n, _ := added.RowsAffected(); n == 0 {
				w.WriteHeader(http.StatusConflict)
				return answered
			}
			return nil
		}},
	"error of COMMIT swallowed": {leases, "answer 500", func(h host, _ http.ResponseWriter, r *http.Request) error {
		tx, err := h.db.BeginTx(r.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err = tx.ExecContext(r.Context(), h.insert, rand.Text()); err != nil {
			return err
		}
		tx.Commit() // here: error of COMMIT swallowed
		return nil
	}},
}

// asked is a cache that all processes have.
var asked sync.Map

var rights = map[string]plan{
	"joined": {joined, "", func(h host, _ http.ResponseWriter, r *http.Request) error { return h.insertJoined(r) }},
	"joined, reads beside and prepares": {joined, "", func(h host, _ http.ResponseWriter, r *http.Request) error {
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
		return err
	}},
	"leases, one row": {leases, "", func(h host, _ http.ResponseWriter, r *http.Request) error {
		_, err := h.db.ExecContext(r.Context(), h.insert, rand.Text())
		return err
	}},
	"unique key and a loop": {idem.Options{Reexecute: true}, "",
		func(h host, _ http.ResponseWriter, r *http.Request) (err error) {
			for range 3 {
				key := r.Header.Get("Idempotency-Key")
				if _, err = h.db.ExecContext(r.Context(), h.insert+" ON CONFLICT DO NOTHING", key); err == nil {
					return nil
				}
			}
			return err
		}},
	"charge with the key": {joined, "", func(h host, _ http.ResponseWriter, r *http.Request) error {
		if err := h.charge(r.Header.Get("Idempotency-Key")); err != nil {
			return err
		}
		return h.insertJoined(r)
	}},
	"a cache of all processes, and a goroutine that does not end": {joined, "",
		func(h host, _ http.ResponseWriter, r *http.Request) error {
			tx, _ := idemsql.Tx(r.Context())
			if _, known := asked.LoadOrStore(h.charges, true); !known {
				var n int
				if err := tx.QueryRowContext(r.Context(), "SELECT 1").Scan(&n); err != nil {
					return err
				}
			}
			go func() { select {} }()
			return h.insertJoined(r)
		}},
	"stream": {joined, "", func(h host, w http.ResponseWriter, r *http.Request) error {
		if err := h.insertJoined(r); err != nil {
			return err
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			io.WriteString(w, "data: a parcel\n\n")
			http.NewResponseController(w).Flush()
		}
		return answered
	}},
}
