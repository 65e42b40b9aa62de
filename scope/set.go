package scope

import (
	"math/bits"
	"strings"
)

// A Set is a subset of the scopes of one [Registry]. It is a value: it can be
// copied, compared with == and read by many goroutines, and nothing can change
// it. The zero Set belongs to no registry and grants nothing.
type Set struct {
	registry *Registry
	bits     uint64
}

// Registry returns the registry that s was parsed by, or nil for the zero Set.
func (s Set) Registry() *Registry { return s.registry }

// Has reports whether s grants n, because it holds n or a scope that implies
// n. It does not allocate.
func (s Set) Has(n Name) bool {
	if s.registry == nil {
		return false
	}
	i, ok := s.registry.index[n]
	return ok && s.grants()&(1<<i) != 0
}

// HasAll reports whether s grants every scope of t. It is false when t is
// empty or belongs to another registry: a requirement that came out empty asks
// for nothing by mistake, and must not let everybody in.
func (s Set) HasAll(t Set) bool {
	return s.registry == t.registry && t.bits != 0 && t.bits&^s.grants() == 0
}

// HasAny reports whether s grants at least one scope of t. It is false when t
// is empty or belongs to another registry.
func (s Set) HasAny(t Set) bool {
	return s.registry == t.registry && t.bits&s.grants() != 0
}

// Granting returns the scopes of s by which it grants those of t. For each
// scope of t: that scope, if s holds it; otherwise all scopes of s that imply
// it. It is empty when t belongs to another registry.
func (s Set) Granting(t Set) Set {
	if s.registry == nil || s.registry != t.registry {
		return Set{}
	}
	used := Set{s.registry, s.bits & t.bits}
	if !s.registry.implies {
		return used
	}
	implied := t.bits &^ s.bits
	for rest := s.bits; rest != 0; rest &= rest - 1 {
		if i := bits.TrailingZeros64(rest); s.registry.granted[i]&implied != 0 {
			used.bits |= 1 << i
		}
	}
	return used
}

// Union returns the scopes of s and those of t. The scopes of another registry
// are left out, if s has one.
func (s Set) Union(t Set) Set {
	switch s.registry {
	case nil:
		return t
	case t.registry:
		s.bits |= t.bits
	}
	return s
}

// Names returns the scopes of s in the order of its registry, without those
// that are only implied. The slice is the caller's.
func (s Set) Names() []Name {
	names := make([]Name, 0, bits.OnesCount64(s.bits))
	for rest := s.bits; rest != 0; rest &= rest - 1 {
		names = append(names, s.registry.definitions[bits.TrailingZeros64(rest)].Name)
	}
	return names
}

// String returns the names of s with a space between them, which is the form
// of the scope attribute of RFC 6750 §3.
func (s Set) String() string {
	var b strings.Builder
	for i, n := range s.Names() {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(n))
	}
	return b.String()
}

// grants returns the bits of s and of all they imply.
//
// Implication is applied here and not when a set is parsed: a requirement that
// named its implied scopes too would be met by any one of them in HasAny.
func (s Set) grants() uint64 {
	if s.registry == nil || !s.registry.implies {
		return s.bits
	}
	all := s.bits
	for rest := s.bits; rest != 0; rest &= rest - 1 {
		all |= s.registry.granted[bits.TrailingZeros64(rest)]
	}
	return all
}
