package console

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// The errors by which an admin function refuses. Any other error means that it
// could not tell, and is a 503.
var (
	ErrSignedOut = errors.New("console: nobody is signed in")
	ErrNotAdmin  = errors.New("console: not an administrator")
)

// An Actor is the person who makes a request.
type Actor struct {
	ID           string // kept in the audit, and with the keys they make; required, at most 255 bytes
	Organization string // the one whose keys they see and change; required, at most 255 bytes
	Name         string // shown to people; empty: the ID
	ReadOnly     bool   // they see the list, each key and the audit, and change nothing: not an administrator
}

// Options configures a console. The zero value lets every administrator assign
// every scope, and nobody frame the pages.
type Options struct {
	// Assignable returns the scopes that an actor may assign in an environment,
	// and with them what they imply; none: they can create no key there. Only
	// who may assign all scopes of a key can rotate and edit it. Everybody can
	// suspend and revoke. Nil: all scopes of the issuer's registry.
	Assignable func(Actor, keystore.Environment) []scope.Name

	// PersonName returns how to show who created a key by the id that is kept
	// with it, or "" for the id itself. A page asks once for each. Nil: the ids.
	PersonName func(ctx context.Context, organization, id string) string

	// Presets are offered above the scopes, each of them if the actor may
	// assign all its scopes. Nil: [DefaultPresets].
	Presets []Preset

	// Attributes are those of a key that the pages show, in this order, and
	// that administrators set when they create a key or edit it. One that
	// decides what an organization pays for has to be ReadOnly. Nil: none.
	Attributes []Attribute

	// Networks lets administrators say from which networks a key may be used.
	// The networks of a key are shown also without it.
	Networks bool

	// Limits returns what the page of a key says of its limits, such as
	// "100 requests a second". Nil: nothing.
	Limits func(ctx context.Context, k *keystore.Key) []string

	// Theme is how the pages look. The zero value is the package's own look.
	Theme Theme

	// Path is where browsers find the console, such as "/settings/keys", if a
	// proxy takes a prefix off. Links begin with it then, and a request may come
	// with it or without, with a slash at its end or not. Empty: links are
	// relative, and the prefix of [http.StripPrefix] gets a slash by a redirect.
	Path string

	// FrameAncestors are the origins, such as "https://dashboard.example.com"
	// or "'self'", whose pages may show the console in a frame. Nil: none.
	FrameAncestors []string

	// SignIn is the address of the page to sign in at, shown to those who are
	// refused. Empty: no link.
	SignIn string

	// BaseURL is the address of the API, such as
	// "https://api.example.com/api/v1", and Samples are requests to it, which the
	// page with a new secret shows if the key may make them. Nil: GET /account,
	// for keys with scope.AccountRead. An empty BaseURL: none.
	BaseURL string
	Samples []Sample

	// Logger is told why a request could not be answered. Nil: slog.Default.
	Logger *slog.Logger
}

// A Preset is a choice of scopes with a name.
type Preset struct {
	Name   string
	Scopes []scope.Name
}

// DefaultPresets returns one preset, [scope.ExternalWorker].
func DefaultPresets() []Preset {
	return []Preset{{"External worker", scope.ExternalWorker()}}
}

// frameAncestors returns the CSP directive's value. It panics when an entry is
// not one origin, since it could then be another directive.
func (o Options) frameAncestors() string {
	for _, origin := range o.FrameAncestors {
		u, err := url.Parse(origin)
		if origin == "'self'" {
			continue
		}
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Scheme+"://"+u.Host != origin ||
			strings.ContainsAny(origin, "*;, '\"") {
			panic("console: FrameAncestors: " + origin + " is not an origin")
		}
	}
	return cmp.Or(strings.Join(o.FrameAncestors, " "), "'none'")
}
