package console

import (
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// An oldKey is what a rotation did to the key it replaced.
type oldKey struct {
	ID   string
	Ends time.Time // zero: it could not be revoked
	Now  bool      // it ended at once
}

// showSecret answers the POST that made k. It is the only place where a secret
// is revealed.
func (x *exchange) showSecret(secret keystore.Secret, k *keystore.Key, old *oldKey) error {
	use, _ := x.issuer.Usage(x.r.Context(), k.Organization, k.ID) // nil: it cannot be told
	return x.render(http.StatusCreated, "secret.html", "Copy the secret now", struct {
		view
		Secret, Variable string
		Requests         []request
		Use              *issuing.Usage
		Old              *oldKey
	}{x.view(k), secret.Reveal(), x.variable(), x.requests(k), use, old})
}

// used says whether k has been used. The script of the page with its secret
// asks it for that.
func (x *exchange) used(k *keystore.Key) error {
	use, err := x.issuer.Usage(x.r.Context(), k.Organization, k.ID)
	if err != nil {
		return err
	}
	return x.render(http.StatusOK, "used.html", "First use", struct {
		view
		Use *issuing.Usage
	}{x.view(k), use})
}

// showReplay answers a repeat of the POST that made k.
func (x *exchange) showReplay(k *keystore.Key) error {
	return x.render(http.StatusOK, "replay.html", "The secret has been shown", struct {
		view
		Rotatable bool
	}{x.view(k), x.offersRotation(k)})
}
