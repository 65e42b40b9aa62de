package bench

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// PeersOnPostgres are Sallyport before a handler that writes a row: in a
// transaction of its own without idempotency (bare) and with a lease, and in
// the one it joins. Each makes its tables anew, in a schema of its own name
// that it leaves behind.
func PeersOnPostgres(dsn string) []Peer {
	on := func(way string) func(*Setup) Server {
		return func(s *Setup) Server { return newSallyportOnPostgres(s, dsn, way) }
	}
	return []Peer{
		{"postgres-bare", false, true, on("bare")},
		{"postgres-joined", true, true, on("joined")},
		{"postgres-leased", true, true, on("leased")},
	}
}

func newSallyportOnPostgres(s *Setup, dsn, way string) Server {
	schema := "sallyport_bench_" + way
	config, err := pgx.ParseConfig(dsn)
	must(err)
	config.RuntimeParams["search_path"] = schema
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(64) // so that 32 joined requests run at once
	db.SetMaxIdleConns(64)
	ctx := context.Background()
	for _, statement := range []string{
		"DROP SCHEMA IF EXISTS " + schema + " CASCADE", "CREATE SCHEMA " + schema,
		"CREATE TABLE tasks (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title text NOT NULL)",
	} {
		_, err := db.ExecContext(ctx, statement)
		must(err)
	}
	o := options(s)
	o.Idempotency.Runner = nil
	if way != "bare" {
		store := idemsql.Postgres(db, idemsql.Options{})
		must(store.Migrate(ctx))
		o.Idempotency.Runner = idem.NewRunner(store,
			idem.Options{Join: way == "joined", Logger: slog.New(slog.DiscardHandler)})
	}
	api := middleware.NewAPI(cached(s), o)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			title, _ := io.ReadAll(r.Body)
			if err := insertTask(r.Context(), db, string(title)); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, createdBody)
		})
	return netHTTP{api}
}

// insertTask writes a row in the request's transaction, or in one of its own.
func insertTask(ctx context.Context, db *sql.DB, title string) error {
	const statement = "INSERT INTO tasks (title) VALUES ($1)"
	if tx, ok := idemsql.Tx(ctx); ok {
		_, err := tx.ExecContext(ctx, statement, title)
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, statement, title); err != nil {
		return err
	}
	return tx.Commit()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
