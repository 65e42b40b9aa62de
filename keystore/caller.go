package keystore

import (
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// A Caller is the part of a [Key] that requests need: who it belongs to, the
// scopes that it grants, its attributes and networks, and when it ends. It has
// not the Name, Hint, CreatedAt, CreatedBy, LastUsedAt, IssueToken, RotatedFrom
// and Version. The requests of a key share it. Nothing can change it, and it is
// safe for concurrent use. The zero Caller is nobody.
type Caller struct {
	// A Cached holds many, and each cycle of the garbage collector follows
	// their pointers. So what most keys have is one string, and what few have
	// is behind one pointer.
	text                          string // tenant and id
	environment, organization, id uint32 // where they begin in text
	stored                        bool   // it has a Digest
	granted                       scope.Set
	rare                          *rare                 // nil for a key that has nothing of it
	tally                         atomic.Pointer[tally] // the latest of LastUsed
}

type rare struct {
	scopes             []scope.Name // nil: those granted are all
	attributes         map[string]string
	networks           []netip.Prefix
	legacy             string
	expiresAt, revoked time.Time
	suspended          bool
}

// Bind returns what requests need of k, with what it grants in r. Later changes
// of k change nothing in it.
func (k *Key) Bind(r *scope.Registry) *Caller {
	tenant := strconv.Itoa(len(k.Environment)) + ":" + string(k.Environment) + "/" + k.Organization
	c := &Caller{text: tenant + k.ID, id: uint32(len(tenant)), stored: k.Digest != Digest{}}
	c.organization = c.id - uint32(len(k.Organization))
	c.environment = c.organization - uint32(len(k.Environment)) - 1
	c.granted, _ = r.Parse(k.Scopes)
	k = k.Clone()
	if slices.Equal(k.Scopes, c.granted.Names()) {
		k.Scopes = nil
	}
	if k.Scopes != nil || k.Attributes != nil || k.Networks != nil || k.Legacy != "" || k.ends() {
		c.rare = &rare{k.Scopes, k.Attributes, k.Networks, k.Legacy, k.ExpiresAt, k.RevokedAt, k.Suspended}
	}
	return c
}

// Bind returns c with what its key grants in r, or c itself if that is its
// registry.
func (c *Caller) Bind(r *scope.Registry) *Caller {
	if c.granted.Registry() == r {
		return c
	}
	bound := c.key().Bind(r)
	bound.stored = c.stored
	return bound
}

// key returns the key as far as c knows it.
func (c *Caller) key() *Key {
	k := &Key{ID: c.ID(), Organization: c.Organization(), Environment: c.Environment(), Scopes: c.Scopes()}
	if r := c.rare; r != nil {
		k.Attributes, k.Networks, k.Legacy = r.attributes, r.networks, r.legacy
		k.ExpiresAt, k.RevokedAt, k.Suspended = r.expiresAt, r.revoked, r.suspended
	}
	return k
}

// ID returns the public id of the key.
func (c *Caller) ID() string { return c.text[c.id:] }

// Organization returns the organization that the key belongs to.
func (c *Caller) Organization() string { return c.text[c.organization:c.id] }

// Environment returns the environment of the key.
func (c *Caller) Environment() Environment {
	return Environment(c.text[c.environment : max(c.organization, 1)-1])
}

// Tenant returns organization and environment as one string that no other pair
// yields, whatever characters they hold. It is what data, limits and replies
// of a key are kept under. It does not allocate.
func (c *Caller) Tenant() string { return c.text[:c.id] }

// Stored reports whether a store has the key: one without a Digest was made up.
func (c *Caller) Stored() bool { return c.stored }

func (c *Caller) legacy() string {
	if c.rare == nil {
		return ""
	}
	return c.rare.legacy
}

// Granted returns what the caller may do.
func (c *Caller) Granted() scope.Set { return c.granted }

// Scopes returns a copy of the scopes as they were granted, unknown ones
// included.
func (c *Caller) Scopes() []scope.Name {
	if c.rare != nil && c.rare.scopes != nil {
		return slices.Clone(c.rare.scopes)
	}
	return c.granted.Names()
}

// Attribute returns an attribute, "" if there is none of this name.
func (c *Caller) Attribute(name string) string {
	if c.rare == nil {
		return ""
	}
	return c.rare.attributes[name]
}

// Restricted reports whether the key may be used from some addresses only.
func (c *Caller) Restricted() bool { return c.rare != nil && len(c.rare.networks) > 0 }

// Ends returns when the key expires and when it is revoked. Zero means never.
func (c *Caller) Ends() (expires, revoked time.Time) {
	if c.rare != nil {
		expires, revoked = c.rare.expiresAt, c.rare.revoked
	}
	return expires, revoked
}

// Refused is [Key.Refused]. Call it for every request, since a key can expire
// while it is cached.
func (c *Caller) Refused() error {
	if c.rare == nil {
		return nil
	}
	return (&Key{ExpiresAt: c.rare.expiresAt, RevokedAt: c.rare.revoked, Suspended: c.rare.suspended}).Refused()
}
