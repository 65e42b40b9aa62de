package rules

var http2Checks = checks{
	"http2/request-id": func(p *probe) {
		p.wantHTTP2()
		p.wantID("a GET", p.do(p.read(p.full()).over2()))
		p.wantID("a GET without a key", p.do(p.read("").over2()))
	},
	"http2/missing-key": func(p *probe) {
		p.wantHTTP2()
		p.want("Authorization: Bearer and a space", p.do(p.read("").with("Authorization: Bearer ").over2()), 401)
		for _, by := range []caller{p.nobody().over2(), p.stranger().over2()} {
			p.refusesReads(by, p.readable()[:1])
			p.refusesCreates(by)
		}
	},
	"http2/scope": func(p *probe) {
		p.wantHTTP2()
		p.refusesReads(p.lacking("none").over2(), p.readable()[:1])
		p.refusesCreates(p.lacking("none").over2())
	},
	"http2/replay": func(p *probe) {
		p.wantHTTP2()
		c := p.create(0, p.full())
		w := p.watch(c)
		first := p.wantOK("the create", p.do(c.over2()))
		p.wantSame("the repeat", p.do(c.over2()), first)
		p.wantSame("the repeat over HTTP/1.1", p.do(c.request), first)
		w.exactly(1, "after repeats over HTTP/2")
	},
	"http2/organization": func(p *probe) {
		p.wantHTTP2()
		one := func(r request) request {
			r.http2, r.shared = true, true
			return r
		}
		full, other := p.full(), p.key("other")
		is := p.accounts(full, other)
		p.do(one(p.read(full))) // there is a connection then
		p.parallel(12, func(i int) {
			key, foreign := full, is.other
			if i%2 == 1 {
				key, foreign = other, is.key
			}
			a := p.do(one(p.read(key)))
			p.wantOwn("a GET beside those of another organization on one connection", a, key, foreign)
		})
		p.parallel(2*len(p.target.Creates), func(i int) { // all responses together tell
			p.do(one(p.create(i/2, []string{full, other}[i%2]).request))
		})
	},
}

func (p *probe) wantHTTP2() {
	if !p.http2 {
		p.vacuousf("the server does not speak HTTP/2")
	}
}
