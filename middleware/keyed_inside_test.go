package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// TestRefusalInsideFreesTheKey: a limiter inside Idempotent frees the key of a
// request that it refuses, unless a handler may have worked before.
func TestRefusalInsideFreesTheKey(t *testing.T) {
	type wrapped = func(limited http.Handler) http.HandlerFunc
	forward := func(make func(r *http.Request) *http.Request) wrapped {
		return func(limited http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { limited.ServeHTTP(w, make(r)) }
		}
	}
	rows := []struct {
		name  string
		wrap  wrapped
		frees bool
	}{
		{"nothing between", forward(func(r *http.Request) *http.Request { return r }), true},
		{"a copy", forward(func(r *http.Request) *http.Request {
			return r.WithContext(context.WithValue(r.Context(), outsideKey{}, 1))
		}), true},
		{"StripPrefix", func(limited http.Handler) http.HandlerFunc {
			return http.StripPrefix("/api", limited).ServeHTTP
		}, true},
		{"another path", forward(func(r *http.Request) *http.Request {
			other := r.WithContext(r.Context())
			other.URL = &url.URL{Path: "/limited"}
			return other
		}), false},
		{"another query", forward(func(r *http.Request) *http.Request {
			other := r.WithContext(r.Context())
			other.URL = &url.URL{Path: r.URL.Path, RawQuery: "a=b"}
			return other
		}), false},
		{"another method", forward(func(r *http.Request) *http.Request {
			other := r.WithContext(r.Context())
			other.Method = "PUT"
			return other
		}), false},
		{"a request of the handler", forward(func(r *http.Request) *http.Request {
			other, _ := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), nil)
			return other
		}), false},
		{"an interim response", func(limited http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				limited.ServeHTTP(w, r)
			}
		}, false},
		{"the body was read and rewound", forward(func(r *http.Request) *http.Request {
			_, _ = io.Copy(io.Discard, r.Body)
			if body, ok := r.Body.(io.Seeker); ok {
				_, _ = body.Seek(0, io.SeekStart)
			}
			return r
		}), false},
		{"the body was read", forward(func(r *http.Request) *http.Request {
			_, _ = io.ReadAll(r.Body)
			return r
		}), false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			ring, token := oneKey(t)
			g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(),
				RateLimit: perOrganization(&ratelimit.Memory{}, ratelimit.Limit{Count: 1, Period: 24 * time.Hour})})
			worked := 0
			inner := row.wrap(g.RateLimit(http.HandlerFunc(sayOK)))
			h := keyed(ring, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
				worked++
				inner(w, r)
			})
			for _, key := range []string{"spends", "a", "a"} {
				serve(h, request("POST", "/api/tasks", token, "{}", "Idempotency-Key: "+key))
			}
			if want := map[bool]int{false: 2, true: 3}[row.frees]; worked != want {
				t.Errorf("the handler ran %d times, want %d", worked, want)
			}
		})
	}
}
