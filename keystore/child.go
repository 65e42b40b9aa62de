package keystore

import (
	"maps"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// A child is what a [Caller] has whose key has a parent.
type child struct {
	scopes    []scope.Name // its own, whatever is left of them
	ancestors []*Key
	loaded    uint64 // by a Cached: the number of its changes before the store was asked
}

// inherit narrows c, bound to r, and its key k to what the ancestors of k leave.
func (c *Caller) inherit(k *Key, r *scope.Registry) *child {
	own := k.Scopes
	if own == nil {
		own = c.granted.Names()
	}
	if k.orphaned() { // and has to be refused
		c.granted, _ = r.Parse(nil)
		k.RevokedAt = time.Unix(0, 0)
		k.Ancestors = []*Key{{ID: k.Parent, RevokedAt: k.RevokedAt}}
	}
	if k.Attributes == nil {
		k.Attributes = make(map[string]string)
	}
	for _, a := range k.Ancestors {
		granted, _ := r.Parse(a.Scopes)
		c.granted = both(c.granted, granted, r)
		maps.Copy(k.Attributes, a.Attributes)
		a.Attributes = nil // k has them now
		k.ExpiresAt, k.RevokedAt = earlier(k.ExpiresAt, a.ExpiresAt), earlier(k.RevokedAt, a.RevokedAt)
		k.Suspended = k.Suspended || a.Suspended
	}
	return &child{scopes: own, ancestors: k.Ancestors}
}

// both returns what both sets grant: a itself if b grants all of it.
func both(a, b scope.Set, r *scope.Registry) scope.Set {
	lacks := func(n scope.Name) bool { return !b.Has(n) }
	if !slices.ContainsFunc(a.Names(), lacks) {
		return a
	}
	var names []scope.Name
	for _, d := range r.Definitions() {
		if a.Has(d.Name) && b.Has(d.Name) {
			names = append(names, d.Name)
		}
	}
	set, _ := r.Parse(names)
	return set
}

// earlier returns the first of two times. Zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
