package idemsql_test

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// The row and the reply are one transaction: a retry after a crash gets the
// reply, or creates.
func Example() {
	var db *sql.DB // of the program's driver
	runner := idem.NewRunner(idemsql.Postgres(db, idemsql.Options{}), idem.Options{Join: true})
	api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{
		Idempotency: middleware.IdempotencyOptions{Runner: runner, Required: true}, // each create has a transaction
	})
	create := func(w http.ResponseWriter, r *http.Request) {
		tx, _ := idemsql.Tx(r.Context())
		if _, err := tx.ExecContext(r.Context(), "INSERT INTO tasks (title) VALUES ($1)", r.FormValue("title")); err != nil {
			w.WriteHeader(http.StatusInternalServerError) // the row is rolled back, and the key is free
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), create)
}

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
