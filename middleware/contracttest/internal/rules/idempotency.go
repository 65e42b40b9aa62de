package rules

import (
	"net/http"
	"strings"
	"sync"
)

const draft = "draft-ietf-httpapi-idempotency-key-header-07"

var idempotencyRules = []Rule{
	{"idempotency/replay", "A create that is repeated with the same key gets the original response.", "contract, section 4", fullKey | createRoute, func(p *probe) {
		key := keyed()
		first := p.wantOK("the create", p.do(p.create(bearer(p.target.Full), key)))
		p.wantSame("the repeat", p.do(p.create(bearer(p.target.Full), key)), first)
	}},
	{"idempotency/two-keys", "Two creates with different keys make two resources.", "contract, section 4", fullKey | createRoute, func(p *probe) {
		first := p.wantOK("the first", p.do(p.create(bearer(p.target.Full), keyed())))
		p.wantOther("the second", p.do(p.create(bearer(p.target.Full), keyed())), first)
	}},
	{"idempotency/no-key", "Two creates without a key make two resources, even when they are equal.", "contract, section 4", fullKey | createRoute, func(p *probe) {
		first := p.wantOK("the first", p.do(p.create(bearer(p.target.Full))))
		p.wantOther("the second", p.do(p.create(bearer(p.target.Full))), first)
	}},
	{"idempotency/at-once", "Of creates with one key at the same time, one takes effect. The others get its response or 409.", "contract, section 4", fullKey | createRoute, func(p *probe) {
		key := keyed()
		for _, a := range p.atOnce(key) {
			if a.status != http.StatusConflict {
				p.wantSame("another of the same", a, p.do(p.create(bearer(p.target.Full), key)))
			}
		}
	}},
	{"idempotency/at-once-waits", "A repeat of a create in progress waits for it and gets its response.", ours, fullKey | createRoute, func(p *probe) {
		for _, a := range p.atOnce(keyed()) {
			p.wantOK("one of some at once", a)
		}
	}},
	{"idempotency/needs-a-key", "The repeat of a create without an API key gets 401, not its response.", "contract, section 5", fullKey | createRoute, func(p *probe) {
		key := keyed()
		p.wantOK("the create", p.do(p.create(bearer(p.target.Full), key)))
		p.want("the repeat without an API key", p.do(p.create(key)), 401)
	}},
	{"idempotency/other-organization", "A key belongs to one organization: in another the same key makes a resource of its own.", "contract, section 5", fullKey | otherKey | createRoute, func(p *probe) {
		key := keyed()
		first := p.wantOK("the create", p.do(p.create(bearer(p.target.Full), key)))
		p.wantOther("the other organization's create", p.do(p.create(bearer(p.target.Other), key)), first)
	}},
	{"idempotency/other-environment", "A key belongs to one environment: in the sandbox the same key makes a resource of its own.", ours, fullKey | sandboxKey | createRoute, func(p *probe) {
		key := keyed()
		first := p.wantOK("the create", p.do(p.create(bearer(p.target.Full), key)))
		p.wantOther("the sandbox's create", p.do(p.create(bearer(p.target.Sandbox), key)), first)
	}},
	{"idempotency/other-body", "The same key with another body gets 422.", draft, fullKey | createRoute, func(p *probe) {
		key := keyed()
		p.wantOK("the create", p.do(p.create(bearer(p.target.Full), key)))
		other := p.create(bearer(p.target.Full), key)
		other.body = otherBody(other.body)
		p.want("another body", p.do(other), 422)
	}},
	{"idempotency/other-path", "The same key on another path does not get the response.", draft, fullKey | createRoute, func(p *probe) {
		key := keyed()
		first := p.wantOK("the create", p.do(p.create(bearer(p.target.Full), key)))
		other := p.create(bearer(p.target.Full), key)
		other.path += "/contract-unknown"
		if a := p.do(other); a.same(first) {
			p.failf("POST %s got the response of %s: %v", other.path, p.target.Create, a)
		}
	}},
	{"idempotency/bad-keys", "A key that is empty, over 255 bytes, not printable ASCII or sent twice gets 400.", ours, fullKey | createRoute, func(p *probe) {
		for what, lines := range map[string][]string{
			"an empty key": {"Idempotency-Key: "},
			"256 bytes":    {"Idempotency-Key: " + strings.Repeat("k", 256)},
			"not ASCII":    {"Idempotency-Key: clé"},
			"two keys":     {keyed(), keyed()},
		} {
			p.want(what, p.do(p.create(append(lines, bearer(p.target.Full))...)), 400)
		}
	}},
	{"idempotency/reads", "On a read the key is ignored, and stays free for a create.", ours, fullKey | createRoute, func(p *probe) {
		key := keyed()
		read := p.wantOK("the read", p.do(p.read(bearer(p.target.Full), key)))
		p.wantOther("the create with the key of a read", p.do(p.create(bearer(p.target.Full), key)), read)
		p.wantSame("a read with the key of a create", p.do(p.read(bearer(p.target.Full), key)), read)
	}},
	{"idempotency/refusals", "A 403 is not remembered: a key that has the scope then creates.", ours, fullKey | noneKey | createRoute, func(p *probe) {
		key := keyed()
		p.want("the create without the scope", p.do(p.create(bearer(p.target.None), key)), 403)
		p.wantOK("the same with the scope", p.do(p.create(bearer(p.target.Full), key)))
	}},
	{"idempotency/request-id", "A repeat has one request id, and it is its own.", ours, fullKey | createRoute, func(p *probe) {
		first, repeat := p.twice()
		if id := p.oneID("the repeat", repeat); id == p.oneID("the create", first) {
			p.failf("the repeat has the request id of the first, %q", id)
		}
	}},
	{"idempotency/marked", "A repeat says Idempotent-Replayed: true and names the first request's id; the first does not.", ours, fullKey | createRoute, func(p *probe) {
		first, repeat := p.twice()
		if v := first.header.Values("Idempotent-Replayed"); len(v) != 0 {
			p.failf("the first has Idempotent-Replayed %q", v)
		}
		if v := repeat.header.Values("Idempotent-Replayed"); len(v) != 1 || v[0] != "true" {
			p.failf("the repeat has Idempotent-Replayed %q", v)
		}
		name := strings.Replace(p.target.RequestIDHeader, "Request-Id", "Original-Request-Id", 1)
		if name == p.target.RequestIDHeader {
			name = "Original-" + name
		}
		if got, want := repeat.header.Values(name), p.oneID("the create", first); len(got) != 1 || got[0] != want {
			p.failf("the repeat has %s %q, want %q", name, got, want)
		}
	}},
}

