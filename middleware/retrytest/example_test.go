package retrytest_test

import (
	"context"
	"database/sql"
	"net/http"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// In a test of the server that takes the pool and the options.
func ExampleSuite() {
	var (
		t         *testing.T
		db        *sql.DB // of the test
		newServer func(*sql.DB, middleware.IdempotencyOptions) http.Handler
	)
	retrytest.Suite{
		Server: func(p *retrytest.Process) http.Handler {
			pool := p.DB(db)
			runner := idem.NewRunner(idemsql.SQLite(pool, idemsql.Options{}), idem.Options{Join: true})
			return newServer(pool, p.Idempotency(middleware.IdempotencyOptions{Runner: runner, Required: true}))
		},
		Creates: []retrytest.Create{{Path: "/api/v1/parcels", Body: `{"to": "Lisbon", "reference": "{{random}}"}`}},
		Effects: map[string]func(context.Context) (int, error){
			"parcels": func(ctx context.Context) (n int, err error) {
				err = db.QueryRowContext(ctx, "SELECT count(*) FROM parcels").Scan(&n)
				return n, err
			},
		},
	}.Run(t)
}
