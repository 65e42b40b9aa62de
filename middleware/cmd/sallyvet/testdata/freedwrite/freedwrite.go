package freedwrite

import (
	"context"
	"database/sql"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
)

type server struct {
	db   *sql.DB
	pool *pgxpool.Pool
}

func (s server) leased(w http.ResponseWriter, r *http.Request) {
	_, err := s.db.ExecContext(r.Context(), "INSERT INTO a VALUES (1)")
	if err != nil {
		middleware.ExecutionFrom(r.Context()).Free() // nothing was written
		return
	}
	if err := charge(r); err != nil {
		middleware.ExecutionFrom(r.Context()).Free() // want `Free after a write lets a repeat .*first write`
	}
	err = charge(r)
	if err != nil {
		run := middleware.ExecutionFrom(r.Context())
		run.Free() // want `Free after a write`
	}
}

func (s server) joined(w http.ResponseWriter, r *http.Request) {
	tx, _ := idemsql.Tx(r.Context())
	if r.FormValue("to") == "" {
		middleware.ExecutionFrom(r.Context()).Free()
		return
	}
	if _, err := tx.Exec(`UPDATE a SET b = 1`); err == nil {
		middleware.ExecutionFrom(r.Context()).Free() // want `in joined mode answer with a status that rolls back`
	}
	joined, _ := idempgx.Tx(r.Context())
	joined.Exec(r.Context(), "DELETE FROM a")
	middleware.ExecutionFrom(r.Context()).Free() // want `Free after a write`
}

func (s server) own(w http.ResponseWriter, r *http.Request) {
	tx, err := s.pool.Begin(r.Context())
	if err != nil {
		middleware.ExecutionFrom(r.Context()).Free()
		return
	}
	defer tx.Rollback(r.Context())
	if _, err := tx.Exec(r.Context(), "INSERT INTO a VALUES (1)"); err != nil {
		middleware.ExecutionFrom(r.Context()).Free()
		return
	}
	if charge(r) != nil {
		middleware.ExecutionFrom(r.Context()).Free() // the write is rolled back
		return
	}
	if err := tx.Commit(r.Context()); err != nil {
		return
	}
	middleware.ExecutionFrom(r.Context()).Free() // want `Free after a write`
}

func (s server) nothingWritten(w http.ResponseWriter, r *http.Request) {
	result, err := s.db.ExecContext(r.Context(), "UPDATE a SET b = 1 WHERE c = 2")
	var refused *pgconn.PgError
	if errors.As(err, &refused) || errors.Is(err, context.Canceled) {
		middleware.ExecutionFrom(r.Context()).Free()
		return
	}
	if err != nil {
		return
	}
	n, err := result.RowsAffected()
	if err != nil {
		return
	}
	if left := int(n); left == 0 {
		middleware.ExecutionFrom(r.Context()).Free()
		return
	}
	if n == 0 {
		middleware.ExecutionFrom(r.Context()).Free()
		return
	}
	switch int(n) {
	case 0:
		middleware.ExecutionFrom(r.Context()).Free()
	}
}

func (s server) notBoth(w http.ResponseWriter, r *http.Request, dry bool) {
	if !dry {
		s.db.Exec("DELETE FROM a")
	}
	if dry {
		middleware.ExecutionFrom(r.Context()).Free()
	}
}

func (s server) reads(w http.ResponseWriter, r *http.Request) {
	rows, err := s.db.Query("SELECT 1")
	if err != nil || !rows.Next() {
		middleware.ExecutionFrom(r.Context()).Free()
	}
}

func charge(*http.Request) error { return nil }
