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

func (x *exchange) rotateForm(k *keystore.Key) error {
	if err := cmp.Or(x.rotatable(k), k.Refused()); err != nil {
		return err
	}
	return x.showRotateForm(http.StatusOK, k, rand.Text(), "86400", "")
}

func (x *exchange) showRotateForm(status int, k *keystore.Key, token, overlap, problem string) error {
	use, err := x.activity(k)
	if err != nil {
		return err
	}
	v := x.view(k)
	x.render(status, "rotate.html", formTitle("Rotate “"+v.Name+"”", nil, problem), struct {
		view
		Activity                activity
		Token, Overlap, Problem string
		Overlaps                []overlapChoice
	}{v, use, token, overlap, problem, overlaps})
	return nil
}

// rotate replaces k, as the form of rotateForm says.
func (x *exchange) rotate(k *keystore.Key) error {
	if err := cmp.Or(x.rotatable(k), x.readForm()); err != nil {
		return err
	}
	token, overlap := x.formToken(), x.r.PostForm.Get("overlap")
	if token == "" {
		return x.showRotateForm(http.StatusUnprocessableEntity, k, rand.Text(), overlap,
			"The form arrived incomplete. Nothing was changed; send it again.")
	}
	i := slices.IndexFunc(overlaps, func(c overlapChoice) bool { return c.Value == overlap })
	if i < 0 {
		return x.showRotateForm(http.StatusUnprocessableEntity, k, token, overlap,
			"Choose when the old secret stops working.")
	}
	err := x.replace(k, overlaps[i].overlap, token)
	if err == nil {
		return nil
	}
	if f := x.explain(err); f.status == http.StatusServiceUnavailable || f.problems != nil {
		// With the same token, so that trying again makes no second key.
		return x.showRotateForm(f.status, k, token, overlap, f.detail)
	}
	return err
}

// replace rotates k and answers, or returns why it did not.
func (x *exchange) replace(k *keystore.Key, overlap time.Duration, token string) error {
	secret, next, err := x.by.Rotate(x.r.Context(), x.actor.Organization, k.ID, overlap, token)
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
