package console

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// A view is a key as a page shows it.
type view struct {
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
	Legacy           string
	Attributes       []attributeView
	Networks         []string
}

type scopeView struct {
	Name    scope.Name
	Meaning string
	Unknown bool
}

func (x *exchange) view(k *keystore.Key) view {
	v := view{
		ID: k.ID, Name: k.Name, Masked: x.issuer.Masked(k),
		Environment: k.Environment, EnvironmentName: environmentName(k.Environment),
		Status:    k.Status(time.Now()),
		CreatedBy: x.personName(k.CreatedBy), CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt,
		ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, RotatedFrom: k.RotatedFrom,
		Legacy: k.Legacy, Attributes: x.attributeViews(k), Networks: networkTexts(k.Networks),
	}
	if v.Name == "" {
		v.Name = "Unnamed key"
	}
	if v.CreatedBy == "" {
		v.CreatedBy = "unknown"
	}
	v.StatusName = strings.ToUpper(string(v.Status[:1])) + string(v.Status[1:])
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

// Few returns the scopes that a line of the list has room for.
func (v view) Few() []scopeView {
	const few = 3
	if len(v.Scopes) <= few+1 {
		return v.Scopes
	}
	return v.Scopes[:few]
}

// More returns how many scopes Few leaves out.
func (v view) More() int { return len(v.Scopes) - len(v.Few()) }

// A keyJSON is a key as a program is told of it. It has neither the digest nor
// the issue token.
type keyJSON struct {
	ID          string               `json:"id"`
	Name        string               `json:"name"`
	Environment keystore.Environment `json:"environment"`
	Hint        string               `json:"hint"`
	Scopes      []scope.Name         `json:"scopes"`
	Unknown     []scope.Name         `json:"unknown_scopes,omitempty"`
	Status      keystore.Status      `json:"status"`
	CreatedAt   time.Time            `json:"created_at"`
	CreatedBy   personJSON           `json:"created_by"`
	LastUsedAt  *time.Time           `json:"last_used_at"`
	ExpiresAt   *time.Time           `json:"expires_at"`
	RevokedAt   *time.Time           `json:"revoked_at"`
	RotatedFrom string               `json:"rotated_from,omitempty"`
	Legacy      string               `json:"legacy,omitempty"`
	Attributes  map[string]string    `json:"attributes,omitempty"`
	Networks    []string             `json:"networks,omitempty"`
}

type personJSON struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func (x *exchange) keyJSON(k *keystore.Key) keyJSON {
	_, unknown := x.registry.Parse(k.Scopes)
	return keyJSON{
		ID: k.ID, Name: k.Name, Environment: k.Environment, Hint: x.issuer.Masked(k),
		Scopes: append([]scope.Name{}, k.Scopes...), Unknown: unknown,
		Status:    k.Status(time.Now()),
		CreatedAt: k.CreatedAt, CreatedBy: personJSON{k.CreatedBy, x.personName(k.CreatedBy)},
		LastUsedAt: orNull(k.LastUsedAt), ExpiresAt: orNull(k.ExpiresAt), RevokedAt: orNull(k.RevokedAt),
		RotatedFrom: k.RotatedFrom, Legacy: k.Legacy, Attributes: x.attributesJSON(k), Networks: networkTexts(k.Networks),
	}
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// show is the page of one key.
func (x *exchange) show(k *keystore.Key) error {
	if x.json {
		x.writeJSON(http.StatusOK, x.keyJSON(k))
		return nil
	}
	x.render(http.StatusOK, "key.html", x.view(k).Name, struct {
		view
		Rotatable, Editable bool
	}{x.view(k), x.offersRotation(k), x.editable(k) == nil})
	return nil
}

// offersRotation reports whether a page has a link to rotate k.
func (x *exchange) offersRotation(k *keystore.Key) bool {
	return k.RevokedAt.IsZero() && k.Refused() == nil && x.mayRotate(k)
}
