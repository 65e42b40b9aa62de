package console

import (
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// An oldKey is what a rotation did to the key it replaced.
type oldKey struct {
	ID   string
	Ends time.Time // zero: it could not be revoked
	Now  bool      // it ended at once
}

// showSecret answers the POST that made k. It is the only place where a secret
// is revealed.
func (x *exchange) showSecret(secret keystore.Secret, k *keystore.Key, old *oldKey) {
	x.render(http.StatusCreated, "secret.html", "Copy the secret now", struct {
		view
		Secret, Try string
		Old         *oldKey
	}{x.view(k), secret.Reveal(), x.try(k), old})
}

// try returns the address of a request that k can make. The contract names one,
// and a key without its scope would get 403.
func (x *exchange) try(k *keystore.Key) string {
	if granted, _ := x.registry.Parse(k.Scopes); x.options.BaseURL == "" || !granted.Has(scope.AccountRead) {
		return ""
	}
	return x.options.BaseURL + "/account"
}

// showReplay answers a repeat of the POST that made k.
func (x *exchange) showReplay(k *keystore.Key) {
	x.render(http.StatusOK, "replay.html", "The secret has been shown", struct {
		view
		Rotatable bool
	}{x.view(k), x.offersRotation(k)})
}
