// Package rules holds a server to the contract over the network. It knows nothing of package testing, so that a test and a
// command can say the same.
package rules

import (
	"slices"
	"strings"
)

// A Rule is one sentence that a server keeps or breaks.
type Rule struct {
	Name   string // group/name; it does not change
	Text   string
	Source string // "contract, section 5", or where an optional rule comes from

	needs needs
	check func(*probe)
}

// Contract reports whether the rule is the contract's own. The others are what an RFC says or what this module chose where
// the contract leaves something open.
func (r Rule) Contract() bool { return strings.HasPrefix(r.Source, "contract") }

// Group returns the part of the name before the slash.
func (r Rule) Group() string {
	group, _, _ := strings.Cut(r.Name, "/")
	return group
}

// All returns the rules in the order in which they are best checked: those that use up a rate limit come last.
func All() []Rule {
	return slices.Concat(authRules, requestIDRules, scopeRules, idempotencyRules, wireRules, http2Rules, rateLimitRules)
}

// ours is the source of what this module chose.
const ours = "our choice"

// needs are what a rule cannot do without.
type needs uint

const (
	fullKey needs = 1 << iota
	noneKey
	sandboxKey
	otherKey
	revokedKey
	createRoute
	server
	http2
)

var needNames = []string{
	"a key with all scopes",
	"a key without scopes",
	"a sandbox key",
	"a key of another organization",
	"a revoked key",
	"a route that creates",
	"the server's own listener, since no handler sees these requests",
	"HTTP/2, which the server does not speak",
}

// String lists the names.
func (n needs) String() string {
	var names []string
	for i, name := range needNames {
		if n&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
