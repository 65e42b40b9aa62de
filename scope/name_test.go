package scope_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/scope"
)

// Every character of a scope-token can stand in a name; TestNewPanics has the
// others.
func TestNames(t *testing.T) {
	for c := byte(0x21); c <= 0x7e; c++ {
		if c == '"' || c == '\\' {
			continue
		}
		name := scope.Name([]byte{c})
		if !scope.New(scope.Definition{Name: name}).Known(name) {
			t.Errorf("%q is not known", name)
		}
	}
}

func TestFamily(t *testing.T) {
	families := map[scope.Name]string{"tasks:write": "tasks", "a:b:c": "a", "plain": "plain", ":x": "", "": ""}
	for name, want := range families {
		if got := name.Family(); got != want {
			t.Errorf("Name(%q).Family() = %q, want %q", name, got, want)
		}
	}
}
