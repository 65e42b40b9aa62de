package bench

import (
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/scope"
)

// PeersOnRedis are Sallyport on the Redis at an address: with a plain client,
// with units taken ahead, and with a client that pipelines commands as well.
// They wait for Redis so long that a busy machine decides nothing without it.
func PeersOnRedis(addr string) []Peer {
	on := func(ahead time.Duration, pipelines bool) func(*Setup) Server {
		return func(s *Setup) Server { return newSallyportOnRedis(s, addr, ahead, pipelines) }
	}
	return []Peer{
		{"redis", true, true, on(0, false)},
		{"redis-ahead", true, true, on(100*time.Millisecond, false)},
		{"redis-ahead-pipelines", true, true, on(100*time.Millisecond, true)},
	}
}

func newSallyportOnRedis(s *Setup, addr string, ahead time.Duration, pipelines bool) Server {
	quiet := slog.New(slog.DiscardHandler)
	plain := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 64})
	var client interface {
		redis.Scripter
		idemredis.Client
	} = plain
	if pipelines {
		auto, err := plain.AutoPipeline()
		if err != nil {
			panic(err)
		}
		client = auto
	}
	limits := ratelimitredis.New(client, ratelimitredis.Options{
		Ahead: ahead, Failover: ratelimit.FailoverOptions{Budget: time.Minute, Logger: quiet},
	})
	replies := idemredis.New(client, idemredis.Options{})
	a := application{s}
	api := middleware.NewAPI(cached(s), middleware.Options{
		RateLimit: middleware.PerOrganization(limits, ratelimit.Limit{Count: int64(s.Limit), Period: s.Period}),
		Idempotency: middleware.IdempotencyOptions{Runner: idem.NewRunner(replies,
			idem.Options{Timeout: time.Minute, Logger: quiet})},
		Hooks: &middleware.Hooks{Logger: quiet},
	})
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), a.list)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), a.post)
	return netHTTP{api}
}
