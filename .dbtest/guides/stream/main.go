// Stream takes many parcels in one request, and says line by line which it has
// sent. A client that was cut off sends the request again, and gets all lines.
// The keys are in memory; ../api keeps them in the database.
//
//	export DATABASE_URL=postgres://127.0.0.1/parcels
//	go run . # prints export KEY=…
//	curl -N -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: 1' \
//	  -d '["Lisbon", "Oslo"]' http://127.0.0.1:8080/v2/imports
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	db.SetMaxOpenConns(16)
	replies := idemsql.Postgres(db, idemsql.Options{})
	// The lock lets servers that start together make the table one after the other.
	_, err = db.ExecContext(ctx, `DO $$ BEGIN
		PERFORM pg_advisory_xact_lock(4711);
		CREATE TABLE IF NOT EXISTS parcels (
			id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant text NOT NULL, target text NOT NULL);
		END $$`)
	check(errors.Join(err, replies.Migrate(ctx), replies.Check(ctx)))

	keys, issuer := issuing.InMemory(keystore.Service{Scopes: scope.New(scope.Definition{Name: "parcels:write"})})
	secret, _, err := issuer.Issue(ctx, keystore.Key{
		Organization: "org_1", Environment: keystore.Production, Scopes: []scope.Name{"parcels:write"}})
	check(err)
	fmt.Println("export KEY=" + secret.Reveal())
	api := middleware.NewAPI(keys, middleware.Options{Base: "/v2", Idempotency: middleware.IdempotencyOptions{
		// With leases: a joined transaction ends with the first line.
		Runner:   idem.NewRunner(replies, idem.Options{Draining: ctx.Done()}),
		Required: true,
	}})
	api.HandleFunc("POST /v2/imports", middleware.Require("parcels:write"), importParcels(db))

	ln, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	check(err)
	log.Print("listening on http://", ln.Addr())
	check(api.Serve(ctx, new(http.Server), ln, replies.Run))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// importParcels sends parcels one by one. If the process dies in between, the
// first ones are sent and a repeat gets 409. A thousand lines fit MaxResponse: a
// longer response is not kept for repeats.
func importParcels(db *sql.DB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var targets []string
		if err := json.NewDecoder(r.Body).Decode(&targets); err != nil || len(targets) == 0 || len(targets) > 1000 {
			middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusBadRequest, Code: "bad_request",
				Detail: `Send a JSON list of at most 1000 targets, such as ["Lisbon", "Oslo"].`})
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson") // streams from its first flush on
		lines, client := json.NewEncoder(w), http.NewResponseController(w)
		for _, to := range targets {
			var id int64
			err := db.QueryRowContext(r.Context(), "INSERT INTO parcels (tenant, target) VALUES ($1, $2) RETURNING id",
				middleware.CallerFrom(r.Context()).Tenant(), to).Scan(&id)
			if err != nil {
				log.Printf("request %s: %v", middleware.RequestIDFrom(r.Context()), err)
				panic(http.ErrAbortHandler) // a stream that just ends would pass for a whole one
			}
			// An error means that the client has left: its repeat gets all lines.
			_ = lines.Encode(map[string]any{"id": id, "to": to})
			_ = client.Flush()
		}
	}
}
