package scope_test

import (
	"slices"
	"testing"

	"github.com/sallyport-go/sallyport/scope"
)

func set(t *testing.T, r *scope.Registry, names ...scope.Name) scope.Set {
	t.Helper()
	s, unknown := r.Parse(names)
	if len(unknown) > 0 {
		t.Fatalf("Parse(%q) found %q unknown", names, unknown)
	}
	return s
}

func TestSet(t *testing.T) {
	r := scope.Default()
	held := set(t, r, scope.TasksRead, scope.TasksWrite)
	for _, c := range []struct {
		required []scope.Name
		all, any bool
	}{
		{[]scope.Name{scope.TasksRead}, true, true},
		{[]scope.Name{scope.TasksRead, scope.TasksWrite}, true, true},
		{[]scope.Name{scope.TasksRead, scope.TasksCancel}, false, true},
		{[]scope.Name{scope.TasksCancel, scope.AccountRead}, false, false},
		{nil, false, false},
	} {
		required := set(t, r, c.required...)
		if got := held.HasAll(required); got != c.all {
			t.Errorf("%v.HasAll(%v) = %v, want %v", held, required, got, c.all)
		}
		if got := held.HasAny(required); got != c.any {
			t.Errorf("%v.HasAny(%v) = %v, want %v", held, required, got, c.any)
		}
	}
	if !held.Has(scope.TasksRead) || held.Has(scope.TasksCancel) || held.Has("tasks:*") || held.Has("") {
		t.Errorf("%v.Has is wrong", held)
	}
	if held.Registry() != r {
		t.Errorf("Registry() is %p, want %p", held.Registry(), r)
	}
	if held != set(t, r, scope.TasksWrite, scope.TasksRead) {
		t.Error("two sets of the same scopes differ under ==")
	}
	held.Names()[0] = scope.WebhooksWrite
	if held.Has(scope.WebhooksWrite) || !held.Has(scope.TasksRead) {
		t.Error("changing what Names returned changed the set")
	}
}

func TestZeroSet(t *testing.T) {
	var zero scope.Set
	some := set(t, scope.Default(), scope.TasksRead)
	if zero.Has(scope.TasksRead) || zero.HasAll(some) || zero.HasAny(some) || zero.HasAll(zero) || zero.HasAny(zero) ||
		some.HasAll(zero) || some.HasAny(zero) {
		t.Error("the zero Set grants something or asks for nothing, want every question answered with false")
	}
	if zero.Registry() != nil || len(zero.Names()) != 0 || zero.String() != "" {
		t.Errorf("the zero Set is %v of %v, want empty and of no registry", zero, zero.Registry())
	}
}

func TestRegistriesDoNotMix(t *testing.T) {
	definitions := scope.Default().Definitions()
	a, b := scope.New(definitions...), scope.New(definitions...)
	ours, theirs := set(t, a, scope.TasksRead), set(t, b, scope.TasksRead)
	if ours == theirs || ours.HasAll(theirs) || ours.HasAny(theirs) {
		t.Error("a set of another registry was taken for one's own")
	}
}

// Granting tells by which scopes of a key a requirement is met.
func TestGranting(t *testing.T) {
	plain := scope.Default()
	chain := implying(scope.WebhooksWrite, scope.TasksWrite, scope.TasksRead) // each implies the next
	type names = []scope.Name
	for _, c := range []struct {
		registry             *scope.Registry
		held, required, want names
	}{
		{plain, names{scope.TasksRead, scope.TasksWrite}, names{scope.TasksWrite, scope.ChatRead}, names{scope.TasksWrite}},
		{plain, names{scope.TasksRead}, names{scope.TasksWrite}, nil},
		{plain, names{scope.TasksRead}, nil, nil},
		{chain, names{scope.TasksRead, scope.TasksWrite}, names{scope.TasksRead}, names{scope.TasksRead}},
		{chain, names{scope.WebhooksWrite, scope.TasksWrite}, names{scope.TasksRead},
			names{scope.TasksWrite, scope.WebhooksWrite}},
		{chain, names{scope.TasksWrite}, names{scope.TasksWrite, scope.TasksRead}, names{scope.TasksWrite}},
		{chain, names{scope.TasksRead}, names{scope.TasksWrite}, nil},
	} {
		held, _ := c.registry.Parse(c.held)
		required, _ := c.registry.Parse(c.required)
		if got := held.Granting(required).Names(); !slices.Equal(got, c.want) {
			t.Errorf("%v grants %v by %v, want %v", held, required, got, c.want)
		}
		if other, _ := scope.New(plain.Definitions()...).Parse(c.required); held.Granting(other) != (scope.Set{}) {
			t.Errorf("%v grants %v of another registry by %v", held, other, held.Granting(other))
		}
	}
}

func TestUnion(t *testing.T) {
	read, write := set(t, scope.Default(), scope.TasksRead), set(t, scope.Default(), scope.TasksWrite)
	both := set(t, scope.Default(), scope.TasksRead, scope.TasksWrite)
	other := set(t, scope.New(scope.Default().Definitions()...), scope.TasksWrite)
	for _, c := range []struct{ a, b, want scope.Set }{
		{read, write, both}, {read, read, read}, {scope.Set{}, read, read}, {read, scope.Set{}, read}, {read, other, read},
	} {
		if got := c.a.Union(c.b); got != c.want {
			t.Errorf("%v and %v are %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestAllocations(t *testing.T) {
	r := scope.Default()
	names := scope.ExternalWorker()
	held, _ := r.Parse(names)
	required := set(t, r, scope.ChatRead)
	for name, f := range map[string]func(){
		"Parse of known names": func() { r.Parse(names) },
		"Has":                  func() { held.Has(scope.ChatRead) },
		"HasAll":               func() { held.HasAll(required) },
		"HasAny":               func() { held.HasAny(required) },
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s allocates %v times, want 0", name, got)
		}
	}
}
