package main

import (
	"net/http"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// account answers with what the key that called stands for.
func account(w http.ResponseWriter, r *http.Request) {
	p, _ := middleware.PrincipalFrom(r.Context())
	writeJSON(w, http.StatusOK, struct {
		Organization string               `json:"organization"`
		Environment  keystore.Environment `json:"environment"`
		Key          string               `json:"key"`
		Scopes       []scope.Name         `json:"scopes"`
	}{p.Organization(), p.Environment(), p.KeyID(), p.Scopes()})
}
