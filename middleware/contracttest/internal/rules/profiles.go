package rules

import (
	"fmt"
	"strings"
)

// A profile is what a protocol that builds on Idempotency-Key asks for.
type profile struct {
	required, optional bool
	mismatch           int    // status for another body with the same key; 0 for any
	equal              string // "value" or "bytes" of bodies; "" for either
	echo               bool   // responses have the key
	uuid7              bool
}

// profiles are of these texts: ACP 2026-04-17, rfc.agentic_checkout section 6;
// UCP of 2026-08-22, signatures, "Replay Protection"; Iceberg's REST catalog at
// 00342e5, parameter idempotency-key.
var profiles = map[string]profile{
	"acp":     {required: true, mismatch: 422, equal: "value", echo: true},
	"ucp":     {mismatch: 409, equal: "bytes"},
	"iceberg": {optional: true, uuid7: true},
}

// asks returns the target's profile, and ends a check that it does not ask for.
func (p *probe) asks(about func(profile) bool) profile {
	asked := profiles[p.target.Profile]
	if !about(asked) {
		p.vacuousf("the profile %s does not ask for it", p.target.Profile)
	}
	return asked
}

var profileChecks = checks{
	"profile/key": func(p *probe) {
		asked := p.asks(func(asked profile) bool { return asked.required || asked.optional })
		if a := p.do(p.unkeyed(0, p.full()).request); asked.required {
			p.want("a create without a key", a, 400)
		} else {
			p.wantOK("a create without a key", a)
		}
	},
	"profile/uuid7": func(p *probe) {
		p.asks(func(asked profile) bool { return asked.uuid7 })
		key := strings.ToUpper(newUUID())
		p.wantOK("a create with a UUID of version 7", p.wantHeeded("017F22E2-79B0-7"+key[15:]))
	},
	"profile/mismatch": func(p *probe) {
		asked := p.asks(func(asked profile) bool { return asked.mismatch != 0 })
		c := p.create(0, p.full())
		p.wantOK("the create", p.do(c.request))
		p.want("another body with the same key", p.do(p.another(c).request), asked.mismatch)
	},
	"profile/equality": func(p *probe) {
		asked := p.asks(func(asked profile) bool { return asked.equal != "" })
		c := p.create(0, p.full())
		if !strings.Contains(p.target.Creates[0].Type, "json") || c.marker == "" {
			p.vacuousf("the body is not JSON with {{random}} in it")
		}
		first := p.wantOK("the create", p.do(c.request))
		other := c
		other.body = " " + strings.Replace(c.body, c.marker, fmt.Sprintf(`\u%04x`, c.marker[0])+c.marker[1:], 1)
		if a := p.do(other.request); asked.equal == "value" {
			p.wantSame("other bytes of the same JSON with the same key", a, first)
		} else {
			p.want("other bytes of the same JSON with the same key", a, asked.mismatch)
		}
	},
	"profile/echo": func(p *probe) {
		p.asks(func(asked profile) bool { return asked.echo })
		c := p.create(0, p.full())
		for _, what := range []string{"the create", "the repeat"} {
			a := p.wantOK(what, p.do(c.request))
			if got := a.header.Values("Idempotency-Key"); len(got) != 1 || got[0] != c.key() {
				p.fault(a, "%s has the Idempotency-Key %q", what, got)
			}
		}
	},
}
