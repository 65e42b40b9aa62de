// Payment takes payments with pgx. The payment, the message to the payment
// service and the reply are one transaction; outbox.go sends the message.
// The keys are in memory; ../api keeps them in the database.
//
//	export DATABASE_URL=postgres://127.0.0.1/payments
//	go run . -service http://127.0.0.1:9000/charges # prints export KEY=…
//	curl -i -H "Authorization: Bearer $KEY" -H 'Idempotency-Key: 1' \
//	  -d '{"cents": 250}' http://127.0.0.1:8080/v2/payments
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	service := flag.String("service", "http://127.0.0.1:9000/charges", "`URL` of the payment service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, *addr, *service); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, service string) error {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	config.MaxConns = 16 // creates hold one each while they run, and together at most half of them
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	replies := idempgx.New(pool, idempgx.Options{})
	start, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	_, err = pool.Exec(start, `
		CREATE TABLE IF NOT EXISTS payments (
			id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant text NOT NULL, cents bigint NOT NULL);
		CREATE TABLE IF NOT EXISTS outbox (
			payment bigint PRIMARY KEY REFERENCES payments, due timestamptz NOT NULL DEFAULT now())`)
	if err != nil {
		return err
	}
	if err := replies.Migrate(start); err != nil {
		return err
	}
	if err := replies.Check(start); err != nil {
		return err
	}

	keys, issuer := issuing.InMemory(keystore.Service{
		Prefix: "acme", Scopes: scope.New(scope.Definition{Name: "payments:write", Meaning: "Make payments."}),
	})
	api := middleware.NewAPI(keys, middleware.Options{
		Base: "/v2",
		Idempotency: middleware.IdempotencyOptions{
			Runner:   idem.NewRunner(replies, idem.Options{Join: true, Draining: ctx.Done()}),
			Required: true, // so that each payment has a transaction
		},
	})
	api.HandleFunc("POST /v2/payments", middleware.Require("payments:write"), create)
	secret, _, err := issuer.Issue(start, keystore.Key{
		Organization: "org_1", Environment: keystore.Production, Scopes: []scope.Name{"payments:write"},
	})
	if err != nil {
		return err
	}

	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println("export KEY=" + secret.Reveal())
	log.Print("listening on http://", ln.Addr())
	return api.Serve(ctx, new(http.Server), ln, replies.Run, func(ctx context.Context) error {
		return deliver(ctx, pool, service)
	})
}

// create makes a payment, and leaves a message for the payment service.
func create(w http.ResponseWriter, r *http.Request) {
	var payment struct{ Cents int64 }
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&payment)
	if err != nil || payment.Cents <= 0 {
		middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusBadRequest, Code: "bad_request",
			Detail: `Send JSON such as {"cents": 250}.`})
		return
	}
	tx, _ := idempgx.Tx(r.Context()) // there is one: the API requires an Idempotency-Key
	caller := middleware.CallerFrom(r.Context())
	var id int64
	err = tx.QueryRow(r.Context(), "INSERT INTO payments (tenant, cents) VALUES ($1, $2) RETURNING id",
		caller.Tenant(), payment.Cents).Scan(&id)
	if err == nil {
		// Not a call: its charge would stand if the transaction then fails.
		_, err = tx.Exec(r.Context(), "INSERT INTO outbox (payment) VALUES ($1)", id)
	}
	if err != nil {
		log.Printf("request %s: %v", middleware.RequestIDFrom(r.Context()), err)
		middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusInternalServerError, Code: "internal"})
		return // a 500 rolls back and frees the key
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]int64{"id": id, "cents": payment.Cents}) // an error: the client has left
}
