package idemredis_test

import (
	"context"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
)

// All servers of a fleet know what each of them has begun and answered.
func Example() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"redis:6379"}})
	store := idemredis.New(client, idemredis.Options{})

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := store.Check(ctx); err != nil {
		log.Fatal(err)
	}

	keys := issuing.NewMemory() // and for a fleet, keysql
	replies := idem.NewRunner(store, idem.Options{})
	_ = middleware.NewAPI(keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies}})
}

// A Redis that does not answer yet need not keep a program from starting: until
// it does, requests with an Idempotency-Key get 503.
func ExampleStore_Check() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"redis:6379"}})
	store := idemredis.New(client, idemredis.Options{})
	if err := store.Check(context.Background()); err != nil {
		slog.Warn("replies may be lost", "error", err)
	}
}
