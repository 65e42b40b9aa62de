package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/scope"
)

// A Requirement says which scopes a key needs. The zero Requirement panics
// where it is used; use [AnyCaller] to require no scope.
type Requirement struct {
	names []scope.Name
	any   bool // one of names is enough
	none  bool // AnyCaller

	reportOnly bool
}

// Require asks for all of the named scopes.
func Require(all ...scope.Name) Requirement { return Requirement{names: slices.Clone(all)} }

// RequireAny asks for at least one of the named scopes.
func RequireAny(oneOf ...scope.Name) Requirement {
	return Requirement{names: slices.Clone(oneOf), any: true}
}

// AnyCaller accepts every caller who is authenticated, even one without scopes.
// Before a replay the requirement is checked again, and the checks in the
// handler, [Allow] among them, are not: on an idempotent route, make them scopes.
func AnyCaller() Requirement { return Requirement{none: true} }

// ReportOnly returns the requirement as one that refuses nobody.
// [Event].ReportedCode tells who would have been refused.
func (n Requirement) ReportOnly() Requirement {
	n.reportOnly = true
	return n
}

// Allow is for a requirement that only the handler knows, such as by the amount
// in the body. It reports whether the caller meets it. If not, it has answered as
// [Guard.Enforce] does: 403 with the challenge, and the same Event.
//
//	if order.Total > 10_000 && !middleware.Allow(w, r, middleware.Require("orders:large")) {
//		return
//	}
//
// Call it before anything is written. Under an Idempotency-Key the 403 is
// retained, as any response is, unless the handler calls [Execution.Free] too. A
// replay passes the requirement of its route, not this one. Where
// Options.ReportOnly let a request pass without a caller, Allow does so too.
//
// Without Authenticate before it, and for a requirement that is empty or names a
// scope that the caller's service does not have, the client gets 500, and the
// log says what is wrong.
func Allow(w http.ResponseWriter, r *http.Request, need Requirement) bool {
	f, x, report := factsOf(r.Context()), exchangeOf(w), new(reporter)
	if f != nil && f.response != nil && f.response.admission != nil { // also behind a writer that hides x
		report = f.response.admission.report
	}
	switch {
	case f != nil && f.reported:
		return true
	case f == nil || f.caller == nil:
		report.misuse(w, r, StageScope, "Allow has no Authenticate before it")
		return false
	}
	check, err := newScopeCheck(need, f.caller.Granted().Registry())
	if err != nil {
		report.misuse(w, r, StageScope, "Allow: "+err.Error())
		return false
	}
	x.know(f)
	d := check.check(f.caller, x)
	if d.problem != nil {
		report.refuse(w, r, StageScope, d)
	}
	return d.problem == nil
}

// scopeCheck is the compiled form of a Requirement.
type scopeCheck struct {
	need      Requirement
	registry  *scope.Registry
	set       scope.Set
	challenge string
	all       denial // for a key that has none of the scopes
}

func newScopeCheck(need Requirement, r *scope.Registry) (*scopeCheck, error) {
	c := &scopeCheck{need: need, registry: r}
	var err error
	if c.set, err = need.resolve(c.registry); err != nil {
		return nil, err
	}
	c.challenge = `Bearer realm="api", error="insufficient_scope", scope="` + joinNames(need.names) + `"`
	c.all = c.refusal(need.names)
	c.all.problem.makeHead()
	return c, nil
}

// resolve checks the requirement against the registry.
func (n Requirement) resolve(r *scope.Registry) (scope.Set, error) {
	if n.none {
		return scope.Set{}, nil
	}
	if len(n.names) == 0 {
		return scope.Set{}, errors.New("the requirement is empty; name the scopes, or say AnyCaller()")
	}
	set, unknown := r.Parse(n.names)
	if len(unknown) > 0 {
		of := "the keys' Service"
		if r == scope.Default() {
			of = "scope.Default, and the keys' Service has no others: set Scopes in keystore.CacheOptions.Service or for " +
				"issuing.InMemory; without a Cached, in Options.Service"
		}
		if meant, ok := r.Suggest(unknown[0]); ok {
			return scope.Set{}, fmt.Errorf("did you mean %q? scope %q is not one of %s", meant, unknown[0], of)
		}
		return scope.Set{}, fmt.Errorf("scope %q is not one of %s", unknown[0], of)
	}
	return set, nil
}

// check denies a caller that lacks a scope. Where the requirement is
// report-only, it notes the refusal for the Event of x.
func (c *scopeCheck) check(caller *keystore.Caller, x *exchange) denial {
	granted := caller.Granted()
	if granted.Registry() != c.registry {
		granted, _ = c.registry.Parse(caller.Scopes())
	}
	switch {
	case c.need.none:
		return denial{}
	case !c.need.any && granted.HasAll(c.set), c.need.any && granted.HasAny(c.set):
		caller.Use(c.need.names...)
		return denial{}
	case c.need.reportOnly:
		caller.Use(c.need.names...)
		x.observed().noteReported(codes.InsufficientScope, "")
		return denial{}
	case !granted.HasAny(c.set):
		return c.all
	}
	return c.refusal(slices.DeleteFunc(slices.Clone(c.need.names), granted.Has))
}

func (c *scopeCheck) refusal(missing []scope.Name) denial {
	p := refusal(codes.InsufficientScope)
	p.Missing = missing
	p.Detail = "The credentials lack " + describe(missing, c.need.any) + "."
	p.Challenge = c.challenge
	return denial{problem: p}
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
