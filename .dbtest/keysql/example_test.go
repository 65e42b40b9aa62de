package keysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
)

// Keys in a file, behind a cache that notices what other processes change in
// it.
func Example() {
	directory, err := os.MkdirTemp("", "keys")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(directory)

	db, err := sql.Open("sqlite", "file:"+filepath.Join(directory, "keys.db")+
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_pragma=synchronous(NORMAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := keysql.SQLite(db, keysql.Options{}) // keysql.Postgres takes a database of driver pgx in the same way
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	keys := keystore.NewCached(store, keystore.CacheOptions{})
	go keys.Run(ctx)

	issuer := issuing.New(keys, issuing.Options{})
	secret, k, err := issuer.Issue(ctx, keystore.Key{
		Organization: "acme", Name: "Nightly import", Environment: keystore.Production,
		Scopes: []scope.Name{scope.TasksRead},
	})
	if err != nil {
		log.Fatal(err)
	}
	found, err := keys.Lookup(ctx, keystore.DigestOf(secret.Reveal()))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.Organization, found.Environment, found.Scopes, found.Refused())

	if _, err := issuer.Revoke(ctx, "acme", k.ID); err != nil {
		log.Fatal(err)
	}
	found, err = keys.Lookup(ctx, keystore.DigestOf(secret.Reveal()))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.Refused())
	// Output:
	// acme production [tasks:read] <nil>
	// keystore: key is revoked
}
