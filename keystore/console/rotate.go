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
type rotateForm struct{ Token, Overlap, Expiry, ExpiresOn string } // Expiry is sameEnd or that of a createForm

const sameEnd = "same"

// rotateForm is also the form to renew a key, which proposes a new end.
func (x *exchange) rotateForm(k *keystore.Key) error {
	if err := cmp.Or(x.rotatable(k), k.Refused()); err != nil {
		return err
	}
	f := rotateForm{rand.Text(), "86400", sameEnd, ""}
	if x.r.URL.Query().Has("renew") {
		f.Expiry = lifeOf(k)
	}
	return x.showRotateForm(http.StatusOK, k, f, nil, "")
}

func (x *exchange) showRotateForm(status int, k *keystore.Key, f rotateForm, problems map[string]string,
	problem string) error {
	use, err := x.activity(k)
	if err != nil {
		return err
	}
	v, act := x.view(k), "Rotate"
	if f.Expiry != sameEnd {
		act = "Renew"
	}
	same := option{sameEnd, "As the old one does: never"}
	if !k.ExpiresAt.IsZero() {
		same.Name = "As the old one does: " + until(k.ExpiresAt)
	}
	x.render(status, "rotate.html", formTitle(act+" “"+v.Name+"”", nil, problem), struct {
		view
		rotateForm
		Activity               activity
		Act, Problem, Tomorrow string
		Problems               map[string]string
		Overlaps               []overlapChoice
		Expiries               []option
	}{v, f, use, act, problem, tomorrow(), problems, overlaps, append([]option{same}, expiries...)})
	return nil
}

// rotate replaces k, as the form of rotateForm says.
func (x *exchange) rotate(k *keystore.Key) error {
	if err := cmp.Or(x.rotatable(k), x.readForm()); err != nil {
		return err
	}
	v := x.r.PostForm
	f := rotateForm{x.formToken(), v.Get("overlap"), cmp.Or(v.Get("expiry"), sameEnd), v.Get("expires_on")}
	if f.Token == "" {
		f.Token = rand.Text()
		return x.showRotateForm(http.StatusUnprocessableEntity, k, f, nil,
			"The form arrived incomplete. Nothing was changed; send it again.")
	}
	i := slices.IndexFunc(overlaps, func(c overlapChoice) bool { return c.Value == f.Overlap })
	if i < 0 {
		return x.showRotateForm(http.StatusUnprocessableEntity, k, f, nil, "Choose when the old secret stops working.")
	}
	err := x.replace(k, overlaps[i].overlap, f)
	if err == nil {
		return nil
	}
	if why := x.explain(err); why.status == http.StatusServiceUnavailable || why.problems != nil {
		// With the same token, so that trying again makes no second key.
		return x.showRotateForm(why.status, k, f, byField(why.problems), why.detail)
	}
	return err
}

// replace rotates k and answers, or returns why it did not.
func (x *exchange) replace(k *keystore.Key, overlap time.Duration, f rotateForm) error {
	r := issuing.Rotation{Organization: x.actor.Organization, ID: k.ID, Overlap: overlap, IssueToken: f.Token}
	if f.Expiry != sameEnd {
		g, problems := createForm{Expiry: f.Expiry, ExpiresOn: f.ExpiresOn}.grant(x.actor)
		if problems != nil {
			return &keystore.FieldsError{Fields: problems}
		}
		r.ExpiresAt, r.NeverExpires = g.ExpiresAt, g.ExpiresAt.IsZero()
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
		x.showReplay(next)
		return nil
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
	x.showSecret(secret, next, old)
	return nil
}
