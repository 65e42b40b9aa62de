package main

import (
	"io"
	"log/slog"
	"net/http"
	pathpkg "path"
	"strings"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

const basePath = "/api/v1"

// newServer puts the API and its routes together. The server tells the API when it is shut down. Without a developer there is
// no console.
func newServer(c config, s stores, developer http.Handler, lastUsed *keystore.LastUsed, logger *slog.Logger) (*http.Server, *middleware.API) {
	hooks := &middleware.Hooks{Logger: logger}
	requestID := middleware.RequestIDOptions{Header: c.requestIDHeader, Hooks: hooks}
	limits := middleware.PerOrganization(s.limits, c.rate)
	limits.Sandbox = &ratelimit.Policy{Name: "sandbox", Limit: c.sandboxRate}
	draining := make(chan struct{})

	api := middleware.NewAPI(s.keys, middleware.Options{
		Base:        basePath,
		Format:      c.format,
		RequestID:   requestID,
		Auth:        middleware.AuthOptions{LastUsed: lastUsed},
		Limits:      limits,
		Replies:     s.replies,
		Idempotency: middleware.IdempotencyOptions{Draining: draining, Join: s.joined},
		Hooks:       hooks,
	})
	tasks := &tasks{store: s.tasks, latency: c.latency, logger: logger}
	api.HandleFunc("GET "+basePath+"/account", middleware.Require(scope.AccountRead), account)
	api.HandleFunc("POST "+tasksPath, middleware.Require(scope.TasksWrite), tasks.create)
	api.HandleFunc("GET "+tasksPath, middleware.Require(scope.TasksRead), tasks.list)
	api.HandleFunc("GET "+tasksPath+"/{id}", middleware.Require(scope.TasksRead), tasks.find)
	api.HandleFunc("POST "+tasksPath+"/{id}/cancel", middleware.Require(scope.TasksCancel), tasks.cancel)

	// No mux stands before the API: it would answer some paths without a key, with a redirect to what it takes for a better one.
	root := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, basePath+"/"), strings.HasPrefix(pathpkg.Clean(path)+"/", basePath+"/"):
			api.ServeHTTP(w, r)
		case path == "/healthz":
			io.WriteString(w, "ok\n")
		case developer != nil && (path+"/" == developerPath || strings.HasPrefix(path, developerPath)):
			developer.ServeHTTP(w, r)
		default:
			middleware.WriteProblem(w, r, middleware.Problem{
				Status: http.StatusNotFound,
				Code:   "not_found",
				Detail: "There is nothing at this path. The API is under " + basePath + ".",
			})
		}
	})

	srv := &http.Server{
		Handler:           middleware.RequestID(requestID)(root),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	srv.RegisterOnShutdown(sync.OnceFunc(func() { close(draining) })) // so that duplicates stop waiting for each other
	return srv, api
}
