// Api sends parcels: an API with a prefix and scopes of its own. Postgres keeps
// the keys, the replies and the parcels, Redis counts the limits.
//
//	export DATABASE_URL=postgres://127.0.0.1/parcels REDIS_ADDR=127.0.0.1:6379
//	export KEY=$(go run . issue first -org org_1 -env production -scopes parcels:write)
//	go run . &
//	curl -i -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: 1' \
//	  -d '{"to": "Lisbon"}' http://127.0.0.1:8080/v2/parcels
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
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
	"github.com/sallyport-go/sallyport/keystore/keycli"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/scope"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	db.SetMaxOpenConns(16) // creates hold one each while they run, and together at most half of them

	start, cancel := context.WithTimeout(ctx, 15*time.Second) // look-ups wait behind a change of the tables
	defer cancel()
	keyTable, replyTable := keysql.Postgres(db, keysql.Options{}), idemsql.Postgres(db, idemsql.Options{})
	// The lock lets servers that start together make the table one after the other.
	_, err = db.ExecContext(start, `DO $$ BEGIN
		PERFORM pg_advisory_xact_lock(4711);
		CREATE TABLE IF NOT EXISTS parcels (
			id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant text NOT NULL, target text NOT NULL);
		END $$`)
	check(errors.Join(err, keyTable.Migrate(start), replyTable.Migrate(start)))
	check(errors.Join(keyTable.Check(start), replyTable.Check(start)))

	keys := keystore.NewCached(keyTable, keystore.CacheOptions{Service: keystore.Service{
		Prefix: "acme",
		Scopes: scope.New(scope.Definition{Name: "parcels:write", Meaning: "Send parcels."}),
	}})
	if len(os.Args) > 1 { // issue, list, revoke and the others: see -h
		os.Exit(keycli.Main(keycli.Config{Open: func(context.Context, func(string) string) (*issuing.Issuer, error) {
			return issuing.New(keys, issuing.Options{}), nil
		}}))
	}
	uses := keystore.NewUses(keys, keystore.UsesOptions{})
	counters := ratelimitredis.New(
		redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR"), ContextTimeoutEnabled: true}), ratelimitredis.Options{})
	check(counters.Ready(start))
	limits := middleware.PerOrganization("100-S") // a hundred a second
	limits.Store = counters
	api := middleware.NewAPI(keys, middleware.Options{
		Base:      "/v2",
		Uses:      uses,
		RateLimit: limits,
		Idempotency: middleware.IdempotencyOptions{
			Runner:   idem.NewRunner(replyTable, idem.Options{Join: true, Draining: ctx.Done()}),
			Required: true, // so that each create has a transaction
		},
	})
	api.HandleFunc("POST /v2/parcels", middleware.Require("parcels:write"), create)

	ln, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	check(err)
	log.Print("listening on http://", ln.Addr())
	check(api.Serve(ctx, new(http.Server), ln,
		keys.Run,        // hears of keys that others revoke
		uses.Run,        // writes when keys were used
		replyTable.Run)) // removes replies that have expired
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// create writes a parcel in the transaction that also has the reply.
func create(w http.ResponseWriter, r *http.Request) {
	var parcel struct{ To string }
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&parcel)
	if err != nil || parcel.To == "" {
		middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusBadRequest, Code: "bad_request",
			Detail: `Send JSON such as {"to": "Lisbon"}.`})
		return
	}
	tx, _ := idemsql.Tx(r.Context()) // there is one: the API requires an Idempotency-Key
	var id int64
	err = tx.QueryRowContext(r.Context(), "INSERT INTO parcels (tenant, target) VALUES ($1, $2) RETURNING id",
		middleware.CallerFrom(r.Context()).Tenant(), parcel.To).Scan(&id)
	if err != nil {
		log.Printf("request %s: %v", middleware.RequestIDFrom(r.Context()), err)
		middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusInternalServerError, Code: "internal"})
		return // a 500 rolls back and frees the key
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"id": id, "to": parcel.To}) // an error: the client has left
}
