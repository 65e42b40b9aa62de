package kitservers

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

type callerKey struct{}

func init() { middleware.RequestIDHeader = "X-Not-From-Clients" }

// Chi has a GCRA, an id of chi's own, one page of 20 tasks in a bare array,
// and duplicates that wait.
func Chi() http.Handler {
	t := newTasks()
	t.wait = true
	limit := &bucket{every: 25 * time.Millisecond, burst: 600 * time.Millisecond, tat: make(map[string]time.Time)}
	r := chi.NewRouter()
	r.Use(middleware.RequestID, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Svc-Request-Id", middleware.GetReqID(r.Context()))
			next.ServeHTTP(w, r)
		})
	}, middleware.Recoverer, middleware.GetHead)
	r.Route("/api/v1", func(r chi.Router) {
		r.Use(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c, status := authenticate(r.Header)
				if status != 0 {
					http.Error(w, "unauthorized", status)
					return
				}
				if wait := limit.admit(c.org); wait > 0 {
					w.Header().Set("Retry-After", retryAfter(wait))
					http.Error(w, "slow down", http.StatusTooManyRequests)
					return
				}
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
			})
		})
		scope := func(name string, h http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if !r.Context().Value(callerKey{}).(caller).may(name) {
					http.Error(w, "forbidden", http.StatusForbidden)
					return
				}
				h(w, r)
			}
		}
		r.Get("/account", scope("account:read", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]string{"id": r.Context().Value(callerKey{}).(caller).org,
				"now": time.Now().String()})
		}))
		r.Get("/tasks", scope("tasks:read", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(t.list(r.Context().Value(callerKey{}).(caller).org, 20))
		}))
		r.Post("/tasks", scope("tasks:write", func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, "bad body", 400)
				return
			}
			reply := t.create(r.Context().Value(callerKey{}).(caller).org, r.Header.Get("Idempotency-Key"), body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", reply.location)
			w.WriteHeader(reply.status)
			_, _ = w.Write(reply.body)
		}))
	})
	return r
}
