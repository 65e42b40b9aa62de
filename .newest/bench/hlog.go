package bench

import (
	"crypto/sha256"
	"net/http"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/rs/zerolog/hlog"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

// recovered is the recovery that everybody writes.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// newHlog is zerolog's request id, golang-lru before the table of keys, and
// ulule's own middleware, on http.ServeMux.
func newHlog(s *Setup) Server {
	a := application{s}
	cache, err := lru.New[[32]byte, *identity](100_000)
	must(err)
	find := func(token string) (*identity, error) {
		d := sha256.Sum256([]byte(token))
		if i, ok := cache.Get(d); ok {
			return i, nil
		}
		i, err := s.hand.digest(d)
		if err == nil {
			cache.Add(d, i)
		}
		return i, err
	}
	limit := stdlib.NewMiddleware(limiter.New(memory.NewStore(), limiter.Rate{Limit: int64(s.Limit), Period: s.Period}),
		stdlib.WithKeyGetter(func(r *http.Request) string { return identityOf(r).org }))

	m := a.routes(a.post)
	return netHTTP{hlog.RequestIDHandler("", "X-Request-Id")(recovered(bearer(find)(limit.Handler(m))))}
}
