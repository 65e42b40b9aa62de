package idemtest

import (
	"context"
	"testing"
)

// Rules returns the names of all subtests of a Suite.
func Rules() []string {
	var names []string
	for _, c := range everyRule() {
		names = append(names, c.name)
	}
	return names
}

func everyRule() []rule {
	return Suite{Write: func(context.Context, string) error { return nil }}.rules()
}

// Check returns what is wrong with the store under one rule.
func (s Suite) Check(t *testing.T, rule string) error {
	for _, c := range everyRule() {
		if c.name == rule {
			return s.check(t, c)
		}
	}
	t.Fatalf("no rule %q", rule)
	return nil
}
