package ratelimit

import (
	"errors"
	"fmt"
)

// FailureMode says what becomes of a policy's takes while its store cannot
// answer. It is read by Failover; a Store by itself reports the error.
type FailureMode uint8

const (
	// Local counts in the memory of this process, so that a fleet of n admits up
	// to n times the limit for as long as the store is away.
	Local FailureMode = iota
	// Open admits without counting.
	Open
	// Closed decides nothing: the caller gets an error that wraps ErrUnavailable.
	Closed
)

// Policy is a limit with the name under which its counters are kept.
//
// The name is the identity: a policy that comes back with the same name and
// another limit is the same policy under a changed plan, and what its buckets
// have spent carries over, up to a full burst of the new limit. Policies that must not share counters need names of
// their own. A policy is not written to while a store uses it.
type Policy struct {
	Name      string // a token of RFC 9651 section 3.3.4; clients see it
	Limit     Limit
	OnFailure FailureMode
}

// Validate returns every mistake in the policy: a Name that is not a token, a
// Limit that Validate refuses, an unknown OnFailure.
func (p *Policy) Validate() error {
	var errs []error
	if !isToken(p.Name) {
		errs = append(errs, fmt.Errorf("ratelimit: policy name %q is not a token", p.Name))
	}
	if _, err := p.Limit.pace(); err != nil {
		errs = append(errs, fmt.Errorf("ratelimit: policy %q: %w", p.Name, err))
	}
	if p.OnFailure > Closed {
		errs = append(errs, fmt.Errorf("ratelimit: policy %q: unknown failure mode %d", p.Name, p.OnFailure))
	}
	return errors.Join(errs...)
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '*':
		case i == 0:
			return false
		case c >= '0' && c <= '9':
		case c == '!', c == '#', c == '$', c == '%', c == '&', c == '\'', c == '+', c == '-', c == '.',
			c == '^', c == '_', c == '`', c == '|', c == '~', c == ':', c == '/':
		default:
			return false
		}
	}
	return s != ""
}
