package bench

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// PeersOnPostgres are Sallyport before a handler that writes a row: in a
// transaction of its own without idempotency (bare) and with a lease, and in
// the one it joins. With pgx there is no database/sql between. Each makes its
// tables anew, in a schema of its own name that it leaves behind.
func PeersOnPostgres(dsn string) []Peer {
	on := func(way string) func(*Setup) Server {
		return func(s *Setup) Server { return newSallyportOnPostgres(s, dsn, way) }
	}
	return []Peer{
		{"postgres-bare", false, true, on("bare")},
		{"postgres-joined", true, true, on("joined")},
		{"postgres-leased", true, true, on("leased")},
		{"postgres-pgx-bare", false, true, on("pgx-bare")},
		{"postgres-pgx-joined", true, true, on("pgx-joined")},
	}
}

func newSallyportOnPostgres(s *Setup, dsn, way string) Server {
	way, native := strings.CutPrefix(way, "pgx-")
	schema := "sallyport_bench_" + way
	if native {
		schema += "_pgx"
	}
	config, err := pgxpool.ParseConfig(dsn)
	must(err)
	config.ConnConfig.RuntimeParams["search_path"] = schema
	config.MaxConns = 64 // so that 32 joined requests run at once
	ctx := context.Background()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	db := stdlib.OpenDB(*config.ConnConfig)
	db.SetMaxOpenConns(64)
	db.SetMaxIdleConns(64)
	for _, statement := range []string{
		"DROP SCHEMA IF EXISTS " + schema + " CASCADE", "CREATE SCHEMA " + schema,
		"CREATE TABLE tasks (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title text NOT NULL)",
	} {
		_, err := db.ExecContext(ctx, statement)
		must(err)
	}
	o := options(s)
	o.Idempotency = middleware.IdempotencyOptions{Off: way == "bare"}
	if way != "bare" {
		table := idemsql.Postgres(db, idemsql.Options{})
		must(table.Migrate(ctx))
		var store idem.Store = table
		if native {
			store = idempgx.New(pool, idempgx.Options{})
		}
		o.Idempotency.Runner = idem.NewRunner(store,
			idem.Options{Join: way == "joined", Logger: slog.New(slog.DiscardHandler)})
	}
	api := middleware.NewAPI(cached(s), o)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			title, _ := io.ReadAll(r.Body)
			insert := func() error { return insertTask(r.Context(), db, string(title)) }
			if native {
				insert = func() error { return insertTaskByPGX(r.Context(), pool, string(title)) }
			}
			if err := insert(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, createdBody)
		})
	return netHTTP{api}
}

const insertStatement = "INSERT INTO tasks (title) VALUES ($1)"

// insertTask writes a row in the request's transaction, or in one of its own.
func insertTask(ctx context.Context, db *sql.DB, title string) error {
	if tx, ok := idemsql.Tx(ctx); ok {
		_, err := tx.ExecContext(ctx, insertStatement, title)
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, insertStatement, title); err != nil {
		return err
	}
	return tx.Commit()
}

// insertTaskByPGX does so without database/sql.
func insertTaskByPGX(ctx context.Context, pool *pgxpool.Pool, title string) error {
	tx, joined := idempgx.Tx(ctx)
	if !joined {
		var err error
		if tx, err = pool.Begin(ctx); err != nil {
			return err
		}
		defer tx.Rollback(ctx)
	}
	if _, err := tx.Exec(ctx, insertStatement, title); err != nil || joined {
		return err
	}
	return tx.Commit(ctx)
}