// twice creates and repeats.
func (p *probe) twice() (first, repeat answer) {
	key := keyed()
	first = p.wantOK("the create", p.do(p.create(bearer(p.target.Full), key)))
	repeat = p.do(p.create(bearer(p.target.Full), key))
	p.wantSame("the repeat", repeat, first)
	return first, repeat
}

// atOnce sends creates with one key together. At least one of them succeeds.
func (p *probe) atOnce(key string) []answer {
	var mu sync.Mutex
	var answers []answer
	succeeded := false
	p.together(5, func(int) {
		a := p.do(p.create(bearer(p.target.Full), key))
		mu.Lock()
		defer mu.Unlock()
		answers = append(answers, a)
		succeeded = succeeded || a.ok()
	})
	if !succeeded {
		p.failf("of %d creates with one key at once none succeeded: %v", len(answers), answers)
	}
	return answers
}

func (p *probe) wantSame(what string, got, want answer) {
	if !got.same(want) {
		p.failf("%s: got %v, want the original response, %v", what, got, want)
	}
}

// wantOther wants a resource of its own, which the response shows by its body or Location.
func (p *probe) wantOther(what string, got, first answer) {
	p.wantOK(what, got)
	if got.same(first) {
		p.failf("%s: got the same response, %v; if there are two resources, the route has to be one whose response tells them apart", what, got)
	}
}

// otherBody returns a body that means something else, or is at least not the same.
func otherBody(body string) string {
	if rest, ok := strings.CutPrefix(strings.TrimSpace(body), "{"); ok {
		separator := ","
		if strings.HasPrefix(strings.TrimSpace(rest), "}") {
			separator = ""
		}
		return `{"contract":"other"` + separator + rest
	}
	return body + " "
}
