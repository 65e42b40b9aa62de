// Package rules holds the rules of the contract and checks them on a server.
// It knows the server by its answers alone.
package rules

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Level says what a broken rule means.
type Level string

const (
	// Contract rules are the letter of the contract. Breaking one is a failure.
	Contract Level = "contract"
	// Reading rules follow from a reading of the contract that is reasonable
	// and not the only one. Breaking one is a warning.
	Reading Level = "reading"
	// Advice is what RFCs recommend and clients expect where the contract is
	// silent.
	Advice Level = "advice"
	// Wire rules are about responses that an HTTP server writes without
	// asking its program. No stock server keeps them: a profile of its own.
	Wire Level = "wire"
	// Profile rules are those of a protocol, for a target that names one.
	Profile Level = "profile"
)

// A Rule is one thing that a server has to do.
type Rule struct {
	Name   string // "group/rule"; it does not change
	Level  Level
	Source string // where the rule comes from
	Text   string // what the server does when it keeps the rule
	Hint   string // what is usually wrong when it does not

	needs []string // names of offers
	when  phase
	check func(*probe)
}

// phase orders the checks.
type phase string

const (
	together phase = ""      // beside others
	alone    phase = "alone" // others would disturb it
	last     phase = "last"  // others have made a lot before it
	end      phase = "end"   // it judges what all others have seen
)

// checks are by the names of their rules.
type checks map[string]func(*probe)

//go:embed rules.txt
var text string

// Group returns the part of the name before the slash.
func (r Rule) Group() string {
	group, _, _ := strings.Cut(r.Name, "/")
	return group
}

// All returns the rules in the order of a report.
var All = sync.OnceValue(func() []Rule {
	all := make(checks)
	for _, group := range []checks{authChecks, scopeChecks, requestIDChecks, idempotencyChecks, interruptionChecks,
		organizationChecks, resourceChecks, rateLimitChecks, pathChecks, http2Checks, wireChecks, profileChecks} {
		maps.Copy(all, group)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	var rules []Rule
	for block := range slices.Chunk(lines, 3) {
		head := strings.Split(block[0], " | ")
		r := Rule{Name: head[0], Level: Level(head[1]), Source: head[2], Text: block[1], Hint: block[2]}
		for _, more := range head[3:] {
			if names, ok := strings.CutPrefix(more, "needs "); ok {
				r.needs = strings.Fields(names)
			} else {
				r.when = phase(more)
			}
		}
		if r.check = all[r.Name]; r.check == nil {
			panic("rules: " + r.Name + " has no check")
		}
		delete(all, r.Name)
		rules = append(rules, r)
	}
	for name := range all {
		panic("rules: " + name + " is checked and not described")
	}
	return rules
})

// An Offer is something that a target may have, that rules may need, and how it
// is given.
type Offer struct{ Name, Text, Given string }

const inKeys = "in the keys file, or Target.Keys"

var offers = []Offer{
	{"none", "a live key without any scope", inKeys},
	{"worker", "a live key whose scopes are not those of the routes, such as an external worker's", inKeys},
	{"reader", "a live key that may read and list, and may change nothing", inKeys},
	{"writer", "a live key that may create, and may not list", inKeys},
	{"sandbox", "a sandbox key that may do everything", inKeys},
	{"sandbox-none", "a sandbox key without any scope", inKeys},
	{"other", "a key of another organization that may do everything", inKeys},
	{"second", "a second key of the first organization that may do everything", inKeys},
	{"revoked", "a revoked key", inKeys},
	{"create", "a route that creates", "-create and -body, or Target.Creates"},
	{"second-create", "a second route that creates", "a second -create, or Target.Creates"},
	{"list", "a route that lists what was created", "-list, or Create.List"},
	{"second-list", "a route that lists what the second route created", "a second -list, or Create.List"},
	{"rate-limit", "a rate limit that can be reached",
		"lend these keys one that 2000 GETs reach in some seconds and that frees itself as fast, such as 40 a second"},
}

func offerText(names []string) string {
	var texts []string
	for _, o := range offers {
		if slices.Contains(names, o.Name) {
			texts = append(texts, o.Text+" ("+o.Name+": "+o.Given+")")
		}
	}
	return strings.Join(texts, ", ")
}
