package ratelimit

import (
	"errors"
	"fmt"
	"strings"
)

// Fallback says what happens to a policy's charges while the store cannot
// answer. Failover reads it; a Store by itself returns the error.
type Fallback uint8

const (
	// Local counts in the memory of this process. A fleet of n processes admits
	// up to n times the limit while the store is away.
	Local Fallback = iota
	// Open admits without counting.
	Open
	// Closed decides nothing and returns an error.
	Closed
)

// Policy is a limit and the name under which its counters are kept.
//
// Policies share their counters if they have the same name and limits of the
// same Interval and Capacity. Under another limit each bucket is another one,
// and full: while a limit is changed, such as by a deploy, a caller may use up
// both limits. What is spent under the old one is forgotten when it would have
// come back. Do not write to a policy while a store uses it.
type Policy struct {
	Name     string // a token of RFC 9651 section 3.3.4; clients see it
	Limit    Limit
	Fallback Fallback // zero is Local

	// ReportOnly says that the policy counts and reports, and refuses nothing.
	// It shows which callers a limit would refuse. Package middleware reads it;
	// a Store does not.
	ReportOnly bool
}

// Unlimited says that a caller or a route has no limit, where a policy is
// chosen for it. Compare with ==. Stores never count it: Validate and Check refuse
// it, so code that does not look for it admits nobody by mistake.
var Unlimited = &Policy{Name: "unlimited"}

// Validate returns every mistake in the policy: a Name that is not a token, an
// invalid Limit, an unknown Fallback.
func (p *Policy) Validate() error {
	var errs []error
	if !isToken(p.Name) {
		errs = append(errs, fmt.Errorf("ratelimit: policy name %q is not a token", p.Name))
	}
	if _, err := p.Limit.pace(); err != nil {
		errs = append(errs, fmt.Errorf("ratelimit: policy %q: %w", p.Name, err))
	}
	if p.Fallback > Closed {
		errs = append(errs, fmt.Errorf("ratelimit: policy %q: unknown fallback %d", p.Name, p.Fallback))
	}
	return errors.Join(errs...)
}

func isToken(s string) bool {
	const first = "*abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && strings.Contains(first, s[:1]) && strings.Trim(s, first+"0123456789!#$%&'+-.^_`|~:/") == ""
}
