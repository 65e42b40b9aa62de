package bench

import (
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// newChi is chi with its own request id and recovery, and httprate by
// organization. chi's request id is put on the request only, so one line puts
// it on the response.
func newChi(s *Setup) Server {
	a := application{s}
	m := chi.NewRouter()
	m.Use(chimiddleware.RequestID, sendRequestID, chimiddleware.Recoverer, bearer(s.hand.find),
		httprate.LimitBy(s.Limit, s.Period, organizationOf))
	m.Get("/api/v1/tasks", need("tasks:read", a.list))
	m.Get("/api/v1/account", need("account:read", a.list))
	m.Post("/api/v1/tasks", need("tasks:write", a.post))
	m.Get("/api/v1/half", need("tasks:read", a.half))
	return netHTTP{m}
}

// newRecipe is Sallyport in chi, as the recipes tell users of other routers to
// write it.
func newRecipe(s *Setup) Server {
	a := application{s}
	g := middleware.New(cached(s), options(s))
	m := chi.NewRouter()
	m.Use(g.RequestID, g.Recover, g.Authenticate, g.RateLimit)
	m.With(g.Enforce(middleware.Require(scope.TasksRead))).Get("/api/v1/tasks", a.list)
	m.With(g.Enforce(middleware.Require(scope.AccountRead))).Get("/api/v1/account", a.list)
	m.With(g.Enforce(middleware.Require(scope.TasksWrite)), g.Idempotent).Post("/api/v1/tasks", a.post)
	m.With(g.Enforce(middleware.Require(scope.TasksRead))).Get("/api/v1/half", a.half)
	return netHTTP{m}
}
