package guides_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"sync"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// Keys, replies and rows in one SQLite file, for a service with scopes of its
// own. With Postgres it is sql.Open("pgx", dsn), keysql.Postgres and
// idemsql.Postgres.
func Example_database() {
	ctx, stop := context.WithCancel(context.Background())
	db, remove := openSQLite()
	defer remove()
	db.SetMaxOpenConns(8) // joined requests hold a connection each
	keyTable, replyTable := keysql.SQLite(db, keysql.Options{}), idemsql.SQLite(db, idemsql.Options{})
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS parcels (id INTEGER PRIMARY KEY, owner TEXT, target TEXT)")
	err = errors.Join(err, keyTable.Migrate(ctx), replyTable.Migrate(ctx))
	if err := errors.Join(err, keyTable.Check(ctx), replyTable.Check(ctx)); err != nil {
		log.Fatal(err)
	}

	keys := keystore.NewCached(keyTable, keystore.CacheOptions{Service: keystore.Service{
		Prefix: "acme", Scopes: scope.New(scope.Definition{Name: "parcels:write", Meaning: "Send parcels."}),
	}})
	uses := keystore.NewUses(keys, keystore.UsesOptions{})
	var work sync.WaitGroup
	work.Go(func() { _ = uses.Run(ctx) })       // writes when keys were used
	work.Go(func() { _ = keys.Run(ctx) })       // hears of keys that others revoke
	work.Go(func() { _ = replyTable.Run(ctx) }) // removes replies that have expired

	api := middleware.NewAPI(keys, middleware.Options{
		Base: "/v2",
		Uses: uses,
		Idempotency: middleware.IdempotencyOptions{
			Runner:   idem.NewRunner(replyTable, idem.Options{Join: true}),
			Required: true, // so that each create has a transaction
		},
	})
	api.HandleFunc("POST /v2/parcels", middleware.Require("parcels:write"),
		func(w http.ResponseWriter, r *http.Request) {
			caller := middleware.CallerFrom(r.Context())
			tx, _ := idemsql.Tx(r.Context()) // committed together with the reply
			var id int
			err := tx.QueryRowContext(r.Context(), "INSERT INTO parcels (owner, target) VALUES (?, ?) RETURNING id",
				caller.Tenant(), r.FormValue("to")).Scan(&id)
			if err != nil {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 500, Code: "internal"}) // rolls back
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintln(w, "parcel", id)
		})

	key := issue(issuing.New(keys, issuing.Options{}), "org_1", "parcels:write")
	for range 2 {
		w := send(api, "POST", "/v2/parcels", key, "to=Lisbon", "Idempotency-Key", "7f1c",
			"Content-Type", "application/x-www-form-urlencoded")
		fmt.Print(w.Code, " ", w.Body)
	}
	stop()
	work.Wait()
	used, err := keyTable.List(context.Background(), "org_1", issuing.Query{NeverUsed: true, Limit: 1})
	fmt.Println(len(used.Keys), "never used", err)
	// Output:
	// 201 parcel 1
	// 201 parcel 1
	// 0 never used <nil>
}
