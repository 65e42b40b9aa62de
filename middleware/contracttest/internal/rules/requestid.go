package rules

import (
	"fmt"
	"net/http"
	"strings"
)

var requestIDChecks = checks{
	"request-id/success": func(p *probe) { p.wantID("a GET", p.do(p.read(p.full()))) },
	"request-id/create": func(p *probe) {
		c := p.create(0, p.full())
		p.wantID("a create", p.do(c.request))
		p.wantID("its repeat", p.do(c.request))
	},
	"request-id/unauthorized": func(p *probe) {
		p.wantID("a GET without a key", p.do(p.read("")))
		p.wantID("a GET with an invalid key", p.do(p.read(flipLast(p.full())).anew()))
		p.wantID("a GET with a token of another shape", p.do(p.read("x").anew()))
	},
	"request-id/forbidden": func(p *probe) { p.wantID("a GET with the key none", p.do(p.read(p.key("none")))) },
	"request-id/not-found": func(p *probe) {
		p.wantID("an unknown path", p.do(get(p.target.Base+"/contract-unknown", p.full())))
		p.wantID("an unknown path without a key", p.do(get(p.target.Base+"/contract-unknown", "")))
		// PROPFIND changes nothing, wherever it is known.
		p.wantID("a method that the path does not have", p.do(p.read(p.full()).by("PROPFIND")))
	},
	"request-id/bad-body": func(p *probe) {
		p.eachCreate(p.full(), func(c creation) {
			p.wantID("a create of text", p.do(c.guised("Content-Type: text/plain")))
			p.do(c.guised("Content-Type: application/json; charset=contract")) // all responses together tell
			for _, body := range []string{"{", "", "null", "[]", "\xff", `{"title":{}}`} {
				c.body = body
				p.wantID(fmt.Sprintf("a create with the body %q", body), p.do(c.keyedWith(newUUID()).request))
			}
			if c = p.create(c.route, p.full()); c.marker != "" {
				c.body = strings.Replace(c.body, c.marker, c.marker+`\u0000`, 1) // no text for some databases
				p.wantID("a create with U+0000 in a string", p.do(c.request))
			}
		})
	},
	"request-id/head-and-options": func(p *probe) {
		for _, method := range []string{"HEAD", "OPTIONS"} {
			for _, key := range []string{p.full(), ""} {
				p.wantID(method, p.do(p.read(key).by(method)))
			}
		}
		p.wantID("a preflight", p.do(p.preflight()))
	},
	"request-id/guises": func(p *probe) {
		p.inGuise(p.full(), func(what string, a answer) {
			if a.header.Get("Date") != "" && !a.to.odd() {
				p.wantID(what, a)
			}
		})
	},
	"request-id/not-modified": func(p *probe) {
		lines := []string{"If-None-Match: *", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"}
		if tag := p.do(p.read(p.full())).header.Get("Etag"); tag != "" {
			lines = append(lines, "If-None-Match: "+tag, "If-None-Match: "+tag)
		}
		for _, line := range lines {
			p.wantID(line, p.do(p.read(p.full()).with(line)))
		}
	},
	"request-id/paths": func(p *probe) {
		for _, path := range spellings(p.target.Base, p.target.Read) {
			if r := get(path, p.full()); !r.odd() {
				p.wantID("a GET of "+path, p.do(r))
			}
		}
	},
	"request-id/odd": func(p *probe) {
		broken := p.target.Read + separator(p.target.Read) + "contract=%zz"
		for _, path := range append(spellings(p.target.Base, p.target.Read), broken) {
			if r := get(path, p.full()); r.odd() {
				p.wantID("a GET of "+path, p.do(r))
			}
		}
		p.wantID("TRACE", p.do(p.read(p.full()).by(http.MethodTrace)))
		for _, guise := range []string{asHTTP10, absoluteTarget, "Host: localhost",
			"Upgrade: websocket\nConnection: Upgrade"} {
			if a, err := p.tryPatiently(p.read(p.full()).guised(guise).anew()); err == nil && a.header.Get("Date") != "" {
				p.wantID("a GET with "+guise, a)
			}
		}
	},
	"request-id/connection": func(p *probe) {
		ids := make(map[string]bool)
		answers := p.sequence(p.read(p.full()), p.read(p.full()), p.read(""))
		c := p.dial(p.read(p.full()))
		defer c.Close()
		c.send(p.text(c.last) + p.text(c.last)) // the second one before the first is answered
		for range 2 {
			if a, err := c.next(); err == nil {
				answers = append(answers, a)
			}
		}
		for i, a := range answers {
			id := p.wantID("a GET", a)
			if ids[id] {
				p.fault(a, "response %d of a connection has the id %q of one before", i+1, id)
			}
			ids[id] = true
		}
	},
	"request-id/from-client": func(p *probe) {
		line := p.target.RequestIDHeader + ": contract-chosen-by-the-client"
		a := p.do(p.read(p.full()).with(line))
		if strings.Contains(a.header.Get(p.target.RequestIDHeader), "chosen-by-the-client") {
			p.fault(a, "the response has the id that the client sent")
		}
	},
	"request-id/plain": func(p *probe) {
		id := p.wantID("a GET", p.do(p.read(p.full())))
		if len(id) > 200 || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
			p.fault(answer{}, "an id of %d bytes, %.40q, is hard to quote", len(id), id)
		}
	},
	"request-id/replay": func(p *probe) {
		c := p.create(0, p.full())
		first, again := p.do(c.request), p.do(c.request)
		if id := again.header.Get(p.target.RequestIDHeader); id != "" && id == first.header.Get(p.target.RequestIDHeader) {
			p.fault(again, "the repeat has the id of the original, %q", id)
		}
	},
	"request-id/unique":         func(p *probe) { p.report(&p.seen.repeated, "an id came twice") },
	"request-id/every-response": func(p *probe) { p.report(&p.seen.without, "a response without exactly one id") },
	"secret/never-returned": func(p *probe) {
		for _, path := range []string{"/metrics", "/debug/vars", "/status", p.target.Base + "/metrics"} {
			if a, err := p.exchange(p.ctx, get(path, "").anew()); err == nil && p.redact.holds(a.body) {
				p.fault(a, "GET %s shows a key to anybody", path)
			}
		}
		p.report(&p.seen.secrets, "a response holds a key")
	},
	"secret/parts": func(p *probe) { p.report(&p.seen.parts, "a response holds most of a key") },
}
