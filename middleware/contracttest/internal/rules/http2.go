package rules

var http2Rules = []Rule{
	{Name: "http2/request-id", Level: Contract, Source: section4,
		Text: "Over HTTP/2 each response has one request id, too.",
		Hint: "set the header with its usual name; HTTP/2 sends it in small letters",
		check: func(p *probe) {
			p.wantHTTP2()
			p.wantID("a GET", p.do(p.read(p.full()).over2()))
			p.wantID("a GET without a key", p.do(p.read("").over2()))
		}},
	{Name: "http2/missing-key", Level: Contract, Source: section5,
		Text: "Over HTTP/2 a request without a live key is answered 401, too.",
		Hint: "HTTP/2 keeps spaces in values, so that Bearer may be followed by nothing but one",
		check: func(p *probe) {
			p.wantHTTP2()
			p.want("Authorization: Bearer and a space", p.do(p.read("").with("Authorization: Bearer ").over2()), 401)
			for _, by := range []caller{p.nobody().over2(), p.stranger().over2()} {
				p.refusesRead(by)
				p.refusesCreates(by)
			}
		}},
	{Name: "http2/scope", Level: Contract, Source: section5, needs: "none",
		Text: "Over HTTP/2 a key without the scope is answered 403, too.",
		Hint: "check the scope whatever the version",
		check: func(p *probe) {
			p.wantHTTP2()
			p.refusesRead(p.lacking("none").over2())
			p.refusesCreates(p.lacking("none").over2())
		}},
	{Name: "http2/replay", Level: Contract, Source: section4, needs: "create",
		Text: "A repeat over HTTP/2 makes no second resource, whichever version the create came by.",
		Hint: "heed the key whatever the version",
		check: func(p *probe) {
			p.wantHTTP2()
			c := p.create(0, p.full())
			w := p.watch(c)
			first := p.wantOK("the create", p.do(c.over2()))
			p.wantSame("the repeat", p.do(c.over2()), first)
			p.wantSame("the repeat over HTTP/1.1", p.do(c.request), first)
			w.exactly(1, "after repeats over HTTP/2")
		}},
}

func (p *probe) wantHTTP2() {
	if !p.http2 {
		p.vacuousf("the server does not speak HTTP/2")
	}
}
