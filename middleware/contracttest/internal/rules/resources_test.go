package rules

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// The texts of an account are words, and no times.
func TestLeaves(t *testing.T) {
	got := leaves(`{"a": "org one", "b": ["two", {"c": "three"}], "d": "2030-01-02T03:04", "e": "x", "f": 7, "g": "12"}`)
	if want := []string{"org one", "three", "two"}; !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Errorf("got %v, want %q", got, want)
	}
	if got := leaves("one"); got == nil || len(got) > 0 {
		t.Errorf("of no JSON: got %v", got)
	}
}

func TestFillKey(t *testing.T) {
	const u = "01234567-89ab-cdef-0123-456789abcdef"
	const bare = "0123456789abcdef0123456789abcdef"
	for template, want := range map[string]string{
		"{u},a": u + ",a", "{U}": strings.ToUpper(u), "{x}": bare, "007{n}": "007012345678912345", "{3}b": "012b",
		"{254}a": strings.Repeat(bare, 8)[:254] + "a",
	} {
		if got := fillKey(template, u); got != want {
			t.Errorf("%s: got %s, want %s", template, got, want)
		}
	}
}
