package main

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// newAPI returns the routes, each with the scope that it asks for.
func newAPI(keys keystore.Store, used *keystore.Uses, rate ratelimit.Limit) *middleware.API {
	limits := middleware.RateLimitOptions{
		Store:        &ratelimit.Memory{},
		Organization: &ratelimit.Policy{Name: "organization", Limit: rate},
		Sandbox:      &ratelimit.Policy{Name: "sandbox", Limit: ratelimit.MustParse("25-S")},
	}
	api := middleware.NewAPI(keys, middleware.Options{Uses: used, RateLimit: limits})
	tasks := &tasks{byTenant: make(map[string][]task)}
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), account)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), tasks.create)
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), tasks.list)
	api.HandleFunc("GET /api/v1/tasks/{id}", middleware.Require(scope.TasksRead), tasks.find)
	api.HandleFunc("POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksCancel), tasks.cancel)
	return api
}

// handler puts the console beside the API, which answers all other paths: 401
// without a key. A ServeMux would redirect paths such as //api/v1/tasks before
// anybody asks for one.
func handler(api *middleware.API, console http.Handler) http.Handler {
	root := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path+"/", consolePath+"/") {
			console.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	}
	return middleware.Chain(api.Guard().RequestID, api.Guard().Recover)(http.HandlerFunc(root))
}

// account answers with what the key that called stands for.
func account(w http.ResponseWriter, r *http.Request) {
	caller := middleware.CallerFrom(r.Context())
	writeJSON(w, http.StatusOK, map[string]any{
		"organization": caller.Organization(),
		"environment":  caller.Environment(),
		"key":          caller.KeyID(),
		"scopes":       caller.Scopes(),
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has left
}
