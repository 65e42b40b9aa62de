package guides_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
	"github.com/sallyport-go/sallyport/scope"
)

var parcelService = keystore.Service{
	Prefix: "acme", Scopes: scope.New(scope.Definition{Name: "parcels:write", Meaning: "Send parcels."}),
}

// newServer is what main serves, too.
func newServer(db *sql.DB, keys keystore.Store, o middleware.IdempotencyOptions) http.Handler {
	api := middleware.NewAPI(keys, middleware.Options{Base: "/v2", Idempotency: o, Service: parcelService})
	api.HandleFunc("POST /v2/parcels", middleware.Require("parcels:write"),
		func(w http.ResponseWriter, r *http.Request) {
			tx, _ := idemsql.Tx(r.Context())
			_, err := tx.ExecContext(r.Context(), "INSERT INTO parcels (target) VALUES ('Lisbon')")
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintln(w, "a parcel to Lisbon")
		})
	return api
}

func TestParcelsAreSafeToRetry(t *testing.T) {
	db, remove := openSQLite()
	defer remove()
	_, err := db.Exec("CREATE TABLE parcels (id INTEGER PRIMARY KEY, target TEXT)")
	if err := errors.Join(err, idemsql.SQLite(db, idemsql.Options{}).Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	keys, issuer := issuing.InMemory(parcelService)
	key := issue(issuer, "org_1", "parcels:write")

	retrytest.Suite{
		Server: func(p *retrytest.Process) http.Handler {
			pool := p.DB(db) // or pgxretrytest.Pool(p, config)
			replies := idemsql.SQLite(pool, idemsql.Options{})
			return newServer(pool, keys, p.Idempotency(middleware.IdempotencyOptions{
				Runner: idem.NewRunner(replies, idem.Options{Join: true}), Required: true,
			}))
		},
		Creates: []retrytest.Create{{Path: "/v2/parcels", Header: http.Header{"Authorization": {"Bearer " + key}}}},
		Effects: map[string]func(context.Context) (int, error){
			"parcels": func(ctx context.Context) (n int, err error) {
				err = db.QueryRowContext(ctx, "SELECT count(*) FROM parcels").Scan(&n)
				return n, err
			},
		},
	}.Run(t)
}
