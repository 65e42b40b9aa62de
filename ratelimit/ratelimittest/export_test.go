package ratelimittest

import (
	"errors"
	"runtime"
	"testing"
)

// Rules returns the names of all rules.
func Rules() []string {
	var names []string
	for _, r := range rules() {
		names = append(names, r.name)
	}
	return names
}

// Check returns what is wrong with the stores of the suite under one rule.
func (s Suite) Check(t *testing.T, name string) (broken error) {
	for _, r := range rules() {
		if r.name != name {
			continue
		}
		check := r.check
		r.check = func(e *env) {
			// In a goroutine of its own, which fail can end.
			done := make(chan struct{})
			go func() {
				defer close(done)
				check(e)
			}()
			<-done
		}
		s.check(t, r, func(_ *testing.T, message string) {
			broken = errors.New(message)
			runtime.Goexit()
		})
		return broken
	}
	t.Fatalf("there is no rule %q", name)
	return nil
}
