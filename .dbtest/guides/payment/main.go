// Payment takes payments with pgx. A payment and its reply are one transaction;
// afterwards the payment service is told, with a key that makes it charge once.
// The keys are in memory; ../api keeps them in the database.
//
//	export DATABASE_URL=postgres://127.0.0.1/payments CHARGES=http://127.0.0.1:9000/charges
//	go run . # prints export KEY=…
//	curl -i -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: 1' \
//	  -d '{"cents": 250}' http://127.0.0.1:8080/v2/payments
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	replies := idempgx.New(pool, idempgx.Options{})
	// The lock lets servers that start together make the table one after the other.
	_, err = pool.Exec(ctx, `DO $$ BEGIN
		PERFORM pg_advisory_xact_lock(4711);
		CREATE TABLE IF NOT EXISTS payments (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			tenant text NOT NULL, cents bigint NOT NULL, charged timestamptz);
		END $$`)
	check(errors.Join(err, replies.Migrate(ctx), replies.Check(ctx)))

	keys, issuer := issuing.InMemory(keystore.Service{Scopes: scope.New(scope.Definition{Name: "payments:write"})})
	secret, _, err := issuer.Issue(ctx, keystore.Key{
		Organization: "org_1", Environment: keystore.Production, Scopes: []scope.Name{"payments:write"}})
	check(err)
	fmt.Println("export KEY=" + secret.Reveal())
	api := middleware.NewAPI(keys, middleware.Options{Base: "/v2", Idempotency: middleware.IdempotencyOptions{
		Runner: idem.NewRunner(replies, idem.Options{Join: true, Draining: ctx.Done()}), Required: true}})
	api.HandleFunc("POST /v2/payments", middleware.Require("payments:write"), create)

	ln, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	check(err)
	log.Print("listening on http://", ln.Addr())
	check(api.Serve(ctx, new(http.Server), ln, replies.Run, func(ctx context.Context) error {
		for ctx.Err() == nil {
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return charge(ctx, tx) })
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				log.Print("charge: ", err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		return ctx.Err()
	}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// create charges nothing: that would stand if the transaction then fails.
func create(w http.ResponseWriter, r *http.Request) {
	var payment struct{ ID, Cents int64 }
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&payment)
	if err != nil || payment.Cents <= 0 {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 400, Code: "bad_request", Detail: `Send {"cents": 250}.`})
		return
	}
	tx, _ := idempgx.Tx(r.Context()) // there is one, because an Idempotency-Key is Required
	err = tx.QueryRow(r.Context(), "INSERT INTO payments (tenant, cents) VALUES ($1, $2) RETURNING id",
		middleware.CallerFrom(r.Context()).Tenant(), payment.Cents).Scan(&payment.ID)
	if err != nil {
		log.Printf("request %s: %v", middleware.RequestIDFrom(r.Context()), err)
		middleware.WriteProblem(w, r, middleware.Problem{Status: 500, Code: "internal"})
		return // a 500 rolls back and frees the key
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "payment %d of %d cents\n", payment.ID, payment.Cents)
}

// charge tells the payment service of one payment. If the commit fails it does
// so again, with the same key.
func charge(ctx context.Context, tx pgx.Tx) error {
	var id, cents int64
	err := tx.QueryRow(ctx, `UPDATE payments SET charged = now() WHERE id = (SELECT id FROM payments
		WHERE charged IS NULL ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, cents`).Scan(&id, &cents)
	if err != nil {
		return err // pgx.ErrNoRows: all are charged
	}
	r, err := http.NewRequestWithContext(ctx, "POST", os.Getenv("CHARGES"), strings.NewReader(fmt.Sprint("cents=", cents)))
	if err != nil {
		return err
	}
	r.Header.Set("Idempotency-Key", fmt.Sprint("payment-", id))
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("payment %d: the payment service answered %s", id, resp.Status)
	}
	return nil
}
