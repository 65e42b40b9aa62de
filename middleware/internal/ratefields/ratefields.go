// Package ratefields writes the header fields that tell of rate limits.
package ratefields

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// SetDraft11 writes the fields of draft-ietf-httpapi-ratelimit-headers-11: one
// item a policy, named by it. The window is left out where it is not a whole
// number of seconds.
func SetDraft11(h http.Header, charges []ratelimit.Charge, d ratelimit.Decision) {
	var policies, states []byte
	for i, c := range charges {
		if i > 0 {
			policies, states = append(policies, ", "...), append(states, ", "...)
		}
		limit := c.Policy.Limit
		policies = append(strconv.AppendQuote(policies, c.Policy.Name), ";q="...)
		policies = appendClamped(policies, limit.Count)
		if w := int64(limit.Period.Seconds()); w > 0 && limit.Period%1e9 == 0 {
			policies = appendClamped(append(policies, ";w="...), w)
		}
		state := d.States[i]
		states = append(strconv.AppendQuote(states, c.Policy.Name), ";r="...)
		states = appendClamped(states, max(state.Remaining, 0))
		states = appendClamped(append(states, ";t="...), CeilSeconds(until(state)))
	}
	addToList(h, "Ratelimit-Policy", policies)
	addToList(h, "Ratelimit", states)
}

// SetGitHub writes the fields of GitHub's REST API for the limiting policy.
// After a refusal GitHub's clients expect that nothing is left.
func SetGitHub(h http.Header, charges []ratelimit.Charge, d ratelimit.Decision) {
	policy, state := charges[d.Limiting].Policy, d.States[d.Limiting]
	limit, left := policy.Limit.Capacity(), max(state.Remaining, 0)
	if !d.Allowed {
		left = 0
	}
	set := func(name string, n int64) { h[name] = []string{strconv.FormatInt(n, 10)} }
	set("X-Ratelimit-Limit", limit)
	set("X-Ratelimit-Remaining", left)
	set("X-Ratelimit-Used", limit-left)
	set("X-Ratelimit-Reset", time.Now().Add(until(state)+time.Second-1).Unix())
	h["X-Ratelimit-Resource"] = []string{policy.Name}
}

// until is the time until a denied charge is admitted, else until all is left.
func until(s ratelimit.State) time.Duration { return cmp.Or(max(s.Wait, 0), s.Reset) }

// addToList joins the items with those of an outer RateLimit: some clients read
// only one line.
func addToList(h http.Header, name string, items []byte) {
	if outer := strings.Join(h[name], ", "); outer != "" {
		items = append([]byte(outer+", "), items...)
	}
	h[name] = []string{string(items)}
}

// maxInteger is the largest integer of a structured field (RFC 9651, section
// 3.3.1).
const maxInteger = 999_999_999_999_999

func appendClamped(b []byte, n int64) []byte { return strconv.AppendInt(b, min(n, maxInteger), 10) }

// CeilSeconds returns d in whole seconds, rounded up.
func CeilSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
