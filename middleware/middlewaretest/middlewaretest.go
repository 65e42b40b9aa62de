// Package middlewaretest helps to test handlers that stand inside the stages of
// package middleware, without the stages, an API key or a store.
//
// For a handler that asks for the transaction of its request, see
// idemsql.WithTx. Package retrytest proves that handlers are safe to retry.
package middlewaretest

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/scope"
)

// As returns a copy of the request whose caller is an organization, in
// production, with these scopes of the registry; nil means scope.Default().
// middleware.CallerFrom returns it, and Guard.Enforce, RateLimit and
// Idempotent take it for authenticated. A Guard's Authenticate and an API do
// not: they want a key.
//
// As panics if there is no such scope. For a caller with an environment,
// subject or attributes of its own, see keystore.NewCaller and
// middleware.WithCaller.
func As(r *http.Request, registry *scope.Registry, organization string, scopes ...scope.Name) *http.Request {
	caller, err := keystore.NewCaller(registry, keystore.Identity{Organization: organization, Scopes: scopes})
	if err != nil {
		panic("middlewaretest: " + err.Error())
	}
	return r.WithContext(middleware.WithCaller(r.Context(), caller))
}

// Keyed returns a copy of the request as a handler inside Guard.Idempotent sees
// it: middleware.Execution.Attempt returns attempt, and freed reports whether the
// handler has called middleware.Execution.Free.
func Keyed(r *http.Request, attempt int) (_ *http.Request, freed func() bool) {
	claim := &keyed.Claim{Executions: attempt}
	return r.WithContext(keyed.WithClaim(r.Context(), claim)), claim.Freed.Load
}

// OpenRoutes sends a request to each route and returns the routes that do not
// ask for a scope, each with the status of its answer, as "DELETE /tasks/{id}:
// 500". The key must be an active one without scopes, and no limit may be in its
// way. A test compares the result with the routes that are meant for any
// caller:
//
//	open := middlewaretest.OpenRoutes(server, key, routes...)
//	if want := []string{"GET /account: 200"}; !slices.Equal(open, want) { … }
//
// A route is "METHOD /path", as [net/http.ServeMux] has patterns. The walks of
// chi and gorilla/mux find those that are registered; a ServeMux lists none. A
// wildcard, as {id}, {id:[0-9]+} or a last *, is sent as "1": with another
// value where it must be one, the route is written out. A route that is not
// found is returned too, with its 404.
//
// The handler of a route that asks for no scope runs. OpenRoutes panics on a
// route without a method.
func OpenRoutes(h http.Handler, key string, routes ...string) (open []string) {
	for _, route := range routes {
		space := strings.IndexAny(route, " \t") // or more than one, as in http.ServeMux
		if space < 0 {
			panic("middlewaretest: OpenRoutes: " + strconv.Quote(route) + " has no method")
		}
		method, target := route[:space], strings.TrimLeft(route[space:], " \t")
		target = wildcard.ReplaceAllString(strings.TrimSuffix(target, "{$}"), "1")
		if !strings.HasPrefix(target, "/") {
			target = "http://" + target // of a pattern with a host
		}
		r, w := httptest.NewRequest(method, target, nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+key)
		h.ServeHTTP(w, r)
		if challenge := w.Header().Get("Www-Authenticate"); !strings.Contains(challenge, `error="insufficient_scope"`) {
			open = append(open, route+": "+strconv.Itoa(w.Code))
		}
	}
	return open
}

// wildcard matches one of a pattern; in a regular expression within it braces
// may stand, as in {id:[0-9]{2}}.
var wildcard = regexp.MustCompile(`\{(?:[^{}]|\{[^{}]*\})*\}|\*$`)
