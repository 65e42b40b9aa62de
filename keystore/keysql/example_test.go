package keysql_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/middleware"
)

// Keys in Postgres, behind a cache that learns what other processes change. The
// program imports a driver, such as github.com/jackc/pgx/v5/stdlib.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@db.internal/app")
	if err != nil {
		log.Fatal(err)
	}
	store := keysql.Postgres(db, keysql.Options{})
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	keys := keystore.NewCached(store, keystore.CacheOptions{})
	go keys.Run(ctx)
	issuer := issuing.New(keys, issuing.Options{}) // a revocation holds here at once
	api := middleware.NewAPI(keys, middleware.Options{})
	_, _ = issuer, api
}
