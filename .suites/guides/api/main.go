// Api sends parcels: an API with a prefix and scopes of its own. Postgres keeps
// the keys, the replies and the parcels, Redis counts the limits.
//
//	export DATABASE_URL=postgres://127.0.0.1/parcels
//	export REDIS_URL=redis://127.0.0.1:6379
//	export KEY=$(go run . -issue org_1)
//	go run . &
//	curl -i -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: 1' \
//	  -d '{"to": "Lisbon"}' http://127.0.0.1:8080/v2/parcels
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/scope"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	issue := flag.String("issue", "", "print a new key of this `organization`, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, *addr, *issue); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, issueTo string) error {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(16) // creates hold one each while they run, and together at most half of them
	start, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	keyTable, replyTable := keysql.Postgres(db, keysql.Options{}), idemsql.Postgres(db, idemsql.Options{})
	if _, err := db.ExecContext(start, parcelTable); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		keyTable.Migrate, replyTable.Migrate, keyTable.Check, replyTable.Check,
	} {
		if err := step(start); err != nil {
			return err
		}
	}
	keys := keystore.NewCached(keyTable, keystore.CacheOptions{Service: keystore.Service{
		Prefix: "acme",
		Scopes: scope.New(
			scope.Definition{Name: "parcels:read", Meaning: "See parcels."},
			scope.Definition{Name: "parcels:write", Meaning: "Send parcels."},
		),
	}})
	if issueTo != "" {
		secret, _, err := issuing.New(keys, issuing.Options{}).Issue(start, keystore.Key{
			Organization: issueTo, Name: "first", Environment: keystore.Production,
			Scopes: []scope.Name{"parcels:read", "parcels:write"},
		})
		if err == nil {
			fmt.Println(secret.Reveal()) // the only copy: the table has no secret
		}
		return err
	}

	o, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return errors.New("REDIS_URL is not like redis://127.0.0.1:6379") // err may show a password
	}
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(o)
	defer client.Close()
	counters := ratelimitredis.New(client, ratelimitredis.Options{})
	if err := counters.Ready(start); err != nil {
		return err
	}
	limits := middleware.PerOrganization("100-S") // a hundred a second
	limits.Store, limits.Fields = counters, middleware.FieldsDraft11
	uses := keystore.NewLastUsed(keys, keystore.LastUsedOptions{})
	api := middleware.NewAPI(keys, middleware.Options{
		Base:      "/v2",
		LastUsed:  uses,
		RateLimit: limits,
		Idempotency: middleware.IdempotencyOptions{
			Runner:   idem.NewRunner(replyTable, idem.Options{Join: true, Draining: ctx.Done()}),
			Required: true, // so that each create has a transaction
		},
	})
	api.HandleFunc("POST /v2/parcels", middleware.Require("parcels:write"), create)
	api.HandleFunc("GET /v2/parcels", middleware.Require("parcels:read"), count(db))

	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Print("listening on http://", ln.Addr())
	return api.Serve(ctx, new(http.Server), ln,
		keys.Run,       // hears of keys that others revoke
		uses.Run,       // writes when keys were used
		replyTable.Run) // removes replies that have expired
}
