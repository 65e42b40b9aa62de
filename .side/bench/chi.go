package bench

import (
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
)

// newChi is chi with its own request id and recovery, and httprate by
// organization. chi's request id is put on the request only, so one line puts
// it on the response.
func newChi(s *Setup) Server {
	a := application{s}
	m := chi.NewRouter()
	m.Use(middleware.RequestID, sendRequestID, middleware.Recoverer, bearer(s.hand.find),
		httprate.LimitBy(s.Limit, s.Period, organizationOf))
	m.Get("/api/v1/tasks", need("tasks:read", a.list))
	m.Get("/api/v1/account", need("account:read", a.list))
	m.Post("/api/v1/tasks", need("tasks:write", a.post))
	m.Get("/api/v1/half", need("tasks:read", a.half))
	return netHTTP{m}
}
