package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

// TestWaitSettled: a shutdown waits for creates that run, as long as its
// context lets it.
func TestWaitSettled(t *testing.T) {
	type settler interface {
		WaitSettled(context.Context) error
	}
	for name, build := range map[string]func(*keyring, middleware.Options, http.Handler) (settler, http.Handler){
		"guard": func(ring *keyring, o middleware.Options, create http.Handler) (settler, http.Handler) {
			g := middleware.New(ring.keys, o)
			return g, middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey, g.Idempotent)(create)
		},
		"API": func(ring *keyring, o middleware.Options, create http.Handler) (settler, http.Handler) {
			api := middleware.NewAPI(ring.keys, o)
			api.Handle("POST /api/v1/tasks", middleware.AnyKey(), create)
			return api, api
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ring := newKeyring()
				token := ring.issue(t)
				var runs atomic.Int64
				s, h := build(ring, middleware.Options{
					Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()},
				}, numbered(&runs, func(*http.Request) { time.Sleep(10 * time.Second) }))
				go h.ServeHTTP(httptest.NewRecorder(), request("POST", "/api/v1/tasks", token, "{}", "Idempotency-Key: a"))
				synctest.Wait()

				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := s.WaitSettled(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("after a second: got %v, want %v", err, context.DeadlineExceeded)
				}
				begun := time.Now()
				if err := s.WaitSettled(t.Context()); err != nil {
					t.Error(err)
				}
				if waited := time.Since(begun); waited != 9*time.Second {
					t.Errorf("waited %v, want the 9s that the create took", waited)
				}
			})
		})
	}
}

// WaitSettled waits for the runs of every Runner, a route's own included.
func TestWaitSettledOfARoute(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	begun, end := make(chan struct{}), make(chan struct{})
	own := middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Runner: replies()}}
	api.HandleWith("POST /api/v1/x", middleware.AnyKey(), own, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-end
		w.WriteHeader(http.StatusCreated)
	}))
	answered := make(chan answer, 1)
	go func() { answered <- serve(api, request("POST", "/api/v1/x", token, "{}", "Idempotency-Key: a")) }()
	<-begun
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := api.WaitSettled(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("while the handler runs: got %v, want the error of the context", err)
	}
	close(end)
	if a := <-answered; a.StatusCode != http.StatusCreated {
		t.Fatalf("got %d", a.StatusCode)
	}
	if err := api.WaitSettled(t.Context()); err != nil {
		t.Error(err)
	}
}
