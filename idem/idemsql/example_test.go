package idemsql_test

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// Clients that send no Idempotency-Key, such as forms, are served too: within
// writes in the transaction of a keyed request, and else in one of its own.
func ExampleTx() {
	var db *sql.DB
	within := func(ctx context.Context, write func(*sql.Tx) error) error {
		if tx, ok := idemsql.Tx(ctx); ok {
			return write(tx) // committed with the reply
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := write(tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = func(w http.ResponseWriter, r *http.Request) {
		err := within(r.Context(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(r.Context(), "INSERT INTO tasks (title) VALUES ($1)", r.FormValue("title"))
			return err
		})
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
}
