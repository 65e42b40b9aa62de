package pgxretrytest_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idempgx/pgxretrytest"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// newServer is the server's own: it takes the pool, and where replies are kept.
func newServer(*pgxpool.Pool, middleware.IdempotencyOptions) http.Handler {
	return http.NotFoundHandler()
}

// In the tests of a server this is a Test function.
func ExamplePool() {
	_ = func(t *testing.T, config *pgxpool.Config, observer *pgxpool.Pool) {
		retrytest.Suite{
			Server: func(p *retrytest.Process) http.Handler {
				pool := pgxretrytest.Pool(p, config)
				runner := idem.NewRunner(idempgx.New(pool, idempgx.Options{}), idem.Options{Join: true})
				return newServer(pool, p.Idempotency(middleware.IdempotencyOptions{Runner: runner, Required: true}))
			},
			Creates: []retrytest.Create{{Path: "/api/v1/parcels", Body: `{"to": "Oslo"}`}},
			Effects: map[string]func(context.Context) (int, error){
				"parcels": func(ctx context.Context) (n int, err error) {
					return n, observer.QueryRow(ctx, "SELECT count(*) FROM parcels").Scan(&n)
				},
			},
		}.Run(t)
	}
}
