// Package middlewaretest helps to test handlers that stand inside the stages of
// package middleware, without the stages, an API key or a store.
//
// For a handler that asks for the transaction of its request, see
// idemsql.WithTx.
package middlewaretest

import (
	"net/http"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/scope"
)

// As returns a copy of the request whose caller is an organization, in
// production, with these scopes of the registry; nil means scope.Contract().
// middleware.PrincipalFrom returns it, and Guard.Require, RateLimit and
// Idempotent take it for authenticated. A Guard's Authenticate and an API do
// not: they want a key.
//
// As panics if there is no such scope. For a caller with an environment,
// subject or attributes of its own, see middleware.NewPrincipal and
// WithPrincipal.
func As(r *http.Request, registry *scope.Registry, organization string, scopes ...scope.Name) *http.Request {
	p, err := middleware.NewPrincipal(registry, middleware.Identity{Organization: organization, Scopes: scopes})
	if err != nil {
		panic("middlewaretest: " + err.Error())
	}
	return r.WithContext(middleware.WithPrincipal(r.Context(), p))
}

// Keyed returns a copy of the request as a handler inside Guard.Idempotent sees
// it: middleware.Executions returns the number that is given, and freed reports
// whether the handler has called middleware.FreeKey.
func Keyed(r *http.Request, executions int) (_ *http.Request, freed func() bool) {
	claim := &keyed.Claim{Executions: executions}
	return r.WithContext(keyed.WithClaim(r.Context(), claim)), claim.Freed.Load
}
