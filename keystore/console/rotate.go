package console

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

type overlapChoice struct {
	Value, Name, Meaning string
	overlap              time.Duration
}

var overlaps = []overlapChoice{
	{"0", "At once", "The old secret stops working now. Choose this when it may have leaked.", 0},
	{"3600", "After 1 hour", "Both work for an hour.", time.Hour},
	{"86400", "After 24 hours", "Both work for a day, while you put the new one in place.", day},
	{"604800", "After 7 days", "Both work for a week.", 7 * day},
}

// A rotateForm is what was chosen for the successor of a key.
type rotateForm struct {
	Token, Overlap    string
	Expiry, ExpiresOn string // those of a createForm; Expiry may also be sameEnd
	answer
}

// rotateForm is also the form to renew a key, which proposes a new end.
func (x *exchange) rotateForm(k *keystore.Key) error {
	if err := cmp.Or(x.rotatable(k), k.Refused()); err != nil {
		return err
	}
	f := rotateForm{Token: rand.Text(), Overlap: "86400", Expiry: sameEnd}
	if x.r.URL.Query().Has("renew") {
		f.Expiry = lifeOf(k)
	}
	return x.showRotateForm(http.StatusOK, k, f)
}

func (x *exchange) showRotateForm(status int, k *keystore.Key, f rotateForm) error {
	use, err := x.activity(k)
	if err != nil {
		return err
	}
	v, act := x.view(k), "Rotate"
	if f.Expiry != sameEnd {
		act = "Renew"
	}
	return x.render(status, "rotate.html", f.title(act+" “"+v.Name+"”"), struct {
		view
		rotateForm
		Activity         activity
		Act, From, Until string
		Overlaps         []overlapChoice
		Expiries         []option
	}{v, f, use, act, tomorrow(), "", overlaps, append(asNow(k.ExpiresAt), expiries...)})
}

// rotate replaces k, as the form of rotateForm says.
func (x *exchange) rotate(k *keystore.Key) error {
	if err := cmp.Or(x.rotatable(k), x.readForm()); err != nil {
		return err
	}
	v := x.r.PostForm
	token := x.formToken()
	f := rotateForm{Token: cmp.Or(token, rand.Text()), Overlap: v.Get("overlap"),
		Expiry: cmp.Or(v.Get("expiry"), sameEnd), ExpiresOn: v.Get("expires_on")}
	i := slices.IndexFunc(overlaps, func(c overlapChoice) bool { return c.Value == f.Overlap })
	switch {
	case token == "":
		f.Notice = "The form arrived incomplete. Nothing was changed; send it again."
		return x.showRotateForm(http.StatusUnprocessableEntity, k, f)
	case i < 0:
		f.Notice = "Choose when the old secret stops working."
		return x.showRotateForm(http.StatusUnprocessableEntity, k, f)
	}
	err := x.replace(k, overlaps[i].overlap, f)
	if err == nil {
		return nil
	}
	if why := x.explain(err); why.status == http.StatusServiceUnavailable || why.problems != nil {
		// With the same token, so that trying again makes no second key.
		f.Problems, f.Notice = why.answer().Problems, why.detail
		return x.showRotateForm(why.status, k, f)
	}
	return err
}

// replace rotates k and answers, or returns why it did not.
func (x *exchange) replace(k *keystore.Key, overlap time.Duration, f rotateForm) error {
	r := issuing.Rotation{Organization: x.actor.Organization, ID: k.ID, Overlap: overlap, IssueToken: f.Token}
	if f.Expiry != sameEnd || f.ExpiresOn != "" {
		r.ExpiresAt = x.expiresAt(f.Expiry, f.ExpiresOn)
		r.NeverExpires = r.ExpiresAt.IsZero()
	}
	if err := x.invalid(); err != nil {
		return err
	}
	secret, next, err := x.by.Rotate(x.r.Context(), r)
	switch {
	case next == nil:
		return err
	case errors.Is(err, issuing.ErrExists):
		if next.RotatedFrom != k.ID {
			return &failure{status: http.StatusUnprocessableEntity, title: "Sent before",
				detail: "This form has been used for something else. Nothing was changed."}
		}
		return x.showReplay(next)
	case secret == keystore.Secret{}:
		return err // a repeat that could not revoke the old key
	}
	old := &oldKey{ID: k.ID, Now: overlap == 0}
	if err == nil {
		old.Ends = next.CreatedAt.Add(overlap)
		if ends := x.view(k).Ends(); !ends.IsZero() && ends.Before(old.Ends) {
			old.Ends = ends
		}
	} else {
		// The new key works. Whoever loses its secret here could never get it
		// again.
		x.options.Logger.ErrorContext(x.r.Context(), "console: a rotated key could not be revoked", "key", k.ID, "error", err)
	}
	return x.showSecret(secret, next, old)
}
