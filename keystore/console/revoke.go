package console

import (
	"net/http"
	"net/url"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// revokeForm asks before a key is ended for good.
func (x *exchange) revokeForm(k *keystore.Key) error {
	if k.Status(time.Now()) == keystore.Revoked {
		x.toKey(k)
		return nil
	}
	x.render(http.StatusOK, "revoke.html", "Revoke “"+x.view(k).Name+"”?", x.view(k))
	return nil
}

func (x *exchange) revoke(k *keystore.Key) error {
	before := k.Status(time.Now())
	k, err := x.issuer.Revoke(x.r.Context(), x.actor.Organization, k.ID)
	if err != nil {
		return err
	}
	if before != keystore.Revoked {
		x.audit(Event{Act: Revoked}, k)
	}
	x.toKey(k)
	return nil
}

// toKey redirects to the page of a key.
func (x *exchange) toKey(k *keystore.Key) {
	x.w.Header().Set("Location", x.root+"keys/"+url.PathEscape(k.ID))
	x.w.WriteHeader(http.StatusSeeOther)
}
