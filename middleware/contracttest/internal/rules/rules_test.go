package rules

import (
	"slices"
	"strings"
	"testing"
)

// Each rule is described once, with words that the program knows.
func TestAll(t *testing.T) {
	var names []string
	for _, r := range All() {
		names = append(names, r.Name)
		if !slices.Contains([]Level{Contract, Reading, Advice, Wire, Profile}, r.Level) ||
			!slices.Contains([]phase{together, alone, last, end}, r.when) {
			t.Errorf("%s is of the level %q and has the turn %q", r.Name, r.Level, r.when)
		}
		for _, need := range r.needs {
			if offerText([]string{need}) == "" {
				t.Errorf("%s needs %q, which nobody offers", r.Name, need)
			}
		}
		if r.Group() == r.Name || r.Source == "" || !strings.HasSuffix(r.Text, ".") || strings.HasSuffix(r.Hint, ".") {
			t.Errorf("%s is described by %q, %q and %q", r.Name, r.Source, r.Text, r.Hint)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a name is there twice in %q", names)
	}
}
