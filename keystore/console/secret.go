package console

import (
	"errors"
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
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
	_, err := x.issuer.Usage(x.r.Context(), k.Organization, k.ID)
	x.render(http.StatusCreated, "secret.html", "Copy the secret now", struct {
		view
		Secret, Variable string
		Requests         []request
		Languages        []lines
		Watched          bool // the store keeps uses
		From             string
		Old              *oldKey
	}{x.view(k), secret.Reveal(), x.variable(), x.requests(k), languages, err == nil, "", old})
}

// used says whether k has been used. The script of the page with its secret
// asks it for that.
func (x *exchange) used(k *keystore.Key) error {
	use, err := x.issuer.Usage(x.r.Context(), k.Organization, k.ID)
	if errors.Is(err, errors.ErrUnsupported) {
		return keystore.ErrNotFound
	}
	if err != nil {
		return err
	}
	from := ""
	if use.LastUsedFrom.IsValid() {
		from = use.LastUsedFrom.String()
	}
	k = k.Clone()
	k.LastUsedAt = use.LastUsedAt
	x.render(http.StatusOK, "used.html", "First use", struct {
		view
		From string
	}{x.view(k), from})
	return nil
}

// showReplay answers a repeat of the POST that made k.
func (x *exchange) showReplay(k *keystore.Key) {
	x.render(http.StatusOK, "replay.html", "The secret has been shown", struct {
		view
		Rotatable bool
	}{x.view(k), x.offersRotation(k)})
}
