package idemredis_test

import (
	"context"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// All servers of a fleet know what each of them has begun and answered.
func Example() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"redis:6379"}})
	replies := idemredis.New(client, idemredis.Options{})

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := replies.Check(ctx); err != nil {
		log.Fatal(err)
	}

	keys := keystore.NewMemory() // and for a fleet, keysql
	_ = middleware.NewAPI(keys, middleware.Options{Replies: replies})
}

// A Redis that does not answer yet need not keep a program from starting: until it
// does, requests with an Idempotency-Key get 503.
func ExampleStore_Check() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"redis:6379"}})
	replies := idemredis.New(client, idemredis.Options{})
	if err := replies.Check(context.Background()); err != nil {
		slog.Warn("replies may be lost", "error", err)
	}
}
