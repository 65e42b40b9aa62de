package console

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// A view is a key as a page shows it.
type view struct {
	keystore.Key        // with the names of key and creator as shown, and the end that its ancestors set
	Root         string // of the console
	Alike        string // the query of the keys that the same person made; empty: nobody is known
	Masked       string
	Status       keystore.Status // by its ancestors too, unlike Suspended
	Scopes       []scopeView
	Children     int // that live
	Attributes   []option
}

type scopeView struct {
	scope.Definition
	Unknown bool
}

func (x *exchange) view(k *keystore.Key) view {
	v := view{Key: *k, Root: x.root, Masked: x.issuer.Service().Masked(k), Status: k.Status(time.Now()),
		Children: x.below[k.ID], Attributes: x.attributeViews(k)}
	if k.CreatedBy != "" {
		v.Alike = selection{Parent: k.Parent, By: k.CreatedBy}.query(place{})
	}
	if k.Parent != "" {
		x.names[k.Parent] = "its parent" // who made it, if not a person
	}
	v.Name, v.CreatedBy = cmp.Or(k.Name, "Unnamed key"), cmp.Or(x.personName(k.CreatedBy), "unknown")
	if len(k.Ancestors) > 0 { // a child ends with them
		v.ExpiresAt, v.RevokedAt = k.Bind(x.registry).Expiry()
	}
	if v.Status == keystore.Active {
		v.Status = statuses[k.Refused()]
	}
	definitions := x.registry.Definitions()
	for _, n := range k.Scopes {
		d := scope.Definition{Name: n, Meaning: "This service does not know the scope. It grants nothing."}
		i := slices.IndexFunc(definitions, func(d scope.Definition) bool { return d.Name == n })
		if i >= 0 {
			d = definitions[i]
		}
		v.Scopes = append(v.Scopes, scopeView{Definition: d, Unknown: i < 0})
	}
	return v
}

// statuses says what a key is by why it is refused.
var statuses = map[error]keystore.Status{nil: keystore.Active, keystore.ErrRevoked: keystore.Revoked,
	keystore.ErrExpired: keystore.Expired, keystore.ErrSuspended: keystore.Suspended}

// Live reports whether the key can be used now.
func (v view) Live() bool { return v.Status == keystore.Active }

// Ending reports whether a rotation has set the key an end that lies ahead.
func (v view) Ending() bool { return !v.RevokedAt.IsZero() && v.Status != keystore.Revoked }

// Ends returns when the key stops or stopped working, or the zero time.
func (v view) Ends() time.Time {
	if v.ExpiresAt.IsZero() || !v.RevokedAt.IsZero() && v.RevokedAt.Before(v.ExpiresAt) {
		return v.RevokedAt
	}
	return v.ExpiresAt
}

// EndsSoon reports whether the key ends within 14 days.
func (v view) EndsSoon() bool {
	return v.Live() && !v.Ends().IsZero() && time.Until(v.Ends()) < 14*day
}

// show is the page of one key.
func (x *exchange) show(k *keystore.Key) error {
	use, err := x.activity(k)
	if err != nil {
		return err
	}
	watch, err := x.watch(k)
	if err != nil {
		return err
	}
	story, err := x.story(k)
	if err != nil {
		return err
	}
	var limits []string
	if x.options.Limits != nil {
		limits = x.options.Limits(x.r.Context(), k)
	}
	below := selection{Parent: k.ID}
	children, total, err := x.find(below, place{}, maxEnded)
	if err != nil {
		return err
	}
	v := x.view(k)
	return x.render(http.StatusOK, "key.html", v.Name, struct {
		view
		Activity            activity
		Watch               *watched
		Story               []event
		Limits              []string
		Done                string // the act that led here
		Rotatable, Editable bool
		Creatable           bool
		Below               []view
		BelowCount          int
		AllBelow            string // the query of the children
	}{v, use, watch, story, limits, x.r.URL.Query().Get("done"), x.offersRotation(k),
		x.editable(k) == nil, len(x.creatable()) > 0 && k.Parent == "", x.views(children, k), total, below.query(place{})})
}

// offersRotation reports whether a page has a link to rotate k.
func (x *exchange) offersRotation(k *keystore.Key) bool {
	return k.RevokedAt.IsZero() && k.Refused() == nil && x.rotatable(k) == nil
}
