package issuing

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
	"github.com/sallyport-go/sallyport/scope"
)

// Edit stores what the caller has changed in k, a copy of a key that [Issuer.Key]
// or [Issuer.Keys] returned. The Name and the Attributes can be any that a new key
// can have; an attribute without a value is removed, and a child can have those that
// [Issuer.Delegate] gives it. Suspended refuses the key
// until another Edit. Otherwise a key can only be made to do less: Scopes taken
// away, Networks narrowed, ExpiresAt brought forward. Other fields are not
// looked at. Edit returns the key as it is then.
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
	if problems := i.actProblems(); problems != nil {
		return nil, invalid(problems...)
	}
	before, err := i.Key(ctx, k.Organization, k.ID)
	if err != nil {
		return nil, err
	}
	if before.Version != k.Version {
		return nil, ErrConflict
	}
	after := before.Clone()
	problems := applyEdit(after, &k, i.options.Service.Scopes)
	if before.Parent != "" && !maps.Equal(before.Attributes, after.Attributes) {
		above := keystore.Key{Ancestors: before.Ancestors, Parent: before.Parent, Organization: before.Organization,
			Environment: before.Environment}
		problems = append(problems, i.options.childAttributes(after.Attributes, above.Bind(i.options.Service.Scopes))...)
	}
	if problems != nil {
		return nil, invalid(problems...)
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

// applyEdit copies the fields that differ in edited to k, and returns what is
// wrong with them. A field that is as before is not checked: a key that another
// program stored can be outside the limits.
func applyEdit(k, edited *keystore.Key, r *scope.Registry) (problems []keystore.FieldError) {
	limits := fieldProblems(edited, r)
	check := func(name string) {
		for _, p := range limits {
			if p.Field == name {
				problems = append(problems, p)
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
		problems = append(problems, newScopes(k, edited.Scopes, r)...)
		k.Scopes = once(edited.Scopes)
	}
	if !slices.Equal(k.Networks, edited.Networks) {
		check("networks")
		networks := field.Networks(edited.Networks)
		if problems == nil && !allowsNetworks(k, networks) {
			problems = append(problems, problem("networks",
				"The key cannot be used from there; for more networks issue a new key."))
		}
		k.Networks = networks
	}
	if expires := field.Time(edited.ExpiresAt); !k.ExpiresAt.Equal(expires) {
		switch {
		case expires.IsZero() || !k.ExpiresAt.IsZero() && expires.After(k.ExpiresAt):
			problems = append(problems, problem("expires_at",
				"The expiry can only be brought forward; for a longer life issue a new key."))
		case !expires.After(field.Now()):
			problems = append(problems, problem("expires_at",
				"The expiry must lie in the future; to end the key now revoke it."))
		default:
			check("expires_at")
		}
		k.ExpiresAt = expires
	}
	k.Name, k.Suspended = edited.Name, edited.Suspended
	return problems
}

// newScopes returns a problem for each scope that the key does not have.
func newScopes(k *keystore.Key, names []scope.Name, r *scope.Registry) (problems []keystore.FieldError) {
	granted, _ := r.Parse(k.Scopes)
	for _, n := range names {
		if !granted.Has(n) && !slices.Contains(k.Scopes, n) {
			problems = append(problems, problem("scopes",
				fmt.Sprintf("The key does not have the scope %.64q; for more scopes issue a new key.", n)))
		}
	}
	return problems
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
