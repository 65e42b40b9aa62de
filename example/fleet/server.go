package main

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	pathpkg "path"
	"strings"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

const basePath = "/api/v1"

// newServer puts the API and its routes together. The server tells the API when
// it is shut down.
func newServer(c config, s stores, lastUsed *keystore.Uses, logger *slog.Logger) (*http.Server, *middleware.API) {
	draining := make(chan struct{})
	replies := idem.NewRunner(s.replies, idem.Options{Join: s.inDatabase, Wait: c.patience, Timeout: c.patience,
		Draining: draining, Logger: logger})
	api := middleware.NewAPI(s.keys, middleware.Options{
		Base: basePath,
		Uses: lastUsed,
		RateLimit: middleware.RateLimitOptions{
			Store:        s.limits,
			Organization: &ratelimit.Policy{Name: "organization", Limit: c.rate},
			Sandbox:      &ratelimit.Policy{Name: "sandbox", Limit: c.sandboxRate},
		},
		Idempotency: middleware.IdempotencyOptions{Runner: replies, Timeout: c.patience},
		Hooks:       &middleware.Hooks{Logger: logger},
	})

	tasks := &tasks{store: s.tasks, latency: c.latency, logger: logger}
	// What a handler waits for its database. The server's WriteTimeout ends no
	// handler.
	timeout := c.latency + cmp.Or(c.patience, 4*time.Second)
	api.HandleFunc("GET "+basePath+"/account", middleware.Require(scope.AccountRead), account)
	api.HandleFunc("POST "+tasksPath, middleware.Require(scope.TasksWrite), within(timeout, tasks.create))
	api.HandleFunc("GET "+tasksPath, middleware.Require(scope.TasksRead), within(timeout, tasks.list))
	api.HandleFunc("GET "+tasksPath+"/{id}", middleware.Require(scope.TasksRead), within(timeout, tasks.find))
	api.HandleFunc("POST "+tasksPath+"/{id}/cancel", middleware.Require(scope.TasksCancel), within(timeout, tasks.cancel))

	// No mux stands before the API: it would answer some paths without a key,
	// with a redirect to what it takes for a better one.
	root := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, basePath+"/"), strings.HasPrefix(pathpkg.Clean(path)+"/", basePath+"/"):
			api.ServeHTTP(w, r)
		case path == "/healthz": // the process runs
			io.WriteString(w, "ok\n")
		case path == "/readyz": // it can answer requests: not while a store is away, nor while it drains
			select {
			case <-draining:
				http.Error(w, "draining", http.StatusServiceUnavailable)
			default:
				s.serveReady(w, r)
			}
		default:
			middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusNotFound, Code: "not_found",
				Detail: "There is nothing at this path. The API is under " + basePath + "."})
		}
	})
	srv := &http.Server{Handler: api.Guard().RequestID(root), MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn)}
	srv.RegisterOnShutdown(sync.OnceFunc(func() { close(draining) })) // so that duplicates stop waiting for each other
	return srv, api
}

func within(d time.Duration, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		h(w, r.WithContext(ctx))
	}
}

// account answers with what the key that called stands for.
func account(w http.ResponseWriter, r *http.Request) {
	c := middleware.CallerFrom(r.Context())
	writeJSON(w, http.StatusOK, map[string]any{"organization": c.Organization(), "environment": c.Environment(),
		"key": c.KeyID(), "scopes": c.Scopes()})
}
