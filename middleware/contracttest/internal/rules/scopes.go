package rules

import "fmt"

var scopeChecks = checks{
	"scope/never-shown":   func(p *probe) { p.report(&p.seen.foreign, "a response shows what its key may not see") },
	"scope/none":          func(p *probe) { p.forbids("none") },
	"scope/none-create":   func(p *probe) { p.refusesCreates(p.lacking("none")) },
	"scope/worker":        func(p *probe) { p.forbids("worker") },
	"scope/worker-create": func(p *probe) { p.refusesCreates(p.lacking("worker")) },
	"scope/reader":        func(p *probe) { p.refusesCreates(p.lacking("reader")) },
	"scope/writer": func(p *probe) {
		p.refusesReads(p.lacking("writer"), p.readable()[1:])
		for i := range p.target.Creates {
			c := p.create(i, p.key("writer"))
			first := p.wantOK("a create with the key writer", p.do(c.request))
			p.wantSame("the repeat with the key writer", p.do(c.request), first)
		}
	},
	"scope/sandbox": func(p *probe) {
		p.forbids("sandbox-none")
		p.refusesCreates(p.lacking("sandbox-none"))
	},
	"scope/head":   func(p *probe) { p.refusesHead(p.lacking("none")) },
	"scope/paths":  func(p *probe) { p.refusesSpellings(p.lacking("none")) },
	"scope/guises": func(p *probe) { p.refusesGuises(p.lacking("none")) },
	"scope/method-override": func(p *probe) {
		c := p.create(0, p.key("reader"))
		w := p.watch(c)
		r := c.with("X-HTTP-Method-Override: POST", "X-Method-Override: POST")
		if a := p.do(r.by("GET").anew()); a.status == 201 {
			p.fault(a, "a GET with X-HTTP-Method-Override: POST and the key reader: got %d", a.status)
		}
		_, _ = p.tryPatiently(c.by("post").anew()) // it may get no answer
		w.most(0, "after a GET that claims to be a POST and a post in small letters")
	},
	"scope/replay": func(p *probe) { p.refusesRepeats(p.lacking("none")) },
	"scope/connection": func(p *probe) {
		for _, order := range [][]string{{"full", "none"}, {"none", "full"}} {
			var requests []request
			for _, name := range order {
				requests = append(requests, p.read(p.key(name)))
			}
			for i, a := range p.sequence(requests...) {
				want := map[string]int{"full": p.sample.status, "none": 403}[order[i]]
				p.want(fmt.Sprintf("request %d of a connection, with the key %s", i+1, order[i]), a, want)
			}
		}
	},
}

func (p *probe) forbids(name string) { p.refusesReads(p.lacking(name), p.readable()) }
