package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// suspendForm asks before a key is refused until it is resumed.
func (x *exchange) suspendForm(k *keystore.Key) error {
	return x.ask(k, k.Refused() != nil, "suspend.html", "Suspend")
}

// suspend and resume change whether k is refused. Everybody can suspend a key;
// resuming it gives rights back.
func (x *exchange) suspend(k *keystore.Key) error {
	return x.alter(k, nil, "suspended", func(k *keystore.Key) error { k.Suspended = true; return nil })
}

func (x *exchange) resume(k *keystore.Key) error {
	return x.alter(k, x.editable(k), "resumed", func(k *keystore.Key) error { k.Suspended = false; return nil })
}

// narrow takes the scopes away that the form names, if they are unused still.
func (x *exchange) narrow(k *keystore.Key) error {
	return x.alter(k, x.editable(k), "narrowed", func(k *keystore.Key) error {
		use, err := x.activity(k)
		k.Scopes = slices.DeleteFunc(k.Scopes, func(n scope.Name) bool {
			gone := slices.Contains(x.r.PostForm["without"], string(n))
			if gone && err == nil && !slices.Contains(use.Idle, n) {
				err = &failure{status: http.StatusConflict, title: "This scope is in use", detail: "A request " +
					"has needed " + string(n) + ", or the store cannot tell. Nothing was changed. To take it away, edit the key."}
			}
			return gone
		})
		return err
	})
}

// alter changes k as a form of its page says, unless it may not be, and tells
// on that page what was done.
func (x *exchange) alter(k *keystore.Key, refusal error, done string, change func(*keystore.Key) error) error {
	if err := cmp.Or(ended(k), refusal, x.readForm()); err != nil {
		return err
	}
	edited := k.Clone()
	if err := change(edited); err != nil {
		return err
	}
	changed, err := x.issuer.By(x.actor.ID, x.reason()).Edit(x.r.Context(), *edited)
	if err != nil {
		return err
	}
	return x.toKey(changed, done)
}

// ask shows a form that says how a key is used, before it is stopped, unless it
// is already.
func (x *exchange) ask(k *keystore.Key, already bool, page, act string) error {
	if already {
		return x.toKey(k, "")
	}
	use, err := x.activity(k)
	if err != nil {
		return err
	}
	v := x.view(k)
	return x.render(http.StatusOK, page, act+" “"+v.Name+"”?", struct {
		view
		Activity activity
		Reasons  []option
	}{v, use, reasons})
}

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
	if done != "" {
		done = "?done=" + done
	}
	return x.seeOther(segment(k.ID) + done)
}
