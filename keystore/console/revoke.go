package console

import (
	"net/http"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

var reasons = []option{
	{issuing.ReasonOther, "No longer needed, or another reason"},
	{issuing.ReasonLeaked, "It has leaked, or may have"},
	{issuing.ReasonLeft, "The person who used it has left"},
}

// revokeForm asks before a key is ended for good.
func (x *exchange) revokeForm(k *keystore.Key) error {
	return x.ask(k, k.Status(time.Now()) == keystore.Revoked, "revoke.html", "Revoke")
}

func (x *exchange) revoke(k *keystore.Key) error {
	if err := x.readForm(); err != nil {
		return err
	}
	k, err := x.issuer.By(x.actor.ID, x.reason()).Revoke(x.r.Context(), x.actor.Organization, k.ID)
	if err != nil {
		return err
	}
	return x.toKey(k, "")
}

// reason returns the one that a form names, or that was typed for another one.
func (x *exchange) reason() string {
	for _, c := range reasons[1:] {
		if c.Value == x.r.PostForm.Get("reason") {
			return c.Value
		}
	}
	if note := strings.TrimSpace(x.r.PostForm.Get("note")); note != issuing.ReasonRotated {
		return note
	}
	return issuing.ReasonOther // only a rotation says that it was one
}

// toKey redirects to the page of a key, which says what was done.
func (x *exchange) toKey(k *keystore.Key, done string) error {
	address := x.root + segment(k.ID)
	if done != "" {
		address += "?done=" + done
	}
	x.w.Header().Set("Location", address)
	x.w.WriteHeader(http.StatusSeeOther)
	return nil
}
