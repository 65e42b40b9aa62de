package poolwrite

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

type right struct {
	db, replica *sql.DB
	pool        wrongPgx
}

func (s right) reads(w http.ResponseWriter, r *http.Request) {
	tx, _ := idemsql.Tx(r.Context())
	var n int
	s.replica.QueryRowContext(r.Context(), "SELECT count(*) FROM a").Scan(&n)
	s.replica.Exec("SET search_path = a")
	s.replica.Query(r.FormValue("sql"))
	s.replica.BeginTx(r.Context(), &sql.TxOptions{ReadOnly: true})
	s.pool.pool.BeginTx(r.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly})
	tx.ExecContext(r.Context(), "INSERT INTO a VALUES (?)", n)
	s.db.PingContext(r.Context())
}

// in is the transaction, or the pool for a request without a key.
func (s right) in(ctx context.Context) interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
} {
	if tx, ok := idemsql.Tx(ctx); ok {
		return tx
	}
	return s.db
}

func (s right) without(ctx context.Context) (err error) {
	tx, ok := idemsql.Tx(ctx)
	if !ok {
		if tx, err = s.db.BeginTx(ctx, nil); err != nil {
			return err
		}
	}
	if !ok {
		s.db.Exec("DELETE FROM a")
	} else if tx == nil {
		s.db.Exec("DELETE FROM a")
	}
	joined := ok
	if !joined {
		s.db.Exec("DELETE FROM a")
	}
	return nil
}

func (s right) onlyWithKey(ctx context.Context, keyed bool) {
	if keyed {
		tx, _ := idemsql.Tx(ctx)
		tx.Exec("DELETE FROM a")
	}
	if !keyed {
		s.db.Exec("DELETE FROM a")
	}
}

func (s right) elsewhere(ctx context.Context) {
	tx, _ := idemsql.Tx(ctx)
	tx.Exec("DELETE FROM a")
	go s.db.Exec("DELETE FROM a")
	defer func() { s.db.Exec("DELETE FROM a") }()
	later := func() { s.db.Exec("DELETE FROM a") }
	defer later()
	s.count()
	s.save(ctx)
	s.replica.Exec("DELETE FROM a") //sallyvet:ok it is another database
	//sallyvet:ok it is another database
	s.replica.Exec("DELETE FROM a")
}

// save has the transaction itself, if there is one.
func (s right) save(ctx context.Context) {
	if tx, ok := idemsql.Tx(ctx); ok {
		tx.Exec("DELETE FROM a")
		return
	}
	s.db.Exec("DELETE FROM a")
}

func (s right) count() { s.db.Exec("UPDATE counts SET n = n + 1") }

func (s right) noTransaction(ctx context.Context) { s.db.Exec("DELETE FROM a") }
