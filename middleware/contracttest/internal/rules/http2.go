package rules

import "strings"

var http2Rules = []Rule{
	{"http2/request-id", "Over HTTP/2 too each response carries one request id, and no two have the same.", "contract, section 4", http2, func(p *probe) {
		p.together(12, func(int) { p.oneID("no key", p.doHTTP2(p.read())) })
		if p.target.Full != "" {
			p.oneID("a read", p.doHTTP2(p.read(bearer(p.target.Full))))
		}
		if twice := p.repeats(); len(twice) > 0 {
			p.failf("the id %q came more than once", twice[0])
		}
	}},
	{"http2/missing-key", "Over HTTP/2, which keeps a trailing space, a request without a key gets 401 too.", "contract, section 5", http2, func(p *probe) {
		for _, value := range []string{"", " ", "Bearer", "Bearer ", "bearer  "} {
			p.want("Authorization: "+strings.ReplaceAll(value, " ", "␠"), p.doHTTP2(p.read("Authorization: "+value)), 401)
		}
	}},
	{"http2/replay", "A create by HTTP/1.1 that is repeated by HTTP/2 gets the original response.", "contract, section 4", http2 | fullKey | createRoute, func(p *probe) {
		key := keyed()
		first := p.wantOK("the create", p.do(p.create(bearer(p.target.Full), key)))
		p.wantSame("the repeat", p.doHTTP2(p.create(bearer(p.target.Full), key)), first)
	}},
}

func (p *probe) doHTTP2(r request) answer {
	return p.patiently(func() answer { return p.over(p.http2, p.target.HTTP2URL, r) })
}
