package console

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// suspendForm asks before a key is refused until it is resumed.
func (x *exchange) suspendForm(k *keystore.Key) error {
	return x.ask(k, k.Refused() != nil, "suspend.html", "Suspend")
}

// suspend and resume change whether k is refused. Everybody can suspend a key;
// resuming it gives rights back.
func (x *exchange) suspend(k *keystore.Key) error {
	return x.alter(k, nil, "suspended", func(k *keystore.Key) { k.Suspended = true })
}

func (x *exchange) resume(k *keystore.Key) error {
	return x.alter(k, x.editable(k), "resumed", func(k *keystore.Key) { k.Suspended = false })
}

// narrow takes the scopes away that the form names.
func (x *exchange) narrow(k *keystore.Key) error {
	return x.alter(k, x.editable(k), "narrowed", func(k *keystore.Key) {
		without := x.r.PostForm["without"]
		k.Scopes = slices.DeleteFunc(k.Scopes, func(n scope.Name) bool { return slices.Contains(without, string(n)) })
	})
}

// alter changes k as a form of its page says, unless it may not be, and tells
// on that page what was done.
func (x *exchange) alter(k *keystore.Key, refusal error, done string, change func(*keystore.Key)) error {
	if err := cmp.Or(ended(k), refusal); err != nil {
		return err
	}
	if err := x.readForm(); err != nil {
		return err
	}
	edited := k.Clone()
	change(edited)
	if len(edited.Scopes) == 0 && len(k.Scopes) > 0 {
		return badRequest("A key without scopes can do nothing. To end it, revoke it.")
	}
	changed, err := x.issuer.By(x.actor.ID, x.reason()).Edit(x.r.Context(), edited)
	if err != nil {
		return err
	}
	x.toKey(changed, done)
	return nil
}

// ask shows a form that says how a key is used, before it is stopped, unless it
// is already.
func (x *exchange) ask(k *keystore.Key, already bool, page, act string) error {
	if already {
		x.toKey(k, "")
		return nil
	}
	use, err := x.activity(k)
	if err != nil {
		return err
	}
	v := x.view(k)
	x.render(http.StatusOK, page, act+" “"+v.Name+"”?", struct {
		view
		Activity activity
		Reasons  []reasonChoice
	}{v, use, reasons})
	return nil
}
