package rules

import (
	"encoding/json"
	"strings"
)

var requestIDRules = []Rule{
	{"request-id/success", "A successful response carries one request id.", "contract, section 4", fullKey, func(p *probe) {
		p.oneID("a read", p.wantOK("a read", p.do(p.read(bearer(p.target.Full)))))
		head := p.read(bearer(p.target.Full))
		head.method = "HEAD"
		p.oneID("HEAD", p.do(head))
	}},
	{"request-id/created", "The response to a create carries one request id.", "contract, section 4", fullKey | createRoute, func(p *probe) {
		p.oneID("a create", p.do(p.create(bearer(p.target.Full))))
		p.oneID("a create with an idempotency key", p.do(p.create(bearer(p.target.Full), keyed())))
	}},
	{"request-id/unauthorized", "A 401 carries one request id.", "contract, section 7", 0, func(p *probe) {
		p.oneID("no key", p.do(p.read()))
		p.oneID("an unknown key", p.do(p.read(bearer("contract-unknown"))))
	}},
	{"request-id/forbidden", "A 403 carries one request id.", "contract, section 7", noneKey, func(p *probe) {
		p.oneID("a key without scopes", p.do(p.read(bearer(p.target.None))))
	}},
	{"request-id/unmatched", "What no route answers (404, 405, a redirect) carries one request id, with a key and without.", "contract, section 4", 0, func(p *probe) {
		lines := [][]string{nil}
		if p.target.Full != "" {
			lines = append(lines, []string{bearer(p.target.Full)})
		}
		for _, lines := range lines {
			for _, path := range []string{p.target.Read + "/contract-unknown", "/" + p.target.Read} {
				p.oneID(path, p.do(request{method: "GET", path: path, lines: lines}))
			}
			for _, method := range []string{"DELETE", "OPTIONS"} {
				p.oneID(method, p.do(request{method: method, path: p.target.Read, lines: lines}))
			}
		}
	}},
	{"request-id/unreadable", "The refusal of a body that makes no sense carries one request id.", "contract, section 4", fullKey | createRoute, func(p *probe) {
		r := p.create(bearer(p.target.Full))
		r.body = "\x00{"
		p.oneID("a body that makes no sense", p.do(r))
	}},
	{"request-id/unique", "No two responses have the same request id.", "contract, section 4", 0, func(p *probe) {
		p.together(16, func(int) { p.oneID("no key", p.do(p.read())) })
		if p.target.Full != "" {
			p.together(3, func(int) { p.oneID("a read", p.do(p.read(bearer(p.target.Full)))) })
		}
		if twice := p.repeats(); len(twice) > 0 {
			p.failf("the id %q came more than once", twice[0])
		}
	}},
	{"request-id/not-from-strangers", "The id that a client sends is not taken over.", ours, 0, func(p *probe) {
		name := p.target.RequestIDHeader
		for _, id := range []string{"contract-1", `<script>"`, strings.Repeat("x", 2000), "a, b"} {
			if got := p.oneID("with an id of the client", p.do(p.read(name+": "+id))); strings.Contains(got, id) {
				p.failf("the client sent %s: %.40q, and the response has it", name, id)
			}
		}
	}},
	{"request-id/in-problem", "The request_id in the body of a problem is that of the header.", ours, 0, func(p *probe) {
		a := p.do(p.read())
		id := p.oneID("no key", a)
		var body struct {
			RequestID string `json:"request_id"`
		}
		if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "application/problem+json") {
			p.failf("the Content-Type of a 401 is %q, want application/problem+json (RFC 9457)", kind)
		}
		if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.RequestID != id {
			p.failf("the header has the id %q, and the body is %s", id, a.body)
		}
	}},
}
