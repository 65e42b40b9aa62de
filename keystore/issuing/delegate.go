package issuing

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
)

// Delegate makes a child of the key with the id k.Parent, such as for one run of
// an agent. It takes of k what [Issuer.Issue] does; the Environment may be empty,
// the ExpiresAt not. The child can do no more than its parent, now and later, and
// is refused as soon as that is. A parent that is rotated keeps its children.
//
// The actor of an Issuer without one is the parent. An endpoint that lets
// callers delegate gives nobody more than they have:
//
//	k.Organization, k.Parent = caller.Organization(), caller.KeyID()
//
// The error is that of Issue, [keystore.ErrNotFound] if the organization has no
// such parent, or that of [keystore.Key.Refused] if it is refused. It is a
// [*keystore.FieldsError] if k has a scope or a network that the parent does not
// have, ends after it, has an attribute that the parent has or
// Options.ChildAttributes does not, or would have four ancestors; and if the
// actor used the IssueToken for something else.
func (i *Issuer) Delegate(ctx context.Context, k keystore.Key) (keystore.Secret, *keystore.Key, error) {
	if err := writable(ctx); err != nil {
		return keystore.Secret{}, nil, err
	}
	i = i.By(cmp.Or(i.actor, k.Parent), i.reason)
	p := i.actProblems()
	p.addOwner(k.Organization, k.IssueToken)
	if k.Parent == "" {
		p.add("parent", "A child needs a parent, the id of an API key.")
	}
	if p != nil {
		return keystore.Secret{}, nil, p.err()
	}
	parent, err := i.Key(ctx, k.Organization, k.Parent)
	if err != nil {
		return keystore.Secret{}, nil, err
	}
	existing, err := i.issuedBefore(ctx, k.Organization, i.actor, k.IssueToken)
	if existing != nil || err != nil {
		return repeatedChild(existing, k.Parent, cmp.Or(err, ErrExists))
	}
	if err := parent.Refused(); err != nil {
		return keystore.Secret{}, nil, err
	}
	now := field.Now()
	k.Environment = cmp.Or(k.Environment, parent.Environment)
	p.addFields(&k, i.options.Service.Scopes)
	p.addLimits(&i.options, &k, now)
	p.addChild(&i.options, &k, parent, now)
	if p != nil {
		return keystore.Secret{}, nil, p.ofKey(&k, i.options.Service.Scopes)
	}
	secret, made := i.make(&k, now, line(parent)...)
	made, err = i.insert(ctx, "delegate", made, i.options.MaxChildren)
	if err != nil {
		return repeatedChild(made, k.Parent, err)
	}
	return secret, made, nil
}

// repeatedChild returns the key that an issue token made for the parent.
func repeatedChild(k *keystore.Key, parent string, err error) (keystore.Secret, *keystore.Key, error) {
	if errors.Is(err, ErrExists) && k != nil && k.Parent != parent {
		return keystore.Secret{}, nil, invalid("issue_token",
			"The issue token made a key that is no child of this parent; use another one.")
	}
	return keystore.Secret{}, k, err
}

// line returns a key and its ancestors.
func line(k *keystore.Key) []*keystore.Key {
	first := *k
	first.Ancestors = nil
	return append([]*keystore.Key{&first}, k.Ancestors...)
}

// addChild adds what of k its parent does not allow.
func (p *problems) addChild(o *Options, k, parent *keystore.Key, now time.Time) {
	if len(parent.Ancestors) >= ancestors {
		p.add("parent", "The parent has %d ancestors and can have no child.", ancestors)
	}
	if k.Environment != parent.Environment {
		p.add("environment", "The parent is a %s key.", parent.Environment)
	}
	caller := parent.Bind(o.Service.Scopes)
	for _, n := range k.Scopes {
		if o.Service.Scopes.Known(n) && !caller.Has(n) {
			p.add("scopes", "The parent does not have the scope %.64q.", n)
		}
	}
	networks := field.Networks(k.Networks)
	refuses := func(a *keystore.Key) bool { return !allowsNetworks(a, networks) }
	if networks != nil && slices.ContainsFunc(line(parent), refuses) {
		p.add("networks", "The parent cannot be used from all of the networks.")
	}
	expires, revoked := caller.Expiry()
	switch ends := field.Time(k.ExpiresAt); {
	case ends.IsZero():
		p.add("expires_at", "A child needs an expiry.")
	case o.MaxChildLife > 0 && ends.After(now.Add(o.MaxChildLife)):
		p.add("expires_at", "A child must expire within %s.", lifeText(o.MaxChildLife))
	case !expires.IsZero() && ends.After(expires), !revoked.IsZero() && ends.After(revoked):
		p.add("expires_at", "The child would outlive its parent.")
	}
	p.addChildAttributes(o, k.Attributes, caller)
}

// addChildAttributes adds what is wrong with the attributes of a child.
func (p *problems) addChildAttributes(o *Options, attributes map[string]string, parent *keystore.Caller) {
	for _, name := range slices.Sorted(maps.Keys(field.Attributes(attributes))) {
		if !slices.Contains(o.ChildAttributes, name) || parent.Attribute(name) != "" {
			p.add("attributes", "A child cannot have the attribute %.40q, or has its parent's.", name)
		}
	}
}
