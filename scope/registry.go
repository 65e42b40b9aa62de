package scope

import (
	"fmt"
	"slices"
)

// maxScopes is the number of bits in a [Set].
const maxScopes = 64

// A Definition describes one scope of a registry.
type Definition struct {
	Name    Name
	Meaning string // one plain sentence, shown where an administrator picks scopes
	Implies []Name // granted along with Name, and so on from there
}

// A Registry is the closed list of scopes that a service knows. It never
// changes after [New] and is safe for concurrent use.
//
// Sets belong to the registry they came from, so a program makes each registry
// once and keeps it.
type Registry struct {
	definitions []Definition
	index       map[Name]uint8
	granted     []uint64 // by index: the scope itself and all it implies
	implies     bool     // whether any entry of granted has more than its own bit
}

// New returns a registry of the given scopes, in the given order.
//
// A list of scopes is part of the program, so New panics when it is wrong: a
// name that is not a scope-token of RFC 6750, a name given twice, more than 64
// names, or an Implies that names something not in the list.
func New(definitions ...Definition) *Registry {
	if len(definitions) > maxScopes {
		panic(fmt.Sprintf("scope: %d scopes given, a registry holds at most %d", len(definitions), maxScopes))
	}
	r := &Registry{
		definitions: clone(definitions),
		index:       make(map[Name]uint8, len(definitions)),
		granted:     make([]uint64, len(definitions)),
	}
	for i, d := range r.definitions {
		if !d.Name.valid() {
			panic(fmt.Sprintf("scope: %q is not a scope-token of RFC 6750: printable ASCII without spaces, \" and \\", d.Name))
		}
		if r.Known(d.Name) {
			panic(fmt.Sprintf("scope: %q is defined twice", d.Name))
		}
		r.index[d.Name] = uint8(i)
		r.granted[i] = 1 << i
	}
	r.close()
	return r
}

// close computes what each scope grants: itself, what it implies, what that
// implies, and so on. A cycle is no mistake; its members grant one another.
func (r *Registry) close() {
	for changed := true; changed; {
		changed = false
		for i, d := range r.definitions {
			before := r.granted[i]
			for _, n := range d.Implies {
				j, ok := r.index[n]
				if !ok {
					panic(fmt.Sprintf("scope: %q implies %q, which is not defined", d.Name, n))
				}
				r.granted[i] |= r.granted[j]
			}
			if r.granted[i] != before {
				changed, r.implies = true, true
			}
		}
	}
}

// Parse returns the set of the names that r knows, and the others in the order
// given, or nil when there are none. The set holds what was named, without
// what it implies; [Set.Has] takes that into account.
//
// Parse does not allocate when every name is known.
func (r *Registry) Parse(names []Name) (known Set, unknown []Name) {
	known.registry = r
	for _, n := range names {
		if i, ok := r.index[n]; ok {
			known.bits |= 1 << i
		} else {
			unknown = append(unknown, n)
		}
	}
	return known, unknown
}

// Known reports whether r has the scope n, under exactly that name.
func (r *Registry) Known(n Name) bool {
	_, ok := r.index[n]
	return ok
}

// Definitions returns a copy of the definitions in the order given to [New].
func (r *Registry) Definitions() []Definition {
	return clone(r.definitions)
}

// String returns the names of r with a space between them.
func (r *Registry) String() string {
	return Set{r, 1<<len(r.definitions) - 1}.String()
}

func clone(definitions []Definition) []Definition {
	definitions = slices.Clone(definitions)
	for i := range definitions {
		definitions[i].Implies = slices.Clone(definitions[i].Implies)
	}
	return definitions
}
