package idemtest

import "testing"

// Rules returns the names of all subtests of a Suite.
func Rules() []string {
	var names []string
	for _, c := range allCases() {
		names = append(names, c.name)
	}
	return names
}

// Check returns what is wrong with the store under one rule.
func (s Suite) Check(t *testing.T, rule string) error {
	for _, c := range allCases() {
		if c.name == rule {
			return s.check(t, c)
		}
	}
	t.Fatalf("no rule %q", rule)
	return nil
}
