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
	Root             string // of the console
	ID, Name, Masked string
	Environment      keystore.Environment
	EnvironmentName  string
	Status           keystore.Status
	StatusName       string
	Scopes           []scopeView
	CreatedBy        string
	CreatedAt        time.Time
	LastUsedAt       time.Time
	ExpiresAt        time.Time
	RevokedAt        time.Time
	RotatedFrom      string
	Parent           string
	Children         int  // that live
	Suspended        bool // itself, whatever its ancestors are
	Legacy           string
	Attributes       []attributeView
	Networks         []string
}

type scopeView struct {
	Name    scope.Name
	Meaning string
	Unknown bool
	Held    bool // of the form to edit it: the box is checked
}

func (x *exchange) view(k *keystore.Key) view {
	v := view{
		Root: x.root, ID: k.ID, Name: cmp.Or(k.Name, "Unnamed key"), Masked: x.issuer.Service().Masked(k),
		Environment: k.Environment, EnvironmentName: capital(string(k.Environment)),
		Status:    k.Status(time.Now()),
		CreatedBy: cmp.Or(x.personName(k.CreatedBy), "unknown"), CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt,
		ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, RotatedFrom: k.RotatedFrom,
		Parent: k.Parent, Children: x.below[k.ID], Suspended: k.Suspended,
		Legacy: k.Legacy, Attributes: x.attributeViews(k), Networks: networkTexts(k.Networks),
	}
	if len(k.Ancestors) > 0 { // a child ends with them
		v.ExpiresAt, v.RevokedAt = k.Bind(x.registry).Expiry()
	}
	if v.Status == keystore.Active && k.Refused() == keystore.ErrRevoked { // also where an ancestor is missing
		v.Status = keystore.Revoked
	}
	for _, a := range k.Ancestors {
		if v.Status == keystore.Active {
			v.Status = a.Status(time.Now())
		}
	}
	v.StatusName = capital(string(v.Status))
	definitions := x.registry.Definitions()
	for _, n := range k.Scopes {
		s := scopeView{Name: n, Unknown: true, Meaning: "This service does not know the scope. It grants nothing."}
		if i := slices.IndexFunc(definitions, func(d scope.Definition) bool { return d.Name == n }); i >= 0 {
			s = scopeView{Name: n, Meaning: definitions[i].Meaning}
		}
		v.Scopes = append(v.Scopes, s)
	}
	return v
}

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
	x.render(http.StatusOK, "key.html", v.Name, struct {
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
	return nil
}

// offersRotation reports whether a page has a link to rotate k.
func (x *exchange) offersRotation(k *keystore.Key) bool {
	return k.RevokedAt.IsZero() && k.Refused() == nil && x.rotatable(k) == nil
}
