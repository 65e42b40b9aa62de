package ratelimitredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// All servers of a fleet count together. While Redis is unreachable, each
// server counts by itself with the same limits.
func Example() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                 []string{"redis:6379"},
		ContextTimeoutEnabled: true,
	})
	limits := middleware.PerOrganization("100-S")
	limits.Store = ratelimitredis.New(client, ratelimitredis.Options{})
	_ = middleware.NewAPI(issuing.NewMemory(), middleware.Options{RateLimit: limits})
}

// There is no server at this address. Each policy says what happens then.
func ExampleNew_unavailable() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	store := ratelimitredis.New(client, ratelimitredis.Options{
		Failover: ratelimit.FailoverOptions{Timeout: 20 * time.Millisecond},
	})
	take := func(p ratelimit.Policy) {
		d, err := store.Take(context.Background(), []ratelimit.Charge{{Policy: &p, Bucket: "org_1", Cost: 1}})
		fmt.Println(d.Allowed, d.States[0].Remaining, err != nil)
	}
	take(ratelimit.Policy{Name: "api", Limit: ratelimit.MustParse("100-S")})
	take(ratelimit.Policy{Name: "exports", Limit: ratelimit.MustParse("5-H"), Fallback: ratelimit.Closed})
	// Output:
	// true 99 false
	// false 0 true
}
