package rules

import "strings"

var requestIDRules = []Rule{
	{Name: "request-id/success", Level: Contract, Source: section4,
		Text:  "A success has one request id.",
		Hint:  "set the header in the outermost stage, before anything is written",
		check: func(p *probe) { p.wantID("a GET", p.do(p.read(p.full()))) }},
	{Name: "request-id/create", Level: Contract, Source: section4, needs: "create",
		Text: "The response to a create and to its repeat has one request id.",
		Hint: "a stored response needs the header as well",
		check: func(p *probe) {
			c := p.create(0, p.full())
			p.wantID("a create", p.do(c.request))
			p.wantID("its repeat", p.do(c.request))
		}},
	{Name: "request-id/unauthorized", Level: Contract, Source: section7,
		Text: "A 401 has one request id.",
		Hint: "give the id before the key is looked at",
		check: func(p *probe) {
			p.wantID("a GET without a key", p.do(p.read("")))
			p.wantID("a GET with an invalid key", p.do(p.read(flipLast(p.full())).anew()))
			p.wantID("a GET with a token of another shape", p.do(p.read("x").anew()))
		}},
	{Name: "request-id/forbidden", Level: Contract, Source: section7, needs: "none",
		Text:  "A 403 has one request id.",
		Hint:  "give the id before the scope is looked at",
		check: func(p *probe) { p.wantID("a GET with the key none", p.do(p.read(p.key("none")))) }},
	{Name: "request-id/not-found", Level: Contract, Source: section4,
		Text: "The response to an unknown path or method has one request id.",
		Hint: "put the stage around the router: routers answer 404 and 405 themselves",
		check: func(p *probe) {
			p.wantID("an unknown path", p.do(get(p.target.Base+"/contract-unknown", p.full())))
			p.wantID("an unknown path without a key", p.do(get(p.target.Base+"/contract-unknown", "")))
			// PROPFIND changes nothing, wherever it is known.
			p.wantID("a method that the path does not have", p.do(p.read(p.full()).by("PROPFIND")))
		}},
	{Name: "request-id/bad-body", Level: Contract, Source: section4, needs: "create",
		Text: "The response to a body that makes no sense has one request id.",
		Hint: "the handler's own refusals are responses, too",
		check: func(p *probe) {
			p.eachCreate(p.full(), func(c creation) {
				c.body = "{"
				p.wantID("a create with a bad body", p.do(c.request))
			})
		}},
	{Name: "request-id/head-and-options", Level: Contract, Source: section4,
		Text: "The responses to HEAD and OPTIONS have one request id.",
		Hint: "a CORS stage that answers OPTIONS stands inside the stage of the id",
		check: func(p *probe) {
			for _, method := range []string{"HEAD", "OPTIONS"} {
				for _, key := range []string{p.full(), ""} {
					p.wantID(method, p.do(p.read(key).by(method)))
				}
			}
			p.wantID("a preflight", p.do(p.preflight()))
		}},
	{Name: "request-id/not-modified", Level: Contract, Source: section4,
		Text: "The response to a conditional request has one request id, also 304 and 204.",
		Hint: "a response without a body has headers all the same",
		check: func(p *probe) {
			lines := []string{"If-None-Match: *", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"}
			if tag := p.do(p.read(p.full())).header.Get("Etag"); tag != "" {
				lines = append(lines, "If-None-Match: "+tag)
			}
			for _, line := range lines {
				p.wantID(line, p.do(p.read(p.full()).with(line)))
			}
		}},
	{Name: "request-id/paths", Level: Contract, Source: section4,
		Text: "The response to another spelling of a path has one request id, also a redirect.",
		Hint: "routers answer redirects themselves: put the stage around the router, or switch them off",
		check: func(p *probe) {
			for _, path := range spellings(p.target.Base, p.target.Read) {
				p.wantID("a GET of "+path, p.do(get(path, p.full())))
			}
		}},
	{Name: "request-id/connection", Level: Contract, Source: section4,
		Text: "Each response of a connection has an id of its own.",
		Hint: "make the id for the request and not for the connection",
		check: func(p *probe) {
			ids := make(map[string]bool)
			for i, a := range p.sequence(p.read(p.full()), p.read(p.full()), p.read("")) {
				id := p.wantID("a GET", a)
				if ids[id] {
					p.fault(a, "response %d of a connection has the id %q of one before", i+1, id)
				}
				ids[id] = true
			}
		}},
	{Name: "request-id/from-client", Level: Advice, Source: practice,
		Text: "A client cannot choose the id.",
		Hint: "take ids from a proxy that you trust, and only from it",
		check: func(p *probe) {
			line := p.target.RequestIDHeader + ": contract-chosen-by-the-client"
			a := p.do(p.read(p.full()).with(line))
			if strings.Contains(a.header.Get(p.target.RequestIDHeader), "chosen-by-the-client") {
				p.fault(a, "the response has the id that the client sent")
			}
		}},
	{Name: "request-id/replay", Level: Advice, Source: practice, needs: "create",
		Text: "A repeat has a request id of its own.",
		Hint: "each response is a line of its own in the logs; name the first id in another header",
		check: func(p *probe) {
			c := p.create(0, p.full())
			first, again := p.do(c.request), p.do(c.request)
			if id := again.header.Get(p.target.RequestIDHeader); id != "" && id == first.header.Get(p.target.RequestIDHeader) {
				p.fault(again, "the repeat has the id of the original, %q", id)
			}
		}},
	{Name: "request-id/unique", Level: Contract, Source: section4, when: end,
		Text:  "No two responses have the same id.",
		Hint:  "draw at least 64 random bits for each response",
		check: func(p *probe) { p.report(&p.seen.repeated, "an id came twice") }},
	{Name: "request-id/every-response", Level: Contract, Source: section4, when: end,
		Text:  "Every response of the whole check had exactly one request id.",
		Hint:  "enforce the header when the response is committed, in the outermost stage",
		check: func(p *probe) { p.report(&p.seen.without, "a response without exactly one id") }},
	{Name: "secret/never-returned", Level: Contract, when: end,
		Source: "contract, section 5 (a secret is displayed once, at creation)",
		Text:   "No response holds a key, or most of one.",
		Hint:   "name a key by its id in responses and logs, never by its text",
		check:  func(p *probe) { p.report(&p.seen.secrets, "a response holds a key") }},
}
