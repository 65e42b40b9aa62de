package rules

import "fmt"

var scopeRules = []Rule{
	{Name: "scope/none", Level: Contract, Source: section5, needs: "none",
		Text:  "A live key without the scope is answered 403.",
		Hint:  "403, not 401 or 404: the key is live; if it is not, correct the keys file",
		check: func(p *probe) { p.forbids("none") }},
	{Name: "scope/none-create", Level: Contract, Source: section5, needs: "none create",
		Text:  "A create without the scope is answered 403 and makes nothing, on each route.",
		Hint:  "check the scope before the handler runs, on every route that creates",
		check: func(p *probe) { p.refusesCreates(p.lacking("none")) }},
	{Name: "scope/worker", Level: Contract, Source: section5, needs: "worker",
		Text:  "Scopes of other families do not help: 403.",
		Hint:  "look for the scope of the route, not for any scope",
		check: func(p *probe) { p.forbids("worker") }},
	{Name: "scope/worker-create", Level: Contract, Source: section5, needs: "worker create",
		Text:  "Scopes of other families do not help to create: 403, and nothing is made.",
		Hint:  "look for the scope of the route, not for any scope",
		check: func(p *probe) { p.refusesCreates(p.lacking("worker")) }},
	{Name: "scope/reader", Level: Contract, Source: section5, needs: "reader create",
		Text:  "A scope to read is none to write, also in the same family: 403, and nothing is made.",
		Hint:  "compare whole names of scopes, not their beginnings",
		check: func(p *probe) { p.refusesCreates(p.lacking("reader")) }},
	{Name: "scope/writer", Level: Contract, Source: section5, needs: "writer list",
		Text: "A scope to write is none to read, also in the same family: 403.",
		Hint: "compare whole names of scopes, not their beginnings",
		check: func(p *probe) {
			p.refusesLists(p.lacking("writer"))
			for i := range p.target.Creates {
				p.wantOK("a create with the key writer", p.do(p.create(i, p.key("writer")).request))
			}
		}},
	{Name: "scope/sandbox", Level: Contract, Source: section5, needs: "sandbox-none",
		Text: "Keys of the sandbox are limited to their scopes as well.",
		Hint: "the environment is no reason to leave the check out",
		check: func(p *probe) {
			p.forbids("sandbox-none")
			p.refusesCreates(p.lacking("sandbox-none"))
		}},
	{Name: "scope/head", Level: Contract, Source: section5, needs: "none",
		Text:  "HEAD needs the scope of GET.",
		Hint:  "routers serve HEAD by the handler of GET, so the check has to stand in front of both",
		check: func(p *probe) { p.refusesHead(p.lacking("none")) }},
	{Name: "scope/paths", Level: Contract, Source: section5, needs: "none",
		Text:  "Another spelling of a path needs the scope as well.",
		Hint:  "decide by the route that was matched and not by the text of the path",
		check: func(p *probe) { p.refusesSpellings(p.lacking("none")) }},
	{Name: "scope/method-override", Level: Contract, Source: section5, needs: "reader create",
		Text: "A method that a header claims needs its own scope.",
		Hint: "leave X-HTTP-Method-Override to proxies, or apply it before the scope is checked",
		check: func(p *probe) {
			c := p.create(0, p.key("reader"))
			w := p.watch(c)
			r := c.with("X-HTTP-Method-Override: POST", "X-Method-Override: POST")
			if a := p.do(r.by("GET").anew()); a.status == 201 {
				p.fault(a, "a GET with X-HTTP-Method-Override: POST and the key reader: got %d", a.status)
			}
			w.most(0, "after a GET that claims to be a POST")
		}},
	{Name: "scope/replay", Level: Contract, Source: section5, needs: "none create",
		Text:  "A stored response is not handed to a key that lacks the scope: 403.",
		Hint:  "check the scope in front of the store of responses",
		check: func(p *probe) { p.refusesRepeats(p.lacking("none")) }},
	{Name: "scope/connection", Level: Contract, Source: section5, needs: "none",
		Text: "The scopes are those of the request's own key, on a connection that has seen others too.",
		Hint: "keep nothing about the caller with the connection",
		check: func(p *probe) {
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
		}},
}

func (p *probe) forbids(name string) {
	p.refusesRead(p.lacking(name))
	p.refusesLists(p.lacking(name))
}
