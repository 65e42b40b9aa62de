package scope_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/scope"
)

func TestParse(t *testing.T) {
	unknown := []scope.Name{"*", "tasks:*", "TASKS:READ", "tasks:read ", " tasks:read", "tasks:", ":read", "",
		"tasks:read\x00", "tasks:read tasks:write"}
	for _, c := range []struct {
		names   []scope.Name
		known   []scope.Name
		unknown []scope.Name
	}{
		{nil, nil, nil},
		{[]scope.Name{"tasks:write", "account:read"}, []scope.Name{"account:read", "tasks:write"}, nil},
		{[]scope.Name{"tasks:read", "tasks:read"}, []scope.Name{"tasks:read"}, nil},
		{[]scope.Name{"future:thing", "tasks:read", "other"}, []scope.Name{"tasks:read"},
			[]scope.Name{"future:thing", "other"}},
		{unknown, nil, unknown},
	} {
		s, unknown := scope.Default().Parse(c.names)
		if got := s.Names(); !slices.Equal(got, c.known) {
			t.Errorf("Parse(%q) holds %q, want %q", c.names, got, c.known)
		}
		if !slices.Equal(unknown, c.unknown) {
			t.Errorf("Parse(%q) found %q unknown, want %q", c.names, unknown, c.unknown)
		}
	}
}

// implying returns the default scopes, where each of the chain implies
// the next.
func implying(chain ...scope.Name) *scope.Registry {
	definitions := scope.Default().Definitions()
	for i, d := range definitions {
		if at := slices.Index(chain, d.Name); at >= 0 && at+1 < len(chain) {
			definitions[i].Implies = chain[at+1 : at+2]
		}
	}
	return scope.New(definitions...)
}

func TestImplies(t *testing.T) {
	r := implying(scope.TasksCancel, scope.TasksWrite, scope.TasksRead)
	if set(t, scope.Default(), scope.TasksWrite).Has(scope.TasksRead) {
		t.Error("a default scope implies another one")
	}
	held := set(t, r, scope.TasksCancel)
	for _, n := range []scope.Name{scope.TasksCancel, scope.TasksWrite, scope.TasksRead} {
		if !held.Has(n) || !held.HasAll(set(t, r, n)) || !held.HasAny(set(t, r, n)) {
			t.Errorf("%v does not grant %s, which it implies", held, n)
		}
	}
	if got := held.String(); got != "tasks:cancel" {
		t.Errorf("String() = %q, want what was named without what is implied", got)
	}
	if required := set(t, r, scope.TasksRead, scope.ChatRead); held.HasAll(required) || !held.HasAny(required) {
		t.Errorf("of %v, %v does not grant exactly what it implies", required, held)
	}

	// What a requirement implies does not meet it.
	reader := set(t, r, scope.TasksRead)
	if required := set(t, r, scope.TasksCancel); reader.HasAny(required) || reader.HasAll(required) {
		t.Errorf("%v meets the requirement %v, which implies it", reader, required)
	}
}

func TestImpliesInACycle(t *testing.T) {
	cycle := []scope.Name{scope.TasksRead, scope.TasksWrite, scope.TasksCancel}
	r := implying(append(cycle, scope.TasksRead)...)
	for _, n := range cycle {
		if held := set(t, r, n); !held.HasAll(set(t, r, cycle...)) || held.Has(scope.ChatRead) {
			t.Errorf("%v does not grant exactly the scopes of its cycle", held)
		}
	}
}

func TestNewPanics(t *testing.T) {
	many := make([]scope.Definition, 65)
	for i := range many {
		many[i].Name = scope.Name("s" + strconv.Itoa(i))
	}
	if s := set(t, scope.New(many[:64]...), "s63"); !s.Has("s63") || s.Has("s0") || s.String() != "s63" {
		t.Errorf("the 64th scope is held as %v", s)
	}
	for name, definitions := range map[string][]scope.Definition{
		"empty name":      {{Name: ""}},
		"space":           {{Name: "a b"}},
		"quote":           {{Name: `a"b`}},
		"backslash":       {{Name: `a\b`}},
		"control":         {{Name: "a\x7f"}},
		"not ASCII":       {{Name: "é"}},
		"twice":           {{Name: "a"}, {Name: "b"}, {Name: "a"}},
		"65 scopes":       many,
		"unknown implied": {{Name: "a", Implies: []scope.Name{"b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "scope: ") {
					t.Errorf("panicked with %q, want a message of this package", text)
				}
			}()
			scope.New(definitions...)
		})
	}
}

func TestDefinitionsAreCopies(t *testing.T) {
	given := []scope.Definition{{Name: "a", Implies: []scope.Name{"b"}}, {Name: "b"}}
	r := scope.New(given...)
	given[0].Name, given[0].Implies[0] = "x", "x"
	d := r.Definitions()
	d[0].Name, d[0].Implies[0] = "y", "y"
	if got := r.Definitions()[0]; got.Name != "a" || got.Implies[0] != "b" || r.String() != "a b" {
		t.Errorf("a caller's change reached the registry: %+v, %s", got, r)
	}
}
