package console

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

type reasonChoice struct{ Value, Name string }

var reasons = []reasonChoice{
	{keystore.ReasonOther, "No longer needed, or another reason"},
	{keystore.ReasonLeaked, "It has leaked, or may have"},
	{keystore.ReasonLeft, "Who used it has left"},
}

// revokeForm asks before a key is ended for good.
func (x *exchange) revokeForm(k *keystore.Key) error {
	if k.Status(time.Now()) == keystore.Revoked {
		x.toKey(k)
		return nil
	}
	x.render(http.StatusOK, "revoke.html", "Revoke “"+x.view(k).Name+"”?", struct {
		view
		Reasons []reasonChoice
	}{x.view(k), reasons})
	return nil
}

func (x *exchange) revoke(k *keystore.Key) error {
	if err := x.readForm(); err != nil {
		return err
	}
	reason := keystore.ReasonOther
	typed := x.r.PostForm.Get("reason")
	if slices.ContainsFunc(reasons, func(c reasonChoice) bool { return c.Value == typed }) {
		reason = typed
	}
	k, err := x.issuer.By(x.actor.ID, reason).Revoke(x.r.Context(), x.actor.Organization, k.ID)
	if err != nil {
		return err
	}
	x.toKey(k)
	return nil
}

// toKey redirects to the page of a key.
func (x *exchange) toKey(k *keystore.Key) {
	x.w.Header().Set("Location", x.root+url.PathEscape(k.ID))
	x.w.WriteHeader(http.StatusSeeOther)
}
