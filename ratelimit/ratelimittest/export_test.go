package ratelimittest

import "testing"

// Rules returns the names of all rules.
func Rules() []string {
	var names []string
	for _, r := range rules() {
		names = append(names, r.name)
	}
	return names
}

// Check returns what is wrong with the stores of the suite under one rule.
func (s Suite) Check(t *testing.T, name string) error {
	for _, r := range rules() {
		if r.name == name {
			return s.check(t, r)
		}
	}
	t.Fatalf("there is no rule %q", name)
	return nil
}
