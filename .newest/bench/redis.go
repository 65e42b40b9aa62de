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

// PeersOnRedis are Sallyport on the Redis at an address: without units taken
// ahead, and with them. They wait for Redis so long that a busy machine decides
// nothing without it.
func PeersOnRedis(addr string) []Peer {
	on := func(ahead time.Duration) func(*Setup) Server {
		return func(s *Setup) Server { return newSallyportOnRedis(s, addr, ahead) }
	}
	return []Peer{
		{"redis", true, true, on(0)},
		{"redis-ahead", true, true, on(100 * time.Millisecond)},
	}
}

func newSallyportOnRedis(s *Setup, addr string, ahead time.Duration) Server {
	quiet := slog.New(slog.DiscardHandler)
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 64})
	limits := ratelimitredis.New(client, ratelimitredis.Options{
		Ahead: ahead, Failover: ratelimit.FailoverOptions{Timeout: time.Minute, Logger: quiet},
	})
	replies := idemredis.New(client, idemredis.Options{})
	a := application{s}
	api := middleware.NewAPI(cached(s), middleware.Options{
		RateLimit: perOrganization(limits, s),
		Idempotency: middleware.IdempotencyOptions{Runner: idem.NewRunner(replies,
			idem.Options{Timeout: time.Minute, Logger: quiet})},
		Hooks: &middleware.Hooks{Logger: quiet},
	})
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), a.list)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), a.post)
	return netHTTP{api}
}
