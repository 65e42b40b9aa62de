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

// newSallyport is the README's program. Its budget for replies is larger, because
// a benchmark creates more for one organization than the default has room for.
func newSallyport(s *Setup) Server {
	a := application{s}
	quiet := slog.New(slog.DiscardHandler)
	keys := keystore.NewCached(s, keystore.CacheOptions{Logger: quiet})
	api := middleware.NewAPI(keys, middleware.Options{
		Limits:  middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.Limit{Count: int64(s.Limit), Period: s.Period}),
		Replies: idem.NewMemory(idem.MemoryOptions{Budget: 8 << 30, Share: 8 << 30, Logger: quiet}),
		Hooks:   &middleware.Hooks{Logger: quiet},
	})
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), a.list)
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), a.list)
	api.Handle("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), http.HandlerFunc(a.post))
	api.HandleFunc("GET /api/v1/half", middleware.Require(scope.TasksRead), a.half)
	return netHTTP{api}
}
