package middleware

import (
	"cmp"
	"errors"
	"log/slog"
	"strconv"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// A Principal identifies the caller of a request: an organization in one
// environment, through one API key or as [NewPrincipal] says. It is a small
// immutable value and holds no secret. The zero Principal is nobody.
type Principal struct {
	caller *keystore.Caller // of NewPrincipal: with the subject as its ID
}

// An Identity is what [NewPrincipal] makes a Principal of.
type Identity struct {
	Organization string               // required; at most 255 bytes
	Environment  keystore.Environment // "" means production
	Scopes       []scope.Name         // each must be registered

	// Subject is who acts for the organization, such as the id of a user: at
	// most 255 bytes. An Idempotency-Key belongs to the subject, so that no
	// user gets the response of another. "" is nobody in particular: all such
	// callers share their Idempotency-Keys with each other and with the
	// organization's API keys.
	Subject string

	// Attributes are further facts, such as the organization's plan, within the
	// limits of keystore.Key.Validate.
	Attributes map[string]string
}

// NewPrincipal returns the principal of somebody who was authenticated by other
// means than an API key. The registry gives the scopes their meaning; nil means
// scope.Contract(). It must be that of the Options. The error is a
// *keystore.FieldsError that names all wrong fields of the Identity.
func NewPrincipal(r *scope.Registry, i Identity) (Principal, error) {
	given := r
	r = cmp.Or(r, scope.Contract())
	i.Environment = cmp.Or(i.Environment, keystore.Production)
	key := keystore.Key{
		Organization: i.Organization,
		Environment:  i.Environment,
		Scopes:       i.Scopes,
		IssueToken:   i.Subject, // which has the same limits
		Attributes:   i.Attributes,
	}
	if err := key.Validate(r); err != nil {
		if wrong, ok := errors.AsType[*keystore.FieldsError](err); ok {
			for n, field := range wrong.Fields {
				switch {
				case field.Field == "issue_token":
					wrong.Fields[n] = keystore.FieldError{
						Field:   "subject",
						Message: strings.Replace(field.Message, "issue token", "subject", 1),
					}
				case field.Field == "scopes" && given == nil:
					wrong.Fields[n].Message = strings.Replace(field.Message, "There is no",
						"The contract, which a nil registry stands for, has no", 1)
				}
			}
		}
		return Principal{}, err
	}
	key.ID = i.Subject
	return Principal{key.Bind(r)}, nil
}

func (p Principal) known() bool { return p.caller != nil }

// who returns the caller, an empty one for nobody.
func (p Principal) who() *keystore.Caller {
	if p.caller == nil {
		return &keystore.Caller{}
	}
	return p.caller
}

// byKey reports whether the caller sent an API key.
func (p Principal) byKey() bool { return p.known() && p.caller.Stored() }

// fits reports whether the registry knows all scopes of a principal that was
// made by hand. Of a key that was stored before, unknown scopes grant nothing.
func (p Principal) fits(r *scope.Registry) bool {
	return p.caller.Granted().Registry() == r || p.byKey()
}

// KeyID returns the public id of the API key, "" without one.
func (p Principal) KeyID() string {
	if !p.byKey() {
		return ""
	}
	return p.caller.ID()
}

// Subject returns Identity.Subject, "" for the caller with an API key.
func (p Principal) Subject() string {
	if p.byKey() {
		return ""
	}
	return p.who().ID()
}

// client names the key or the subject, for a limit of each.
func (p Principal) client() string {
	if p.byKey() {
		return p.caller.ID()
	}
	// The length keeps organizations apart whose names have spaces.
	return "subject " + strconv.Itoa(len(p.Subject())) + ":" + p.Subject() + " " + p.Tenant()
}

// Attribute returns an attribute of the key or Identity, "" if it has none of
// this name.
func (p Principal) Attribute(name string) string { return p.who().Attribute(name) }

// Organization returns the organization on whose behalf the caller acts.
func (p Principal) Organization() string { return p.who().Organization() }

// Environment returns the environment: production or sandbox.
func (p Principal) Environment() keystore.Environment { return p.who().Environment() }

// Tenant returns organization and environment as one string that no other pair
// shares, "" for nobody. Data kept under it never mixes production with
// sandbox.
func (p Principal) Tenant() string { return p.who().Tenant() }

// Scopes returns a copy of the scopes as they were granted, unknown ones
// included.
func (p Principal) Scopes() []scope.Name { return p.who().Scopes() }

// Has reports whether the key holds a scope. One that it holds counts as needed
// by the request, see KeyOptions.LastUsed.
func (p Principal) Has(name scope.Name) bool {
	c := p.who()
	granted := c.Granted()
	if !granted.Has(name) {
		return false
	}
	asked, _ := granted.Registry().Parse([]scope.Name{name})
	c.Needed(asked)
	return true
}

// LogValue logs who the caller is, without what the key may do; for the zero
// Principal an empty group, which handlers leave out.
func (p Principal) LogValue() slog.Value {
	if !p.known() {
		return slog.GroupValue()
	}
	who := slog.String("key", p.KeyID())
	if !p.byKey() {
		who = slog.String("subject", p.Subject())
	}
	return slog.GroupValue(who,
		slog.String("organization", p.Organization()), slog.String("environment", string(p.Environment())))
}
