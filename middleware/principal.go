package middleware

import (
	"strconv"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// A Principal identifies the caller of a request. The zero Principal is nobody.
type Principal struct{ *keystore.Caller }

// An Identity is what [NewPrincipal] makes a Principal of.
type Identity = keystore.Identity

// NewPrincipal is [keystore.NewCaller].
func NewPrincipal(r *scope.Registry, i Identity) (Principal, error) {
	caller, err := keystore.NewCaller(r, i)
	return Principal{caller}, err
}

func (p Principal) known() bool { return p.Tenant() != "" }

// fits reports whether the registry knows all scopes of a principal that was
// made by hand. Of a key that was stored before, unknown scopes grant nothing.
func (p Principal) fits(r *scope.Registry) bool {
	return p.Granted().Registry() == r || p.KeyID() != ""
}

// client names the key or the subject, for a limit of each.
func (p Principal) client() string {
	if id := p.KeyID(); id != "" {
		return id
	}
	// The length keeps organizations apart whose names have spaces.
	return "subject " + strconv.Itoa(len(p.Subject())) + ":" + p.Subject() + " " + p.Tenant()
}
