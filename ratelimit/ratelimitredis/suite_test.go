package ratelimitredis_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

// refused is a client without a server.
func refused(t testing.TB) redis.UniversalClient {
	return redistest.Connect(t, &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
}

func TestSuite(t *testing.T) {
	t.Parallel()
	client := redistest.Connect(t, redistest.Options(t))
	store := patientStore(t, client)
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store { return store },
		Unavailable: func(t *testing.T) ratelimit.Store {
			return ratelimitredis.New(refused(t), ratelimitredis.Options{}).Counters()
		},
		Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// The Redis store of ulule/limiter, which a team may have already.
func TestSuiteOfUlule(t *testing.T) {
	t.Parallel()
	client := redistest.Connect(t, redistest.Options(t))
	store, err := ulule.NewStoreWithOptions(client, limiter.StoreOptions{Prefix: "{" + redistest.OwnPrefix(t, client) + "}"})
	if err != nil {
		t.Fatal(err)
	}
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store { return ratelimit.FromLimiter(store) },
		Unavailable: func(t *testing.T) ratelimit.Store {
			server := redistest.Start(t)
			store, err := ulule.NewStore(server.Client())
			if err != nil {
				t.Fatal(err)
			}
			server.Kill()
			return ratelimit.FromLimiter(store)
		},
	}.Run(t)
}

// With units ahead the Store decides as without. In a bubble, since units in
// hand lapse while a slow machine does something else, and are then missing.
func TestSuiteAhead(t *testing.T) {
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return aheadOn(newFake(0)) },
		Atomic: true, Smooth: true, DenialWritesNothing: true, Bubble: true,
	}.Run(t)
}
