package poolwrite

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

type wrongSQL struct {
	db   *sql.DB
	conn *sql.Conn
}

func (s wrongSQL) create(w http.ResponseWriter, r *http.Request) {
	tx, _ := idemsql.Tx(r.Context())
	if _, err := tx.ExecContext(r.Context(), "INSERT INTO parcels DEFAULT VALUES"); err != nil {
		http.Error(w, "", 500)
		return
	}
	s.db.Exec("UPDATE stock SET left = left - 1")       // want `this writes by a .*: write by the transaction`
	s.conn.ExecContext(r.Context(), r.FormValue("sql")) // want `by a database/sql.Conn,`
	var id int
	err := s.db.QueryRow("INSERT INTO a VALUES (1) RETURNING id").Scan(&id) // want `by a database/sql.DB,`
	if err != nil {
		return
	}
	own, err := s.db.BeginTx(r.Context(), nil) // want `by a database/sql.DB,`
	if err != nil {
		return
	}
	own.Exec("DELETE FROM a")
	s.note(r.Context(), "created") // want `note writes by a database/sql.DB, .*: give it the transaction`
}

func (s wrongSQL) note(ctx context.Context, what string) {
	s.db.ExecContext(ctx, "INSERT INTO notes VALUES (?)", what)
}

type embedded struct{ *sql.DB }

func wrongWhenThereIsOne(ctx context.Context, db embedded) error {
	if tx, ok := idemsql.Tx(ctx); ok {
		_, err := db.Exec("TRUNCATE a") // want `by a database/sql.DB,`
		return err
	} else if tx == nil {
		_, err := db.Exec("TRUNCATE a")
		return err
	}
	return nil
}

func wrongBehindBoth(ctx context.Context, db *sql.DB) {
	tx, ok := idemsql.Tx(ctx)
	if !ok || tx == nil {
		return
	}
	db.Exec("DELETE FROM a") // want `by a database/sql.DB,`
}

type wrongPgx struct{ pool *pgxpool.Pool }

func (s wrongPgx) create(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	tx, err := s.tx(ctx)
	if err != nil {
		http.Error(w, "", 500)
		return
	}
	switch r.FormValue("what") {
	case "a":
		s.pool.Exec(ctx, "DELETE FROM a") // want `by a github.com/jackc/pgx/v5/pgxpool.Pool,`
	default:
		s.pool.BeginTx(ctx, pgx.TxOptions{}) // want `pgxpool.Pool,`
	}
	for range 2 {
		conn, _ := s.pool.Acquire(ctx)
		conn.CopyFrom(ctx, pgx.Identifier{"a"}, nil, nil) // want `pgxpool.Conn,`
	}
	tx.Exec(ctx, "DELETE FROM a")
}

func (s wrongPgx) tx(ctx context.Context) (pgx.Tx, error) {
	tx, ok := idempgx.Tx(ctx)
	if !ok {
		return s.pool.Begin(ctx)
	}
	return tx, nil
}

func begin(ctx context.Context) (context.Context, *sql.TxOptions) { return ctx, nil }

func wrongInOne(ctx context.Context, db *sql.DB) {
	tx, _ := idemsql.Tx(ctx)
	tx.Exec("DELETE FROM a")
	db.BeginTx(begin(ctx)) // want `by a database/sql.DB,`
}
