// Package right has handlers that are right, and look a little like wrong ones.
package right

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

type shop struct {
	db, replica *sql.DB
	pool        *pgxpool.Pool
	log         *slog.Logger
}

func problem(w http.ResponseWriter, r *http.Request, status int) {
	middleware.WriteProblem(w, r, middleware.Problem{Status: status, Code: "x"})
}

// 1: generics.
type querier interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

func store[T any, Q querier](ctx context.Context, q Q, row T) error {
	_, err := q.ExecContext(ctx, "INSERT INTO rows VALUES (?)", row)
	return err
}

func (s *shop) generic(w http.ResponseWriter, r *http.Request) {
	if tx, ok := idemsql.Tx(r.Context()); ok {
		if err := store(r.Context(), tx, 1); err != nil {
			problem(w, r, 500)
			return
		}
	} else if err := store(r.Context(), s.db, 1); err != nil {
		problem(w, r, 500)
		return
	}
	w.WriteHeader(201)
}

// 2: a method value that is the transaction's or the pool's.
func (s *shop) methodValue(w http.ResponseWriter, r *http.Request) {
	exec := s.db.ExecContext
	if tx, ok := idemsql.Tx(r.Context()); ok {
		exec = tx.ExecContext
	}
	if _, err := exec(r.Context(), "INSERT INTO a VALUES (1)"); err != nil {
		problem(w, r, 500)
		return
	}
	w.WriteHeader(201)
}

// 3: a closure over the transaction, with a savepoint.
func (s *shop) savepoint(w http.ResponseWriter, r *http.Request) {
	tx, ok := idempgx.Tx(r.Context())
	if !ok {
		problem(w, r, 400)
		return
	}
	err := pgx.BeginFunc(r.Context(), tx, func(sp pgx.Tx) error {
		_, err := sp.Exec(r.Context(), "INSERT INTO a VALUES (1)")
		return err
	})
	if err != nil {
		problem(w, r, 409)
		return
	}
	w.WriteHeader(201)
}

// 4: leases, a transaction of its own with a deferred rollback.
func (s *shop) deferredRollback(w http.ResponseWriter, r *http.Request) {
	run := middleware.ExecutionFrom(r.Context())
	tx, err := s.db.BeginTx(r.Context(), nil)
	if err != nil {
		run.Free()
		problem(w, r, 503)
		return
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(r.Context(), "UPDATE stock SET n = n - 1 WHERE n > 0"); err != nil {
		run.Free()
		problem(w, r, 503)
		return
	}
	var left int
	if err := tx.QueryRow("SELECT n FROM stock").Scan(&left); err != nil || left == 0 {
		run.Free()
		problem(w, r, 409)
		return
	}
	if err := tx.Commit(); err != nil {
		problem(w, r, 500)
		return
	}
	w.WriteHeader(201)
}

// 5: reads on a replica in a joined handler.
func (s *shop) replicaReads(w http.ResponseWriter, r *http.Request) {
	tx, _ := idemsql.Tx(r.Context())
	rows, err := s.replica.QueryContext(r.Context(), `SELECT updated, set_at FROM updates WHERE deleted_from IS NULL`)
	if err != nil {
		problem(w, r, 500)
		return
	}
	defer rows.Close()
	read, err := s.replica.BeginTx(r.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		problem(w, r, 500)
		return
	}
	defer read.Rollback()
	if _, err := tx.Exec("INSERT INTO a VALUES (1)"); err != nil {
		problem(w, r, 500)
		return
	}
	w.WriteHeader(201)
}

// 6: a command prints a secret to the terminal.
func printKey(secret keystore.Secret) error {
	if _, err := fmt.Fprintf(os.Stdout, "export KEY=%s\n", secret.Reveal()); err != nil {
		return fmt.Errorf("print the key: %w", err)
	}
	slog.Info("issued", "key", secret)
	token := secret.Reveal()
	log.Printf("a token of %d characters, ending in %s", len(token), token[len(token)-4:])
	return os.WriteFile("key", []byte(token), 0o600)
}

// 7: a unique violation, told apart by the error, frees the key.
func (s *shop) unique(w http.ResponseWriter, r *http.Request) {
	_, err := s.pool.Exec(r.Context(), "INSERT INTO a VALUES (1)")
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "23505":
		middleware.ExecutionFrom(r.Context()).Free()
		problem(w, r, 409)
		return
	case err != nil:
		problem(w, r, 500)
		return
	}
	w.WriteHeader(201)
}

