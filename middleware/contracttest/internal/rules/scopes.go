package rules

import "fmt"

var scopeChecks = checks{
	"scope/none": func(p *probe) { p.forbids("none") },
	"scope/none-create": func(p *probe) {
		by := p.lacking("none")
		p.refusesCreates(by)
		p.eachCreate(by.key, func(c creation) {
			c.body = "{"
			p.refuses(by, "a create with a bad body and", c.request)
		})
	},
	"scope/worker":        func(p *probe) { p.forbids("worker") },
	"scope/worker-create": func(p *probe) { p.refusesCreates(p.lacking("worker")) },
	"scope/reader":        func(p *probe) { p.refusesCreates(p.lacking("reader")) },
	"scope/writer": func(p *probe) {
		p.refusesLists(p.lacking("writer"))
		for i := range p.target.Creates {
			p.wantOK("a create with the key writer", p.do(p.create(i, p.key("writer")).request))
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
		w.most(0, "after a GET that claims to be a POST")
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

func (p *probe) forbids(name string) {
	p.refusesRead(p.lacking(name))
	p.refusesLists(p.lacking(name))
}
