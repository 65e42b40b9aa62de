package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/scope"
)

// A Requirement says which scopes a key needs. The zero Requirement is a mistake
// and panics where it is used: [AnyKey] is the way to ask for none.
type Requirement struct {
	names []scope.Name
	any   bool // one of names is enough
	none  bool // AnyKey
}

// Require asks for all of the named scopes.
func Require(all ...scope.Name) Requirement { return Requirement{names: slices.Clone(all)} }

// RequireAny asks for at least one of the named scopes.
func RequireAny(oneOf ...scope.Name) Requirement {
	return Requirement{names: slices.Clone(oneOf), any: true}
}

// AnyKey is content with any live key, even one without scopes.
func AnyKey() Requirement { return Requirement{none: true} }

// Scopes returns the names, and whether one of them is enough.
func (n Requirement) Scopes() (names []scope.Name, anyOf bool) { return slices.Clone(n.names), n.any }

func (n Requirement) String() string {
	if n.none {
		return "any key"
	}
	text := joinNames(n.names)
	if n.any {
		return "any of " + text
	}
	return text
}

// resolve checks the requirement against the registry.
func (n Requirement) resolve(r *scope.Registry) (scope.Set, error) {
	if n.none {
		return scope.Set{}, nil
	}
	if len(n.names) == 0 {
		return scope.Set{}, fmt.Errorf("the requirement is empty; name the scopes, or say AnyKey()")
	}
	set, unknown := r.Parse(n.names)
	if len(unknown) > 0 {
		if meant, ok := r.Suggest(unknown[0]); ok {
			return scope.Set{}, fmt.Errorf("scope %q is not registered; did you mean %q?", unknown[0], meant)
		}
		return scope.Set{}, fmt.Errorf("scope %q is not registered", unknown[0])
	}
	return set, nil
}

// ScopeOptions configure [RequireScope].
type ScopeOptions struct {
	Registry *scope.Registry // nil means scope.Contract(); the one that Authenticate has
	Hooks    *Hooks
}

// RequireScope lets a request pass whose key meets the requirement and answers
// the others with 403 and error="insufficient_scope" (RFC 6750, section 3.1).
//
// [Authenticate] MUST stand before it; without, every request gets 500. It
// panics when the requirement is empty or names a scope that the registry does
// not have.
func RequireScope(need Requirement, o ScopeOptions) func(http.Handler) http.Handler {
	if o.Registry == nil {
		o.Registry = scope.Contract()
	}
	g := &guard{need: need, passing: need.String(), wanted: joinNames(need.names)}
	var err error
	if g.set, err = need.resolve(o.Registry); err != nil {
		panic("middleware: RequireScope: " + err.Error())
	}
	g.all = g.refusal(need.names)
	return func(next http.Handler) http.Handler { return &guarded{g, o, pieceOf(next)} }
}

type guarded struct {
	*guard
	ScopeOptions
	following piece
}

func (h *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(enter(r), w, r) }

func (h *guarded) serve(s *state, w http.ResponseWriter, r *http.Request) {
	s.heed(h.Hooks)
	if s.key == nil {
		s.misuse(w, r, StageScope, "RequireScope stands where no Authenticate is before it")
		return
	}
	if granted := s.key.Bind(h.Registry).Granted(); !h.admits(granted) {
		p := h.refuse(granted)
		p.Challenge = h.challenge(s.auth.Realm)
		s.refuse(w, r, StageScope, p)
		return
	}
	if s.need == nil {
		s.need = &h.passing
	} else if *s.need != h.passing {
		both := *s.need + ", " + h.passing
		s.need = &both
	}
	s.pass(StageScope, "")
	h.following.serve(s, w, r)
}

// guard is a Requirement made ready.
type guard struct {
	need    Requirement
	passing string // what the state says of a request that was let through
	set     scope.Set
	wanted  string
	all     Problem                    // for a key that has none of the scopes
	last    atomic.Pointer[challenged] // there is one realm, unless two Authenticates share the stage
}

type challenged struct{ realm, text string }

func (g *guard) admits(granted scope.Set) bool {
	return g.need.none || !g.need.any && granted.HasAll(g.set) || g.need.any && granted.HasAny(g.set)
}

// refuse answers for a key that the guard does not admit.
func (g *guard) refuse(granted scope.Set) Problem {
	if !granted.HasAny(g.set) {
		return g.all
	}
	var missing []scope.Name
	for _, name := range g.need.names {
		if !granted.Has(name) {
			missing = append(missing, name)
		}
	}
	return g.refusal(missing)
}

func (g *guard) refusal(missing []scope.Name) Problem {
	p := problem(codeInsufficientScope)
	p.Missing = missing
	p.Detail = "The API key lacks " + describe(missing, g.need.any) + "."
	return p
}

func (g *guard) challenge(realm string) string {
	c := g.last.Load()
	if c == nil || c.realm != realm {
		c = &challenged{realm, `Bearer realm="` + realm + `", error="insufficient_scope", scope="` + g.wanted + `"`}
		g.last.Store(c)
	}
	return c.text
}

func describe(missing []scope.Name, anyOf bool) string {
	switch {
	case len(missing) == 1:
		return "the scope " + string(missing[0])
	case anyOf:
		return "any of the scopes " + joinNames(missing)
	}
	return "the scopes " + joinNames(missing)
}

func joinNames(names []scope.Name) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, " ")
}

// misuse answers 500 for stages that were put together wrongly: failing open
// would be worse.
func (s *state) misuse(w http.ResponseWriter, r *http.Request, stage Stage, what string) {
	s.hooks.logger().Error("middleware: "+what, "method", r.Method, "path", r.URL.Path, "request_id", s.id)
	s.refuse(w, r, stage, problem(codeInternal))
}
