package keystore

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// A Caller is who calls: the part of a [Key] that requests need, or somebody whom
// [NewCaller] made of an [Identity]. The requests of a key share it: nothing can
// change what its methods return, and it is safe for concurrent use. It holds no
// secret. Nil, and the zero Caller, are nobody: each method returns what is zero.
type Caller struct {
	// A Cached holds many, and the garbage collector follows their pointers. So
	// what most keys have is one string, and what few have is behind one pointer.
	text                          string // tenant, and id of the key or subject
	environment, organization, id uint32 // where they begin in text
	byKey, suspended              bool
	granted                       scope.Set
	rare                          *rare                 // nil for a key that has nothing of it
	tally                         atomic.Pointer[tally] // the latest of Uses
}

type rare struct {
	scopes             []scope.Name // nil: those granted are all
	attributes         map[string]string
	networks           []netip.Prefix
	legacy             string
	expiresAt, revoked time.Time
	child              *child // nil for a key without a parent
}

var nobody Caller
var none rare

// who returns c, or nobody for nil.
func (c *Caller) who() *Caller {
	if c == nil {
		return &nobody
	}
	return c
}

// more returns what few have.
func (c *Caller) more() *rare {
	if c == nil || c.rare == nil {
		return &none
	}
	return c.rare
}

// Bind returns what requests need of k, with what it grants in r; nil means
// [scope.Default]. Later changes of k change nothing in it.
//
// A child is granted what it and each of its Ancestors grant, may call from
// where they all may, and ends with the first of them. Of an attribute it has
// the value of the furthest ancestor that has one.
func (k *Key) Bind(r *scope.Registry) *Caller {
	r = cmp.Or(r, scope.Default())
	tenant := strconv.Itoa(len(k.Environment)) + ":" + string(k.Environment) + "/" + k.Organization
	c := &Caller{text: tenant + k.ID, id: uint32(len(tenant)), byKey: k.Digest != Digest{}}
	c.organization = c.id - uint32(len(k.Organization))
	c.environment = c.organization - uint32(len(k.Environment)) - 1
	c.granted, _ = r.Parse(k.Scopes)
	k = k.Clone()
	if slices.Equal(k.Scopes, c.granted.Names()) {
		k.Scopes = nil
	}
	var of *child
	if k.Parent != "" || len(k.Ancestors) > 0 {
		of = c.inherit(k, r)
	}
	if k.Scopes != nil || k.Attributes != nil || k.Networks != nil || k.Legacy != "" || k.ends() || of != nil {
		c.rare = &rare{k.Scopes, k.Attributes, k.Networks, k.Legacy, k.ExpiresAt, k.RevokedAt, of}
	}
	c.suspended = k.Suspended
	return c
}

// bind returns c with what it is granted in r, or c itself if that is its
// registry; nil means [scope.Default].
func (c *Caller) bind(r *scope.Registry) *Caller {
	r = cmp.Or(r, scope.Default())
	if c.Granted().Registry() == r || c.Tenant() == "" {
		return c
	}
	bound := c.key().Bind(r)
	bound.byKey = c.byKey
	return bound
}

// key returns the key as far as c knows it.
func (c *Caller) key() *Key {
	more := c.more()
	k := &Key{
		ID: c.text[c.id:], Organization: c.Organization(), Environment: c.Environment(), Scopes: c.Scopes(),
		Attributes: more.attributes, Networks: more.networks, Legacy: more.legacy,
		ExpiresAt: more.expiresAt, RevokedAt: more.revoked, Suspended: c.who().suspended,
	}
	if more.child != nil {
		k.Scopes, k.Parent, k.Ancestors = more.child.scopes, more.child.ancestors[0].ID, more.child.ancestors
	}
	return k
}

// KeyID returns the public id of the API key, "" for a caller without one.
func (c *Caller) KeyID() string {
	if c == nil || !c.byKey {
		return ""
	}
	return c.text[c.id:]
}

// RootID returns the id of the API key, or for a child of its furthest
// ancestor; "" for a caller without an API key. Limits of a key belong to it:
// children are no way round them.
func (c *Caller) RootID() string {
	if of := c.more().child; of != nil {
		return of.ancestors[len(of.ancestors)-1].ID
	}
	return c.KeyID()
}

// Subject returns [Identity].Subject, "" for a caller with an API key.
func (c *Caller) Subject() string {
	if c == nil || c.byKey {
		return ""
	}
	return c.text[c.id:]
}

// Organization returns the organization that the caller acts for.
func (c *Caller) Organization() string {
	c = c.who()
	return c.text[c.organization:c.id]
}

// Environment returns the environment: production or sandbox.
func (c *Caller) Environment() Environment {
	c = c.who()
	return Environment(c.text[c.environment : max(c.organization, 1)-1])
}

// Tenant returns organization and environment as one string that no other pair
// yields, or "" for nobody. It is what data, limits and replies of a caller are
// kept under. It does not allocate.
func (c *Caller) Tenant() string {
	c = c.who()
	return c.text[:c.id]
}

// Has reports whether the caller is granted a scope. It records no use: a
// handler that decides by it calls [Caller.Use] too.
func (c *Caller) Has(name scope.Name) bool { return c.Granted().Has(name) }

// Granted returns what the caller may do.
func (c *Caller) Granted() scope.Set { return c.who().granted }

// Scopes returns a copy of the scopes as given, those that the service does not
// know included; for a child what it and its ancestors grant. None is implied.
func (c *Caller) Scopes() []scope.Name {
	if given := c.more().scopes; given != nil && c.more().child == nil {
		return slices.Clone(given)
	}
	return c.Granted().Names()
}

// Attribute returns an attribute, "" if there is none of this name.
func (c *Caller) Attribute(name string) string { return c.more().attributes[name] }

// Expiry returns when the key or identity, or an ancestor, expires and when it is
// revoked. Zero means never.
func (c *Caller) Expiry() (expires, revoked time.Time) { return c.more().expiresAt, c.more().revoked }

// Refused is [Key.Refused]. Call it for every request, since a key can expire
// while it is cached.
func (c *Caller) Refused() error {
	if c == nil || c.rare == nil {
		return nil
	}
	return (&Key{ExpiresAt: c.rare.expiresAt, RevokedAt: c.rare.revoked, Suspended: c.suspended}).refused()
}

// LogValue logs who the caller is, without what it may do; for nobody an empty
// group, which handlers leave out.
func (c *Caller) LogValue() slog.Value {
	if c.Tenant() == "" {
		return slog.GroupValue()
	}
	who := slog.String("subject", c.Subject())
	if c.byKey {
		who = slog.String("key", c.KeyID())
	}
	return slog.GroupValue(who,
		slog.String("organization", c.Organization()), slog.String("environment", string(c.Environment())))
}

// String returns LogValue as text. Without it fmt would read what Uses changes.
func (c *Caller) String() string { return c.LogValue().String() }
