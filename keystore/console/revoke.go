package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
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
		x.toKey(k, "")
		return nil
	}
	return x.ask(k, "revoke.html", "Revoke")
}

func (x *exchange) revoke(k *keystore.Key) error {
	if err := x.readForm(); err != nil {
		return err
	}
	k, err := x.issuer.By(x.actor.ID, x.reason()).Revoke(x.r.Context(), x.actor.Organization, k.ID)
	if err != nil {
		return err
	}
	x.toKey(k, "")
	return nil
}

// reason returns the one that a form names, or that was typed.
func (x *exchange) reason() string {
	typed := x.r.PostForm.Get("reason")
	known := slices.ContainsFunc(reasons, func(c reasonChoice) bool { return c.Value == typed })
	if note := strings.TrimSpace(x.r.PostForm.Get("note")); note != "" && (!known || typed == keystore.ReasonOther) {
		return note
	}
	if known {
		return typed
	}
	return ""
}

// toKey redirects to the page of a key, which says what was done.
func (x *exchange) toKey(k *keystore.Key, done string) {
	address := x.root + url.PathEscape(k.ID)
	if done != "" {
		address += "?done=" + done
	}
	x.w.Header().Set("Location", address)
	x.w.WriteHeader(http.StatusSeeOther)
}
