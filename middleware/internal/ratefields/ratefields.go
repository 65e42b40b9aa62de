// Package ratefields writes the RateLimit header fields of
// draft-ietf-httpapi-ratelimit-headers-11.
package ratefields

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// Set writes the fields: one item a policy, named by it. The window is left out
// where it is not a whole number of seconds.
func Set(h http.Header, charges []ratelimit.Charge, d ratelimit.Decision) {
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
		reset := state.Reset
		if !d.Allowed && state.Wait > 0 {
			reset = state.Wait
		}
		states = appendClamped(append(states, ";t="...), CeilSeconds(reset))
	}
	addToList(h, "Ratelimit-Policy", policies)
	addToList(h, "Ratelimit", states)
}

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
