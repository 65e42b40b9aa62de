// Package sqlcpgx_test has code that sqlc generates for pgx, under package
// retrytest.
package sqlcpgx_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/planted"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idempgx/pgxretrytest"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// suite is that of a server that makes a parcel by the queries it is given.
func suite(t *testing.T, queries func(context.Context, *pgxpool.Pool) *Queries) retrytest.Suite {
	t.Helper()
	config, configErr := pgxpool.ParseConfig("")
	schema, schemaErr := os.ReadFile("../testdata/schema.sql")
	if err := errors.Join(configErr, schemaErr); err != nil {
		t.Fatal(err)
	}
	config.ConnConfig = pgtest.Schema(t)
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	_, err = db.Exec(t.Context(), string(schema))
	if err := errors.Join(err, idempgx.New(db, idempgx.Options{}).Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	return retrytest.Suite{
		Server: func(p *retrytest.Process) http.Handler {
			pool := pgxretrytest.Pool(p, config)
			replies := idempgx.New(pool, idempgx.Options{})
			create := func(w http.ResponseWriter, r *http.Request) {
				arg := CreateParcelParams{ID: rand.Text(), Target: "Lisbon"}
				if err := queries(r.Context(), pool).CreateParcel(r.Context(), arg); err != nil {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusCreated)
			}
			return planted.Server(p, replies, idem.Options{Join: true}, create)
		},
		Creates: planted.Parcels,
		Effects: map[string]func(context.Context) (int, error){
			"parcels": func(ctx context.Context) (n int, err error) {
				return n, db.QueryRow(ctx, "SELECT count(*) FROM parcels").Scan(&n)
			},
		},
	}
}

func TestInTheTransaction(t *testing.T) {
	t.Parallel()
	suite(t, func(ctx context.Context, _ *pgxpool.Pool) *Queries {
		tx, _ := idempgx.Tx(ctx)
		return New(tx)
	}).Run(t)
}

func TestBesideTheTransaction(t *testing.T) {
	t.Parallel()
	said := strings.Join(planted.Run(t, suite(t, func(_ context.Context, pool *pgxpool.Pool) *Queries {
		return New(pool)
	})).Errors, "\n")
	for _, want := range []string{"code     queries.sql_test.go:", "idempgx.Tx(r.Context())"} {
		if strings.Count(said, want) != 1 {
			t.Errorf("got %s, want %q once", said, want)
		}
	}
}
