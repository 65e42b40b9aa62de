package console

import (
	"net/http"
	"slices"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// assignable returns the scopes that the actor may assign in an environment.
func (x *exchange) assignable(e keystore.Environment) []scope.Name {
	switch {
	case x.actor.ReadOnly:
		return nil
	case x.options.Assignable != nil:
		return x.options.Assignable(x.actor, e)
	}
	var all []scope.Name
	for _, d := range x.registry.Definitions() {
		all = append(all, d.Name)
	}
	return all
}

// offered returns the scopes that the actor may assign in some environment.
func (x *exchange) offered() []scope.Name {
	return slices.Concat(x.assignable(keystore.Production), x.assignable(keystore.Sandbox))
}

// creatable returns the environments in which the actor may create keys.
func (x *exchange) creatable() []keystore.Environment {
	return slices.DeleteFunc([]keystore.Environment{keystore.Production, keystore.Sandbox},
		func(e keystore.Environment) bool { return len(x.assignable(e)) == 0 })
}

// mayRotate reports whether the actor may be shown a new secret for k. A scope
// that the registry does not know may grant something later, so it must be
// assignable too, unless the actor may assign everything.
func (x *exchange) mayRotate(k *keystore.Key) bool {
	if x.options.Assignable == nil && !x.actor.ReadOnly {
		return true
	}
	assignable := x.assignable(k.Environment)
	return len(assignable) > 0 && !slices.ContainsFunc(k.Scopes,
		func(n scope.Name) bool { return !slices.Contains(assignable, n) })
}

// rotatable returns why the actor may not be shown a new secret for k, or nil.
func (x *exchange) rotatable(k *keystore.Key) error {
	switch {
	case k.Parent != "":
		return &failure{status: http.StatusConflict, title: "A child is not rotated",
			detail: "This key was made by another one, and ends with it. Its maker makes another child in its place."}
	case x.mayRotate(k):
		return nil
	}
	return &failure{status: http.StatusForbidden, title: "Not yours to rotate",
		detail: "This key has scopes that you may not assign, so you cannot be shown its new secret. You can revoke it."}
}

// checkAssigned notes what of a grant the actor may not assign.
func (x *exchange) checkAssigned(g keystore.Key) {
	if !g.Environment.Known() {
		return // a problem of its own
	}
	assignable := x.assignable(g.Environment)
	if len(assignable) == 0 {
		x.wrong("environment", "You may not create keys in this environment.")
		return
	}
	for _, n := range g.Scopes {
		if x.registry.Known(n) && !slices.Contains(assignable, n) {
			x.wrong("scopes", "You may not assign %s in this environment.", n)
		}
	}
}
