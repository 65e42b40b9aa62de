package bench

import (
	"github.com/go-chi/chi/v5/middleware"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

// newSethvargo is go-limiter's middleware with a hand-written idempotency
// inside.
func newSethvargo(s *Setup) Server {
	a := application{s}
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(s.Limit), Interval: s.Period})
	must(err)
	limit, err := httplimit.NewMiddleware(store, organizationOf)
	must(err)
	m := a.routes(newHandReplies().handler(a.post))
	return netHTTP{middleware.RequestID(sendRequestID(recovered(bearer(s.hand.find)(limit.Handle(m)))))}
}
