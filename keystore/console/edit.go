package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// editable returns why k cannot be edited, or nil. Whoever may not be shown its
// secret may not change where it works from either.
func (x *exchange) editable(k *keystore.Key) error {
	if !x.mayRotate(k) {
		return &failure{status: http.StatusForbidden, title: "Not yours to edit",
			detail: "This key has scopes that you may not assign, so you cannot change it. You can suspend and revoke it."}
	}
	return ended(k)
}

// ended returns why k has ended for good, or nil.
func ended(k *keystore.Key) error {
	if err := k.Refused(); !errors.Is(err, keystore.ErrSuspended) {
		return err
	}
	return nil
}

// An editForm is what was typed to change a key.
type editForm struct {
	Version           string       // of the key that the form was made of
	Typed             string       // the name
	Held              []scope.Name // scopes
	Listed            bool         // the form lists the scopes, so that those that are not in Held are to go
	Expiry, ExpiresOn string       // those of a createForm; Expiry may also be sameEnd
	restriction
	answer
}

func (x *exchange) readEditForm(v url.Values) editForm {
	return editForm{Version: v.Get("version"), Typed: strings.TrimSpace(v.Get("name")), Held: readScopes(v),
		Listed: v.Has("scopes_listed"), Expiry: cmp.Or(v.Get("expiry"), sameEnd),
		ExpiresOn: strings.TrimSpace(v.Get("expires_on")), restriction: x.readRestriction(v)}
}

func (x *exchange) editForm(k *keystore.Key) error {
	if err := x.editable(k); err != nil {
		return err
	}
	return x.showEditForm(http.StatusOK, k, editForm{Version: fmt.Sprint(k.Version), Typed: k.Name, Expiry: sameEnd,
		restriction: restrictionOf(k)})
}

func (x *exchange) showEditForm(status int, k *keystore.Key, f editForm) error {
	use, err := x.activity(k)
	if err != nil {
		return err
	}
	v, form := x.view(k), x.restrictionForm(f.restriction, f.Problems)
	form.Narrow = len(k.Networks) > 0
	var held []choice
	for _, s := range v.Scopes {
		held = append(held, choice{Definition: s.Definition, Checked: !f.Listed || slices.Contains(f.Held, s.Name),
			Needed: use.Scopes[s.Name]})
	}
	today, last := time.Now().UTC().Format(time.DateOnly), ""
	if !k.ExpiresAt.IsZero() {
		last = k.ExpiresAt.UTC().Truncate(day).AddDate(0, 0, -1).Format(time.DateOnly) // that ends by then
	}
	sooner := slices.DeleteFunc(slices.Clone(expiries), func(o option) bool {
		days, err := strconv.Atoi(o.Value)
		return o.Value == "never" || last != "" && (last < today ||
			err == nil && !time.Now().AddDate(0, 0, days).Before(k.ExpiresAt))
	})
	return x.render(status, "edit.html", f.title("Edit “"+v.Name+"”"), struct {
		view
		editForm
		Activity    activity
		Families    []family
		Presets     []option // none
		Expiries    []option
		From, Until string
		Restriction restrictionForm
	}{v, f, use, x.families(held), nil, append(asNow(v.Ends()), sooner...), today, last, form})
}

// edit changes k, as the form of editForm says.
func (x *exchange) edit(k *keystore.Key) error {
	if err := cmp.Or(x.editable(k), x.readForm()); err != nil {
		return err
	}
	f := x.readEditForm(x.r.PostForm)
	changed, err := x.change(k, f)
	if errors.Is(err, issuing.ErrConflict) {
		if k, err = x.issuer.Key(x.r.Context(), k.Organization, k.ID); err == nil {
			err = x.editable(k)
		}
		if err != nil {
			return err
		}
		f.Version, f.Notice = fmt.Sprint(k.Version), "Somebody else has changed this key since you opened the "+
			"form. Nothing was saved, and what you typed is kept: compare it with the key as it is now, then save again."
		return x.showEditForm(http.StatusConflict, k, f)
	}
	if err != nil {
		why := x.explain(err)
		if why.problems == nil && why.status != http.StatusServiceUnavailable {
			return err
		}
		f.answer = why.answer()
		return x.showEditForm(why.status, k, f)
	}
	return x.toKey(changed, "edited")
}

// change applies what was typed and returns the key as it is then.
func (x *exchange) change(k *keystore.Key, f editForm) (*keystore.Key, error) {
	if f.Version != "" && f.Version != fmt.Sprint(k.Version) {
		return nil, issuing.ErrConflict
	}
	edited := k.Clone()
	x.checkAttributes(k, f.Attributes)
	if edited.Name = f.Typed; f.Typed == "" && k.Name != "" {
		x.wrong("name", "Give the key a name, so that others know what it is for.")
	}
	if f.Listed {
		edited.Scopes = slices.DeleteFunc(edited.Scopes, func(n scope.Name) bool { return !slices.Contains(f.Held, n) })
		if len(edited.Scopes) == 0 && len(k.Scopes) > 0 {
			x.wrong("scopes", "Leave at least one: a key without scopes can do nothing. To end it, revoke it.")
		}
	}
	if f.Expiry != sameEnd || f.ExpiresOn != "" {
		edited.ExpiresAt = x.expiresAt(f.Expiry, f.ExpiresOn)
	}
	if x.options.Networks {
		edited.Networks = x.parseNetworks(f.Networks)
	}
	if edited.Attributes == nil {
		edited.Attributes = make(map[string]string)
	}
	maps.Copy(edited.Attributes, f.Attributes)
	if err := x.invalid(); err != nil {
		return nil, err
	}
	return x.by.Edit(x.r.Context(), *edited)
}
