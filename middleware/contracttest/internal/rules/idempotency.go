package rules

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

var idempotencyChecks = checks{
	"idempotency/replay": func(p *probe) {
		p.eachCreate(p.full(), func(c creation) {
			p.wantOneResource(c, 3, "")
			for _, change := range []func(creation) string{creation.half, creation.list} {
				h, bad := history{p: p}, p.create(c.route, p.full())
				bad.body = change(bad)
				h.send("a create with another body", bad)
				h.send("its repeat", bad)
			}
		})
	},
	"idempotency/second-list": func(p *probe) { p.wantOneResource(p.create(1, p.full()), 1, "") },
	"idempotency/another-connection": func(p *probe) {
		c := p.create(0, p.full())
		c.fresh = true
		p.wantOneResource(c, 2, "")
	},
	"idempotency/chunked": func(p *probe) {
		c := p.create(0, p.full())
		c.chunked, c.fresh = true, true
		p.wantOneResource(c, 1, "chunked bodies")
	},
	"idempotency/large-body": func(p *probe) {
		if !strings.Contains(p.target.Creates[0].Type, "json") {
			p.vacuousf("only JSON can be made longer without another meaning")
		}
		if c := p.create(0, p.full()); c.marker != "" {
			c.body = strings.Replace(c.body, c.marker, c.marker+strings.Repeat("x", 8<<10), 1)
			ifTaken(func() { p.wantOneResource(c, 1, "value of 8 KiB") })
		}
		c := p.create(0, p.full())
		c.body += strings.Repeat(" ", 64<<10)
		p.wantOneResource(c, 1, "body of 64 KiB")
	},
	"idempotency/letters": func(p *probe) {
		c := p.create(0, p.full())
		if c.marker == "" {
			p.vacuousf("the body has no {{random}} that could be longer")
		}
		c.body = strings.Replace(c.body, c.marker, c.marker+"größe \u20ac \U0001f600 <b>&amp;'", 1)
		p.wantOneResource(c, 1, "letters outside ASCII")
	},
	"idempotency/differences": func(p *probe) {
		c := p.create(0, p.full())
		w := p.watch(c)
		c.request = c.with("Accept-Encoding: gzip")
		first := p.wantOK("the create", p.do(c.request))
		each(p, []string{
			"Accept-Encoding: identity", "User-Agent: other/2", "X-Forwarded-For: 192.0.2.7", "Cookie: session=contract",
			"Accept: application/json", "Accept-Language: de", "Cache-Control: no-cache\nPragma: no-cache",
			"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n" +
				"Tracestate: a=1\nX-Request-Id: contract",
			"X-Retry-Count: 1\nX-Stainless-Retry-Count: 1\nPriority: u=1\nTe: trailers\nVia: 1.1 proxy\nDnt: 1",
			"Host: localhost", "Authorization: bearer " + p.full(),
			asHTTP10, lowerNames, asChunks,
		}, func(guise string) {
			a := p.do(c.guised(guise).anew())
			name, _, _ := strings.Cut(guise, ":")
			mayRefuse := slices.Contains([]int{401, 411, 421, 426, 505}, a.status) || name == "Host" && !a.ok()
			if !mayRefuse {
				p.wantSame("the repeat with another "+name, a, first)
			}
		})
		p.do(c.guised("Content-Type: " + p.target.Creates[0].Type + "; charset=utf-8")) // it may be refused
		w.exactly(1, "after repeats that differ in what is no part of the create")
	},
	"idempotency/coding": func(p *probe) {
		c := p.create(0, p.full())
		p.do(c.with("Accept-Encoding: gzip"))
		a := p.do(c.with("Accept-Encoding: identity"))
		if coding := a.header.Get("Content-Encoding"); coding != "" {
			p.fault(a, "the repeat with another Accept-Encoding is encoded in %s", coding)
		}
	},
	"idempotency/guises": func(p *probe) {
		for _, guise := range []string{"Accept-Encoding: gzip", "Origin: https://app.example.com\nExpect: 100-continue",
			"Range: bytes=0-9", asHTTP10, absoluteTarget} {
			c := p.create(0, p.full())
			c.request = c.guised(guise)
			ifTaken(func() { p.wantOneResource(c, 1, "creates with "+guise) })
		}
		at := p.target.Creates[0].Path
		query := separator(at) + "contract=1"
		for _, spelt := range []string{at + query, at + "/", "/" + at, at + ".json", strings.ToUpper(at)} {
			c := p.create(0, p.full())
			c.path = spelt
			ifTaken(func() { p.wantOneResource(c, 1, "creates at "+spelt) })
		}
		c := p.create(0, p.full())
		c.request = c.guised("If-None-Match: *")
		if first := p.do(c.request); first.ok() { // it may be refused, since there are resources
			p.wantSame("the repeat of a create with If-None-Match: *", p.do(c.request), first)
		}
	},
	"idempotency/sandbox": func(p *probe) {
		p.eachCreate(p.key("sandbox"), func(c creation) { p.wantOneResource(c, 2, "") })
	},
	"idempotency/two-keys": func(p *probe) {
		p.wantApartAtOnce(p.create(0, p.full()), p.create(0, p.full()))
		ifTaken(func() { // a server may close its connections, and want a key
			keyed, unkeyed := p.create(0, p.full()), p.unkeyed(0, p.full())
			p.expect(unkeyed, 3) // as often as it may be sent
			if both := p.sequence(keyed.request, unkeyed.request); both[1].ok() {
				p.wantOther("a create without a key, on the same connection,", both[1], both[0])
			}
		})
		c := p.create(0, p.full())
		first := p.wantOK("the first", p.do(c.request))
		// Equal bodies, unless the body has a value that must be unique.
		other := p.do(c.keyedWith(newUUID()).request)
		p.expect(c, 2)
		if !p.silent && !p.echoes && other.ok() && other.status == first.status && first.status == 201 {
			p.wantOther("the same body with another key", other, first)
			p.parallel(16, func(i int) {
				same := []creation{c, c.keyedWith(other.to.header("Idempotency-Key"))}[i%2]
				p.wantSame("one of many repeats of two creates", p.do(same.anew()), []answer{first, other}[i%2])
			})
			return
		}
		// Refused, or a 200 that says that there is one already, or a
		// response that says nothing.
		c = p.create(0, p.full())
		w := p.watch(c)
		p.wantOther("another create", p.wantOK("another create", p.do(c.request)), first)
		w.made("another create")
	},
	"idempotency/whole-keys": func(p *probe) {
		p.wantAllApart([][3]string{
			{"the last of 255 bytes", "{254}a", "{254}b"},
			{"the last of 128 bytes", "{127}a", "{127}b"},
			{"the last of 64 bytes", "{63}a", "{63}b"},
			{"the last of 36 bytes", "{35}a", "{35}b"},
			{"their first byte", "a{u}", "b{u}"},
			{"the order of their bytes", "{u}ab", "{u}ba"},
			{"letter case", "key-{u}", "KEY-{U}"},
			{"zeros in front", "7{n}", "007{n}"},
			{"what stands behind a comma", "{u},a", "{u},b"},
			{"plus and minus", "{u}+1", "{u}-1"},
			{"dashes", "{u}", "{x}"},
			{"a dot and an underscore", "{u}.1", "{u}_1"},
			{"an encoded letter", "{u}a", "{u}%61"},
			{"spaces inside", "{u} a", "{u}  a"},
			{"a sign that a search may take for any", "{u}ab", "{u}*"},
			{"two letters and not in Java's hash", "{u}Aa", "{u}BB"},
		})
	},
	"idempotency/foreign-keys": func(p *probe) {
		p.wantAllApart([][3]string{{"an accent", "{u}e", "{u}é"}, {"letters outside ASCII", "{u}ü", "{u}é"}})
	},
	"idempotency/any-key": func(p *probe) {
		long := strings.Repeat(strings.ReplaceAll(newUUID(), "-", ""), 32)
		keys := []string{"order-" + newUUID()[:8], long[:40], long[:100], long[:255], long[:300], long[:1000]}
		for _, odd := range []string{`"`, `'`, `\`, ";", "%", "/", ":", "{}", "$", "*"} {
			keys = append(keys, newUUID()+odd)
		}
		each(p, keys, func(key string) {
			if a := p.wantHeeded(key); a.class() == 5 {
				p.fault(a, "the key %.40q of %d bytes: got %d", key, len(key), a.status)
			}
		})
		// Somebody may have used these, who gets the response of that create.
		for _, key := range []string{"0", "null", "false", "undefined", "constructor", "__proto__"} {
			c := p.create(0, p.full()).keyedWith(key)
			first := p.do(c.request)
			if first.ok() {
				p.wantSame("with the key "+key+", which was accepted, the repeat", p.do(c.request), first)
			}
			if first.status >= 500 || first.ok() && first.location() == "" && members(first.body) == nil && !p.silent {
				p.fault(first, "the key %s: got %d and no resource", key, first.status)
			}
		}
	},
	"idempotency/reads": func(p *probe) {
		c := p.create(0, p.full())
		w := p.watch(c)
		p.do(get(cmp.Or(p.target.Creates[0].List, p.target.Read), p.full()).with("Idempotency-Key: " + c.key()))
		first := p.do(c.request)
		w.exactly(1, "after a GET with the key of a create")
		a := p.do(p.read(p.full()).with("Idempotency-Key: " + c.key()))
		p.wantOK("a GET with the key of a create", a)
		if a.body == first.body && a.status == first.status && first.body != "" {
			p.fault(a, "a GET with the key of a create got the response of the create")
		}
	},
	"idempotency/after-unauthorized": func(p *probe) {
		c := p.create(0, p.full())
		w := p.watch(c)
		p.want("the create with an invalid key", p.do(c.as(flipLast(p.full())).anew()), 401)
		p.want("the create without a key", p.do(c.as("").anew()), 401)
		p.wantOK("the create with a live key", p.do(c.request))
		w.exactly(1, "after a 401 and a success")
	},
	"idempotency/routes-apart": func(p *probe) {
		one := p.create(0, p.full())
		two := p.create(1, p.full()).keyedWith(one.key())
		if one.path == two.path {
			p.vacuousf("both routes have one path")
		}
		h := history{p: p}
		p.wantOK("the create", h.send("the create", one))
		equal := two
		equal.body, equal.marker = one.body, one.marker
		p.expect(one, 2) // where both lists show both
		for _, other := range []creation{equal, two} {
			if a := h.send("the create on another path", other); a.class() == 5 {
				p.fault(a, "the create on another path: got %d", a.status)
			} else if a.ok() && other.body == two.body {
				h.sent[len(h.sent)-1].watch.made("the create on another path")
			}
		}
		h.send("the repeat after a create on another path", one)
	},
	"idempotency/at-once": func(p *probe) {
		for range 3 {
			p.eachCreate(p.full(), func(c creation) {
				w := p.watch(c)
				answers := p.atOnce(c, 30)
				original := p.wantOK("the repeat after duplicates at one time", p.settled(c))
				for _, a := range answers {
					switch {
					case a.ok():
						p.wantSame("one of the duplicates", a, original)
					case a.class() == 5 && a.header.Get("Retry-After") == "", a.status == 401, a.status == 403:
						p.fault(a, "one of the duplicates: got %d", a.status)
					}
				}
				w.exactly(1, fmt.Sprintf("after %d duplicates at one time", len(answers)))
			})
		}
	},
	"idempotency/meanwhile": func(p *probe) {
		start := time.Now()
		p.wantOK("the create", p.do(p.create(0, p.full()).request))
		took := time.Since(start)
		c := p.create(0, p.full())
		w := p.watch(c)
		answers := make([]answer, 2)
		p.parallel(2, func(i int) {
			p.sleep(took * 3 / 4 * time.Duration(i))
			answers[i] = p.do(c.anew())
		})
		w.wantOne(answers)
		p.wantSlowBody()
	},
	"idempotency/later": func(p *probe) {
		c := p.create(0, p.full())
		first := p.wantOK("the create", p.do(c.request))
		start := time.Now()
		each(p, make([]int, 40), func(int) {
			p.wantOK("a create with a new key, after many", p.do(p.create(0, p.full()).request))
		})
		p.sleep(2*time.Second - min(2*time.Second, time.Since(start)))
		w := p.watch(c)
		before := w.count() // none, where the list is paged
		p.wantSame("the repeat after 40 other creates and 2 s", p.do(c.request), first)
		w.most(before, "after a late repeat")
	},
	"idempotency/at-the-end": func(p *probe) {
		p.checkLedger()
		if !slices.ContainsFunc(p.effects.routes, func(r routeEffects) bool { return r.perItem > 0 }) {
			p.vacuousf("without {{random}} in the body no list shows what a create has made")
		}
	},
	"idempotency/no-key": func(p *probe) {
		c := p.unkeyed(0, p.full())
		p.expect(c, 2)
		first, second := p.do(c.anew()), p.do(c.anew())
		if !second.ok() {
			p.vacuousf("the server asks for a key, or the body has a value that must be unique: %d", second.status)
		}
		p.wantOther("the second", second, first)
	},
	"idempotency/after-forbidden": func(p *probe) {
		c := p.create(0, p.full())
		p.want("the create without the scope", p.do(c.as(p.key("none")).request), 403)
		p.wantOK("the create with it", p.do(c.request))
	},
	"idempotency/empty-key": func(p *probe) {
		one, two := p.create(0, p.full()).keyedWith(""), p.create(0, p.full()).keyedWith("")
		first := p.do(one.request)
		if second := p.do(two.request); first.ok() {
			p.wantOther("another create with an empty key", p.wantOK("another create with an empty key", second), first)
		}
	},
	"idempotency/refused": func(p *probe) {
		p.eachCreate(p.full(), func(c creation) {
			w := p.watch(c)
			large := p.head(c.request, contentLength(len(c.body)+4<<20)) + c.body + strings.Repeat(" ", 4<<20)
			a, err := p.dial(c.request).roundTrip(large, (*conn).next)
			if err == nil && !a.ok() {
				p.noteOwn(a)
				w.most(0, "after a "+strconv.Itoa(a.status))
			}
			bad := p.create(c.route, p.full())
			bad.body = "{"
			if first, again := p.do(bad.request), p.settled(bad); again.status == 409 && first.status != 409 {
				p.fault(again, "the repeat of a create that was answered %d: got 409", first.status)
			}
		})
	},
	"idempotency/second-key": func(p *probe) {
		c := p.create(0, p.full())
		first := p.wantOK("the create", p.do(c.request))
		p.expect(c, 2)
		p.wantSame("the repeat with the key second", p.do(c.as(p.key("second")).request), first)
	},
	"idempotency/other-body": func(p *probe) {
		c := p.create(0, p.full())
		p.wantOK("the create", p.do(c.request))
		if a := p.do(p.another(c).request); a.class() != 4 {
			p.fault(a, "another body with the same key: got %d, want 422", a.status)
		}
	},
	"idempotency/should-retry": func(p *probe) {
		c := p.create(0, p.full())
		p.wantOK("the create", p.do(c.request))
		a := p.do(p.another(c).request)
		repeated := slices.Contains([]int{408, 409, 425, 429}, a.status) || a.class() == 5 // by clients
		if says := a.header.Get("X-Should-Retry"); repeated && says != "false" || says == "true" {
			p.fault(a, "another body with the same key: got %d, and X-Should-Retry is %q", a.status, says)
		}
	},
	"idempotency/another-body": func(p *probe) {
		c := p.create(0, p.full())
		h := history{p: p}
		p.wantOK("the create", h.send("the create", c))
		other := h.send("another body with its key", p.another(c))
		h.send("the repeat after another body with its key", c)
		if !other.ok() {
			h.wantOne("after another body with its key")
		}
	},
	"idempotency/any-shape": func(p *probe) {
		p.wantOK("a key of letters", p.do(p.create(0, p.full()).keyedWith("order-"+newUUID()).request))
	},
	"idempotency/conflict-wait": func(p *probe) {
		for _, a := range p.atOnce(p.create(0, p.full()), 10) {
			if a.status == 409 && a.header.Get("Retry-After") == "" {
				p.fault(a, "a 409 without Retry-After")
			}
		}
	},
}

// wantOneResource creates and repeats the create. What odd names in it a server
// may refuse.
func (p *probe) wantOneResource(c creation, repeats int, odd string) {
	h := history{p: p}
	first := h.send("the create", c)
	refused := first.class() == 4 && first.status != 401 && first.status != 403
	elsewhere := c.path != p.target.Creates[c.route].Path
	none := elsewhere && (!p.done(first) || first.status != http.StatusCreated && h.sent[0].watch.await(1) == 0)
	if odd != "" && (refused || none || first.status == http.StatusNotImplemented ||
		first.status == http.StatusHTTPVersionNotSupported) {
		p.vacuousf("the server takes no %s: it answers %d", odd, first.status)
	}
	p.wantOK("the create", first)
	for i := range repeats {
		h.send(fmt.Sprintf("repeat %d", i+1), c)
	}
	h.wantOne(fmt.Sprintf("after %d repeats", repeats))
}

// ifTaken looks at a create that the server may refuse to take from anybody.
// That it does so is no fault, and does not end the check.
func ifTaken(look func()) {
	if end := ended(look); end != nil && end.status != LeftOut {
		panic(*end)
	}
}

// another is a create with another body under the same key.
func (p *probe) another(c creation) creation {
	other := p.create(c.route, p.full()).keyedWith(c.key())
	if other.body == c.body {
		other.body += " "
	}
	return other
}
