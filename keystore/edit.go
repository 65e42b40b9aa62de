package keystore

import (
	"context"
	"maps"
	"slices"
)

// Edit changes the Name, Attributes and Networks of a key, and whether it is
// Suspended: refused until another Edit. change gets a copy of the key and
// changes that; what it does to other fields is ignored, and an attribute
// without a value is removed. It is called again when another writer comes in
// between, with a new copy.
//
// Edit returns a [*GrantError] when a changed field is not valid, and
// [ErrNotFound] for a key of another organization.
func (i *Issuer) Edit(ctx context.Context, organization, id string, change func(k *Key)) (*Key, error) {
	var problems []FieldError
	k, err := i.change(ctx, organization, id, func(k *Key) (changed bool) {
		edited := k.Clone()
		change(edited)
		changed, problems = k.edit(edited)
		return changed && problems == nil
	})
	if problems != nil {
		return nil, &GrantError{problems}
	}
	return k, err
}

// edit copies the fields that differ in edited to k. It reports whether there
// are any, and what is wrong with them. A field that is as before is not
// checked: a key that another program stored can be outside the limits.
func (k *Key) edit(edited *Key) (changed bool, problems []FieldError) {
	if k.Name != edited.Name {
		if problem := nameProblem(edited.Name); problem != "" {
			problems = append(problems, FieldError{"name", problem})
		}
		k.Name, changed = edited.Name, true
	}
	if !maps.Equal(k.Attributes, edited.Attributes) {
		problems = append(problems, attributeProblems(edited.Attributes)...)
		attributes := valued(edited.Attributes)
		changed = changed || !maps.Equal(k.Attributes, attributes)
		k.Attributes = attributes
	}
	if !slices.Equal(k.Networks, edited.Networks) {
		problems = append(problems, networkProblems(edited.Networks)...)
		networks := canonicalNetworks(edited.Networks)
		changed = changed || !slices.Equal(k.Networks, networks)
		k.Networks = networks
	}
	if k.Suspended != edited.Suspended {
		k.Suspended, changed = edited.Suspended, true
	}
	return changed, problems
}
