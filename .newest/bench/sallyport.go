package bench

import (
	"log/slog"
	"net/http"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// options are those of the README's program. The budget for replies is larger,
// because a benchmark creates more for one organization than the default has
// room for.
func options(s *Setup) middleware.Options {
	quiet := slog.New(slog.DiscardHandler)
	replies := &idem.Memory{Budget: 8 << 30, Logger: quiet}
	return middleware.Options{
		RateLimit:   perOrganization(&ratelimit.Memory{}, s),
		Idempotency: middleware.IdempotencyOptions{Runner: idem.NewRunner(replies, idem.Options{Logger: quiet})},
		Hooks:       &middleware.Hooks{Logger: quiet},
	}
}

func perOrganization(store ratelimit.Store, s *Setup) middleware.RateLimitOptions {
	limit := ratelimit.Limit{Count: int64(s.Limit), Period: s.Period}
	return middleware.RateLimitOptions{Store: store, Organization: &ratelimit.Policy{Name: "organization", Limit: limit}}
}

func cached(s *Setup) *keystore.Cached {
	return keystore.NewCached(s, keystore.CacheOptions{Size: 20 * ManyKeys, Logger: slog.New(slog.DiscardHandler)})
}

// newSallyport is an API as in the README's program.
func newSallyport(s *Setup) Server {
	a := application{s}
	api := middleware.NewAPI(cached(s), options(s))
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), a.list)
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), a.list)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), a.post)
	api.HandleFunc("GET /api/v1/half", middleware.Require(scope.TasksRead), a.half)
	return netHTTP{api}
}

// newPieces is the same as a chain of pieces around a mux.
func newPieces(s *Setup) Server {
	a := application{s}
	g := middleware.New(cached(s), options(s))
	mux := http.NewServeMux()
	mux.Handle("GET /api/v1/tasks", g.Enforce(middleware.Require(scope.TasksRead))(http.HandlerFunc(a.list)))
	mux.Handle("GET /api/v1/account", g.Enforce(middleware.Require(scope.AccountRead))(http.HandlerFunc(a.list)))
	mux.Handle("POST /api/v1/tasks",
		g.Enforce(middleware.Require(scope.TasksWrite))(g.Idempotent(http.HandlerFunc(a.post))))
	mux.Handle("GET /api/v1/half", g.Enforce(middleware.Require(scope.TasksRead))(http.HandlerFunc(a.half)))
	return netHTTP{middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.RateLimit)(mux)}
}
