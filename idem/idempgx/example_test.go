package idempgx_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// One pool has the keys, the replies and the tasks. A task and the reply that
// tells of it are one transaction; with sqlc the handler writes
// db.New(tx).CreateTask.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	keys := keystore.NewCached(keysql.Postgres(stdlib.OpenDBFromPool(pool), keysql.Options{}), keystore.CacheOptions{})
	store := idempgx.New(pool, idempgx.Options{})
	go keys.Run(ctx)
	go store.Run(ctx)

	api := middleware.NewAPI(keys, middleware.Options{
		Idempotency: middleware.IdempotencyOptions{
			Runner:   idem.NewRunner(store, idem.Options{Join: true}),
			Required: true, // so that every create has a transaction
		},
	})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			tx, _ := idempgx.Tx(r.Context())
			var id int
			err := tx.QueryRow(r.Context(), "INSERT INTO tasks (title) VALUES ($1) RETURNING id",
				r.FormValue("title")).Scan(&id)
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError) // all is rolled back, and the key is free
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "task %d", id)
		})
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", api))
}