// 8: nothing matched.
func (s *shop) nothing(w http.ResponseWriter, r *http.Request) {
	tag, err := s.pool.Exec(r.Context(), "UPDATE a SET b = 1 WHERE c = 2")
	if err != nil {
		problem(w, r, 500)
		return
	}
	if tag.RowsAffected() == 0 {
		middleware.ExecutionFrom(r.Context()).Free()
		problem(w, r, 404)
		return
	}
	w.WriteHeader(204)
}

// 9: INSERT … RETURNING that finds nothing.
func (s *shop) returning(w http.ResponseWriter, r *http.Request) {
	var id int
	err := s.db.QueryRowContext(r.Context(), "INSERT INTO a VALUES (1) ON CONFLICT DO NOTHING RETURNING id").Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		middleware.ExecutionFrom(r.Context()).Free()
		problem(w, r, 409)
		return
	} else if err != nil {
		problem(w, r, 500)
		return
	}
	json.NewEncoder(w).Encode(id)
}

// 10: validation that collects, then answers once.
func (s *shop) validate(w http.ResponseWriter, r *http.Request) {
	var bad *middleware.Problem
	for _, name := range []string{"to", "from"} {
		if r.FormValue(name) == "" {
			bad = &middleware.Problem{Status: 400, Code: "missing"}
		}
	}
	if bad != nil {
		middleware.WriteProblem(w, r, *bad)
	}
	if bad == nil {
		w.WriteHeader(204)
	}
}

// 11: a helper that says whether it has answered.
func (s *shop) decode(w http.ResponseWriter, r *http.Request, into any) (ok bool) {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		problem(w, r, 400)
	} else {
		ok = true
	}
	return ok
}

func (s *shop) decoded(w http.ResponseWriter, r *http.Request) {
	var in struct{ To string }
	if s.decode(w, r, &in) {
		fmt.Fprintln(w, in.To)
	}
}

// 12: handlers that return errors.
func withErrors(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		var p *middleware.Problem
		if errors.As(err, &p) {
			middleware.WriteProblem(w, r, *p)
		} else if err != nil {
			problem(w, r, 500)
		}
	}
}

// 13: work after the reply, and a count that must outlive a rollback.
func (s *shop) afterwards(w http.ResponseWriter, r *http.Request) {
	tx, _ := idemsql.Tx(r.Context())
	defer func() {
		if _, err := s.db.Exec("UPDATE attempts SET n = n + 1"); err != nil {
			s.log.Warn("attempts", "error", err)
		}
	}()
	if _, err := tx.Exec("INSERT INTO a VALUES (1)"); err != nil {
		problem(w, r, 500)
		return
	}
	go func() { s.db.Exec("INSERT INTO statistics VALUES (1)") }()
	w.WriteHeader(201)
}

// 14: the fallback of a request without a key, in the style of one exit.
func (s *shop) either(w http.ResponseWriter, r *http.Request) {
	tx, joined := idemsql.Tx(r.Context())
	var err error
	if !joined {
		tx, err = s.db.BeginTx(r.Context(), nil)
	}
	if err == nil {
		_, err = tx.Exec("INSERT INTO a VALUES (1)")
	}
	if err == nil && !joined {
		err = tx.Commit()
	}
	if err != nil && !joined {
		_, _ = s.db.Exec("INSERT INTO failures VALUES (1)")
	}
	if err != nil {
		problem(w, r, 500)
		return
	}
	w.WriteHeader(201)
}

