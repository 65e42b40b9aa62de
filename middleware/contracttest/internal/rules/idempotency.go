package rules

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

var idempotencyChecks = checks{
	"idempotency/replay":      func(p *probe) { p.eachCreate(p.full(), func(c creation) { p.wantOneResource(c, 3, "") }) },
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
		c := p.create(0, p.full())
		c.body += strings.Repeat(" ", 64<<10)
		p.wantOneResource(c, 1, "body of 64 KiB")
	},
	"idempotency/sandbox": func(p *probe) {
		p.eachCreate(p.key("sandbox"), func(c creation) {
			p.wantOneResource(c, 2,
				"")
		})
	},
	"idempotency/two-keys": func(p *probe) {
		c := p.create(0, p.full())
		first := p.wantOK("the first", p.do(c.request))
		// Equal bodies, unless the body has a value that must be unique.
		other := p.do(c.keyedWith(newUUID()).request)
		p.expect(c, 2)
		if !p.silent && !p.echoes && other.ok() && other.status == first.status && first.status == 201 {
			p.wantOther("the same body with another key", other, first)
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
		tried := false
		for _, n := range []int{255, 128, 64, 36} {
			long := strings.Repeat(strings.ReplaceAll(newUUID(), "-", ""), 8)[:n-1]
			tried = p.wantApart("keys of "+fmt.Sprint(n)+" bytes that differ in the last one", long+"a", long+"b") || tried
		}
		uuid := newUUID()
		tried = p.wantApart("keys that differ in letter case",
			"key-"+strings.ToLower(uuid), "KEY-"+strings.ToUpper(uuid)) || tried
		if !tried {
			p.vacuousf("the server takes no such keys")
		}
	},
	"idempotency/any-key": func(p *probe) {
		long := strings.Repeat(strings.ReplaceAll(newUUID(), "-", ""), 32)
		for _, key := range []string{"order-" + newUUID()[:8], long[:40], long[:100], long[:255], long[:300], long[:1000]} {
			p.wantHeeded(key)
		}
		for _, odd := range []string{`"`, `'`, `\`, ";", "%", "/", ":", "{}", "$", "*"} {
			if a := p.wantHeeded(newUUID() + odd); a.status >= 500 {
				p.fault(a, "a key with %s in it: got %d", odd, a.status)
			}
		}
	},
	"idempotency/reads": func(p *probe) {
		c := p.create(0, p.full())
		first := p.wantOK("the create", p.do(c.request))
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
		first := p.wantOK("the create", p.do(one.request))
		w := p.watch(two)
		second := p.do(two.request)
		if second.ok() {
			p.wantOther("the create on another path", second, first)
			w.made("the create on another path")
		} else if second.status >= 500 {
			p.fault(second, "the create on another path: got %d", second.status)
		}
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
					case a.status >= 500, a.status == 401, a.status == 403:
						p.fault(a, "one of the duplicates: got %d", a.status)
					}
				}
				w.exactly(1, fmt.Sprintf("after %d duplicates at one time", len(answers)))
			})
		}
	},
	"idempotency/later": func(p *probe) {
		c := p.create(0, p.full())
		first := p.wantOK("the create", p.do(c.request))
		start := time.Now()
		for range 40 {
			p.do(p.create(0, p.full()).request)
		}
		p.sleep(2*time.Second - min(2*time.Second, time.Since(start)))
		w := p.watch(c)
		before := w.count() // none, where the list is paged
		p.wantSame("the repeat after 40 other creates and 2 s", p.do(c.request), first)
		w.most(before, "after a late repeat")
	},
	"idempotency/at-the-end": func(p *probe) { p.checkLedger() },
	"idempotency/no-key": func(p *probe) {
		c := p.unkeyed(0, p.full())
		p.expect(c, 2)
		first := p.do(c.anew())
		if !first.ok() {
			p.vacuousf("the server asks for a key: %d", first.status)
		}
		second := p.do(c.anew())
		if !second.ok() {
			p.vacuousf("the body has a value that must be unique: %d", second.status)
		}
		p.wantOther("the second", second, first)
	},
	"idempotency/after-forbidden": func(p *probe) {
		c := p.create(0, p.full())
		p.want("the create without the scope", p.do(c.as(p.key("none")).request), 403)
		p.wantOK("the create with it", p.do(c.request))
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
		other := p.create(0, p.full()).keyedWith(c.key())
		if other.body == c.body {
			other.body += " "
		}
		if a := p.do(other.request); a.status < 400 || a.status >= 500 {
			p.fault(a, "another body with the same key: got %d, want 422", a.status)
		}
	},
	"idempotency/any-shape": func(p *probe) {
		p.wantOK("a key of letters", p.do(p.create(0, p.full()).keyedWith("order-"+newUUID()[:8]).request))
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
	w := p.watch(c)
	first := p.do(c.request)
	refused := first.status >= 400 && first.status < 500 && first.status != 401 && first.status != 403
	if odd != "" && (refused || first.status == http.StatusNotImplemented) {
		p.vacuousf("the server takes no %s: it answers %d", odd, first.status)
	}
	p.wantOK("the create", first)
	for i := range repeats {
		p.wantSame(fmt.Sprintf("repeat %d", i+1), p.do(c.request), first)
	}
	w.exactly(1, fmt.Sprintf("after %d repeats", repeats))
}

// wantHeeded repeats a create under a key that the server may refuse, and
// returns its first response.
func (p *probe) wantHeeded(key string) answer {
	c := p.create(0, p.full()).keyedWith(key)
	w := p.watch(c)
	first := p.do(c.request)
	if first.ok() {
		what := fmt.Sprintf("with the key %.40q of %d bytes, which was accepted, the repeat", key, len(key))
		p.wantSame(what, p.do(c.request), first)
		w.exactly(1, what)
	}
	return first
}

// wantApart makes two creates with keys that are nearly the same. It returns
// false when the server refuses such keys.
func (p *probe) wantApart(what, one, two string) bool {
	first := p.do(p.create(0, p.full()).keyedWith(one).request)
	if !first.ok() {
		return false
	}
	c := p.create(0, p.full()).keyedWith(two)
	w := p.watch(c)
	second := p.do(c.request)
	if !second.ok() {
		p.fault(second, "%s are taken for the same: the second is answered %d", what, second.status)
	}
	p.wantOther("with "+what+" the second", second, first)
	w.made("with " + what + " the second")
	return true
}
