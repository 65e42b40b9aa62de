package bench

import (
	"net/http"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

// newSethvargo is go-limiter's middleware with a hand-written idempotency
// inside.
func newSethvargo(s *Setup) Server {
	a := application{s}
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(s.Limit), Interval: s.Period})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.NewMiddleware(store, organizationOf)
	if err != nil {
		panic(err)
	}
	m := http.NewServeMux()
	m.HandleFunc("GET /api/v1/tasks", need("tasks:read", a.list))
	m.HandleFunc("GET /api/v1/account", need("account:read", a.list))
	m.HandleFunc("POST /api/v1/tasks", need("tasks:write", newHandReplies().handler(a.post)))
	m.HandleFunc("GET /api/v1/half", need("tasks:read", a.half))
	return netHTTP{middleware.RequestID(sendRequestID(recovered(bearer(s.hand.find)(limit.Handle(m)))))}
}