// 15: a problem on a recorder, then on the response itself.
func (s *shop) two(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch r.Method {
	case http.MethodGet:
		problem(w, r, 405)
	case http.MethodPost:
		next.ServeHTTP(w, r)
	default:
		w.Header().Set("Allow", "GET")
		middleware.WriteProblem(w, r, middleware.Problem{Status: 405, Code: "method"})
	}
}

// 16: the repository of a table, by a context key that the service has itself.
type repository struct{ s *shop }

func (p repository) conn(ctx context.Context) querier {
	tx, ok := idemsql.Tx(ctx)
	if ok {
		return tx
	}
	return p.s.db
}

func (p repository) save(ctx context.Context) error {
	if _, err := p.conn(ctx).ExecContext(ctx, "INSERT INTO a VALUES (1)"); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return nil
}

// 17: a dry run.
func (s *shop) dry(w http.ResponseWriter, r *http.Request) {
	dry := r.FormValue("dry") == "1"
	if !dry {
		if _, err := s.db.ExecContext(r.Context(), "INSERT INTO a VALUES (1)"); err != nil {
			problem(w, r, 500)
			return
		}
	}
	if dry {
		middleware.ExecutionFrom(r.Context()).Free()
	}
	w.WriteHeader(200)
}

// 18: a response for each problem of a table.
func (s *shop) table(r *http.Request, problems []middleware.Problem) (codes []int) {
	for _, p := range problems {
		w := httptest.NewRecorder()
		middleware.WriteProblem(w, r, p)
		codes = append(codes, w.Code)
	}
	return codes
}

// 19: a function that is given the transaction, if there is one.
func (s *shop) either20(ctx context.Context, tx *sql.Tx, q querier) error {
	if tx == nil && q == nil {
		_, err := s.db.ExecContext(ctx, "INSERT INTO a VALUES (1)")
		return err
	}
	return store(ctx, q, 1)
}

func (s *shop) given(w http.ResponseWriter, r *http.Request) {
	tx, ok := idemsql.Tx(r.Context())
	var q querier
	if ok {
		q = tx
	}
	if s.either20(r.Context(), nil, q) != nil || s.either20(r.Context(), tx, nil) != nil {
		problem(w, r, 500)
		return
	}
	w.WriteHeader(201)
}

// 20: what is set before the problem, or in a part of a variable, says that
// there was one.
func (s *shop) setBefore(w http.ResponseWriter, r *http.Request) {
	status := 200
	var wrong []string
	switch r.Method {
	case http.MethodPut:
		status = 405
		problem(w, r, status)
	case http.MethodPatch:
		wrong = append(wrong, "method")
		problem(w, r, 405)
	}
	if status != 200 || len(wrong) > 0 {
		return
	}
	w.WriteHeader(201)
}

func (s *shop) part(w http.ResponseWriter, r *http.Request) {
	var state struct{ done bool }
	if r.FormValue("to") == "" {
		problem(w, r, 400)
		state.done = true
	}
	if state.done {
		return
	}
	w.WriteHeader(201)
}

func (s *shop) counted(w http.ResponseWriter, r *http.Request) {
	count := len(r.Form)
	if r.FormValue("to") == "" {
		problem(w, r, 400)
		count++
	}
	if count == 0 {
		w.WriteHeader(201)
	}
}

// 21: a flag that says that the write has failed.
func (s *shop) failed(w http.ResponseWriter, r *http.Request) {
	var failed bool
	if _, err := s.db.Exec("INSERT INTO a VALUES (1)"); err != nil {
		failed = true
	}
	if failed {
		middleware.ExecutionFrom(r.Context()).Free()
		problem(w, r, 503)
		return
	}
	w.WriteHeader(201)
}
