package console

import (
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
	if x.json {
		warning := "This is the only time that the secret is shown."
		if old != nil && old.Ends.IsZero() {
			warning += " The old key could not be revoked and still works: revoke it."
		}
		x.w.Header().Set("Location", x.root+"keys/"+k.ID)
		x.writeJSON(http.StatusCreated, struct {
			Key     keyJSON `json:"key"`
			Secret  string  `json:"secret"`
			Warning string  `json:"warning"`
		}{x.keyJSON(k), secret.Reveal(), warning})
		return
	}
	x.render(http.StatusCreated, "secret.html", "Copy the secret now", struct {
		view
		Secret, BaseURL string
		Old             *oldKey
	}{x.view(k), secret.Reveal(), x.options.BaseURL, old})
}

// showReplay answers a repeat of the POST that made k.
func (x *exchange) showReplay(k *keystore.Key) {
	if x.json {
		x.w.Header().Set("Idempotent-Replayed", "true")
		x.writeJSON(http.StatusOK, struct {
			Key      keyJSON `json:"key"`
			Replayed bool    `json:"replayed"`
			Warning  string  `json:"warning"`
			Rotate   string  `json:"rotate"`
		}{x.keyJSON(k), true, "The key was made by an earlier request, which alone was shown the secret. If nobody has it, rotate the key or revoke it.", x.root + "keys/" + k.ID + "/rotate"})
		return
	}
	x.render(http.StatusOK, "replay.html", "The secret has been shown", x.view(k))
}
