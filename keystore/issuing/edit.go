package issuing

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
	"github.com/sallyport-go/sallyport/scope"
)

// Edit stores what the caller has changed in k, a copy of a key that [Issuer.Key]
// or [Issuer.Keys] returned, and returns the key as it is then. The Name and the
// Attributes can be any that a new key or child can have; an attribute without a
// value is removed. Suspended refuses the key until another Edit. Otherwise a key
// can only be made to do less: Scopes taken away, Networks narrowed, ExpiresAt
// brought forward. Other fields are not looked at.
//
// It changes nothing and returns a [*keystore.FieldsError] when a changed field
// is not valid or would give the key more rights, which needs a new key;
// [ErrConflict] when somebody else has changed the key since k was read, so
// that it has to be read and edited again; and [keystore.ErrNotFound] for a key
// of another organization.
func (i *Issuer) Edit(ctx context.Context, k keystore.Key) (*keystore.Key, error) {
	if err := writable(ctx); err != nil {
		return nil, err
	}
	if p := i.actProblems(); p != nil {
		return nil, p.err()
	}
	before, err := i.Key(ctx, k.Organization, k.ID)
	if err != nil {
		return nil, err
	}
	if before.Version != k.Version {
		return nil, ErrConflict
	}
	after := before.Clone()
	var p problems
	p.apply(after, &k, i.options.Service.Scopes)
	if before.Parent != "" && !maps.Equal(before.Attributes, after.Attributes) {
		above := keystore.Key{Ancestors: before.Ancestors, Parent: before.Parent, Organization: before.Organization,
			Environment: before.Environment}
		p.addChildAttributes(&i.options, after.Attributes, above.Bind(i.options.Service.Scopes))
	}
	if p != nil {
		return nil, p.err()
	}
	changes := changesOf(before, after)
	if changes == nil {
		i.forget(before) // as it is already, perhaps since another process changed it
		return before, nil
	}
	if err := i.write(ctx, editAct(changes, after), before, after, 0); err != nil {
		return nil, err
	}
	after.Version++
	return after, nil
}

// editAct names what an edit that changed these fields did.
func editAct(changes []Change, after *keystore.Key) string {
	switch field := changes[0].Field; {
	case len(changes) > 1:
	case field == "name":
		return "rename"
	case field == "suspended" && after.Suspended:
		return "suspend"
	case field == "suspended":
		return "resume"
	}
	return "edit"
}

// apply copies the fields that differ in edited to k, and adds what is wrong with
// them. A field that is as before is not checked: a key that another program
// stored can be outside the limits.
func (p *problems) apply(k, edited *keystore.Key, r *scope.Registry) {
	var limits problems
	limits.addFields(edited, r)
	check := func(name string) {
		for _, l := range limits {
			if l.Field == name {
				*p = append(*p, l)
			}
		}
	}
	if k.Name != edited.Name {
		check("name")
	}
	if !maps.Equal(k.Attributes, edited.Attributes) {
		check("attributes")
		k.Attributes = field.Attributes(edited.Attributes)
	}
	if !slices.Equal(k.Scopes, edited.Scopes) {
		granted, _ := r.Parse(k.Scopes)
		for _, n := range edited.Scopes {
			if !granted.Has(n) && !slices.Contains(k.Scopes, n) {
				p.add("scopes", "The key does not have the scope %.64q; for more scopes issue a new key.", n)
			}
		}
		k.Scopes = once(edited.Scopes)
	}
	if !slices.Equal(k.Networks, edited.Networks) {
		check("networks")
		networks := field.Networks(edited.Networks)
		if *p == nil && !allowsNetworks(k, networks) {
			p.add("networks", "The key cannot be used from there; for more networks issue a new key.")
		}
		k.Networks = networks
	}
	if expires := field.Time(edited.ExpiresAt); !k.ExpiresAt.Equal(expires) {
		switch {
		case expires.IsZero() || !k.ExpiresAt.IsZero() && expires.After(k.ExpiresAt):
			p.add("expires_at", "The expiry can only be brought forward; for a longer life issue a new key.")
		case !expires.After(field.Now()):
			p.add("expires_at", "The expiry must lie in the future; to end the key now revoke it.")
		default:
			check("expires_at")
		}
		k.ExpiresAt = expires
	}
	k.Name, k.Suspended = edited.Name, edited.Suspended
}

// allowsNetworks reports whether the key may be used from all of the networks,
// which are canonical. None are all addresses.
func allowsNetworks(k *keystore.Key, networks []netip.Prefix) bool {
	within := func(n netip.Prefix) bool {
		return slices.ContainsFunc(k.Networks, func(allowed netip.Prefix) bool {
			allowed = field.Network(allowed)
			return allowed.Bits() <= n.Bits() && allowed.Contains(n.Addr())
		})
	}
	outside := func(n netip.Prefix) bool { return !within(n) }
	return len(k.Networks) == 0 || len(networks) > 0 && !slices.ContainsFunc(networks, outside)
}
