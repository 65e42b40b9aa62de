package idemsql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// A task and the reply that tells of it are one transaction: a repeat of the
// request creates no second one.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tasks.db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(8)
	store := idemsql.SQLite(db, idemsql.Options{})
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE tasks (id INTEGER PRIMARY KEY, title TEXT NOT NULL)"); err != nil {
		log.Fatal(err)
	}

	keys := issuing.NewMemory()
	replies := idem.NewRunner(store, idem.Options{Join: true})
	api := middleware.NewAPI(keys, middleware.Options{
		Idempotency: middleware.IdempotencyOptions{Runner: replies, Required: true}, // so that every create has a transaction
	})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			tx, _ := idemsql.Tx(r.Context())
			var id int
			err := tx.QueryRowContext(r.Context(), "INSERT INTO tasks (title) VALUES (?) RETURNING id",
				r.FormValue("title")).Scan(&id)
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError) // all is rolled back, and the key is free
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "task %d", id)
		})

	secret, _, err := issuing.New(keys, issuing.Options{}).Issue(ctx, keystore.Key{
		Organization: "org_1", Environment: keystore.Sandbox, Name: "example", Scopes: []scope.Name{scope.TasksWrite},
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		r := httptest.NewRequest("POST", "/api/v1/tasks", strings.NewReader("title=Write+the+report"))
		r.Header.Set("Authorization", "Bearer "+secret.Reveal())
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		fmt.Printf("%d %s, replayed: %t\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed") == "true")
	}
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM tasks").Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "row")
	// Output:
	// 201 task 1, replayed: false
	// 201 task 1, replayed: true
	// 1 row
}
