package rules

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

var rateLimitChecks = checks{
	"ratelimit/status": func(p *probe) {
		p.wantAsBefore("in a burst of GETs %d were answered otherwise than before: %s", func(status int) bool {
			return status/100 < 5 && status != 0
		})
		p.wantFound()
	},
	"ratelimit/overload": func(p *probe) {
		p.wantAsBefore("in a burst of GETs %d failed: %s", func(status int) bool { return status/100 == 5 || status == 0 })
	},
	"ratelimit/wait-helps": func(p *probe) {
		p.wantFound()
		for _, o := range p.limit.waits {
			switch {
			case o.err != nil:
				p.fault(o.denied, "%v", o.err)
			case o.asked > maxWait && o.after > 0 && o.after*20 < o.asked:
				p.fault(o.denied, "Retry-After asks for %v, and %v later a request was admitted: is it in milliseconds?",
					o.asked, o.after.Round(time.Second))
			case o.asked > maxWait:
				p.skipf("Retry-After asks for %v, which is too long to try: give the keys a limit with a shorter window", o.asked)
			case !o.admitted && o.after == 0:
				p.fault(o.last, "Retry-After asked for %v, and nothing was admitted for a minute more", o.asked)
			case !o.admitted:
				p.fault(o.last, "Retry-After asked for %v, but a request after that and one more second was refused; "+
					"admitted after %v", o.asked, o.after.Round(time.Second/10))
			}
		}
	},
	"ratelimit/create": func(p *probe) {
		p.wantFound()
		c, denied := p.deniedCreate()
		if _, err := retryAfter(denied.header); errors.Is(err, errNoWait) {
			p.fault(denied, "the 429 of a create: %v", err)
		}
		p.limited(denied)
		p.noteWaitHelps()
		w := p.watch(c) // its count waits, too
		w.most(0, "after a 429")
		first := p.wantOK("its repeat after the wait", p.do(c.request))
		p.wantSame("the next repeat", p.do(c.request), first)
		w.exactly(1, "after a 429 and its repeats")
	},
	"ratelimit/not-longer": func(p *probe) {
		p.wantFound()
		if o := p.limit.longer(); o.after > 0 {
			p.fault(o.denied, "Retry-After asks for %v, and a request %v later was admitted",
				o.asked, o.after.Round(time.Millisecond))
		}
	},
	"ratelimit/whole-seconds": func(p *probe) {
		p.wantFound()
		for _, o := range p.limit.waits {
			if v := o.denied.header.Get("Retry-After"); !wholeSeconds.MatchString(v) || v == "0" {
				p.fault(o.denied, "Retry-After is %q", v)
			}
		}
	},
	"ratelimit/everywhere": func(p *probe) {
		p.wantFound()
		var made []creation
		var first answer
		there := false // where the response says
		if p.has("create") {
			made = append(made, p.create(0, p.full()))
			first = p.wantOK("the create", p.do(made[0].request))
			there = p.follow(first, p.full()).ok()
		}
		for _, c := range p.target.Creates {
			if p.has("other") && c.List != "" {
				p.do(get(c.List, p.key("other"))) // may fill a cache
			}
		}
		p.pause()
		_, denied := p.burst()
		kinds := []request{p.read(p.full()).by("HEAD"), p.read(p.full()).by("OPTIONS"), p.preflight(),
			p.read(p.full()).guised("Accept: text/html\nSec-Fetch-Mode: navigate")}
		for _, c := range made {
			kinds = append(kinds, c.request)
			if there {
				kinds = append(kinds, get(first.location(), p.full()).by("DELETE"))
			}
		}
		if p.http2 {
			kinds = append(kinds, p.read(p.full()).over2())
		}
		if p.has("none") {
			kinds = append(kinds, p.read(p.key("none")))
		}
		for _, c := range p.target.Creates {
			kinds = append(kinds, get(cmp.Or(c.List, c.Path), p.full()))
		}
		var refused []answer
		for _, r := range kinds {
			a := p.once(r)
			if _, err := retryAfter(a.header); a.status == http.StatusTooManyRequests && errors.Is(err, errNoWait) {
				p.fault(a, "the 429 of %s %s: %v", r.method, r.path, err)
			}
			own := r.method == "GET" && r.header("Authorization") == "Bearer "+p.full()
			if own && (a.class() == 3 || a.class() == 4) && !p.denies(a) {
				refused = append(refused, a)
			}
			there = there && (r.method != "DELETE" || p.denies(a))
		}
		for _, c := range made {
			p.wantWholeRequests(c)
		}
		p.limited(denied)
		for _, a := range refused {
			if p.do(a.to).status != a.status { // it is not what the route answers anyway
				p.fault(a, "a GET over the limit: got %d, want 429", a.status)
			}
		}
		for _, c := range made {
			p.wantSame("the repeat after the wait", p.do(c.request), first)
		}
		if there {
			p.wantOK("a resource whose DELETE was answered 429", p.follow(first, p.full()))
		}
	},
	"ratelimit/organizations-apart": func(p *probe) {
		p.wantFound()
		p.pause()
		_, denied := p.burst()
		if denied.status != http.StatusTooManyRequests {
			p.skipf("no 429 came")
		}
		a := p.once(p.read(p.key("other")))
		p.limited(denied)
		p.wantOK("the other organization, while the first one is limited", a)
	},
	"ratelimit/retry-after": func(p *probe) { p.reportLimit(&p.seen.bare, "a 429 without a wait") },
	"ratelimit/usable-wait": func(p *probe) { p.reportLimit(&p.seen.waits, "a 429 without a wait that can be kept") },
	"ratelimit/create-wait": func(p *probe) { p.report(&p.seen.again, "a create was refused after the wait of a 429") },
	"ratelimit/request-id": func(p *probe) {
		p.wantFound()
		for _, o := range p.limit.waits {
			p.wantID("a GET over the limit", o.denied)
		}
	},
}

// reportLimit is report for the 429s of the whole check.
func (p *probe) reportLimit(seen *[]fault, what string) {
	p.report(seen, what)
	switch {
	case p.has("rate-limit"):
		p.wantFound()
	case slices.Contains(p.target.Without, "rate-limit"):
		p.vacuousf("the target does not offer a rate limit, and no 429 broke the rule%s", p.limit.slow)
	default:
		p.skipf("it needs %s; or say that the target does not offer it: without rate-limit",
			offerText([]string{"rate-limit"}))
	}
}

// wantAsBefore wants few GETs of the burst to have a status that counts.
func (p *probe) wantAsBefore(format string, counts func(status int) bool) {
	odd := slices.DeleteFunc(slices.Clone(p.limit.odd), func(f fault) bool { return !counts(f.answer.status) })
	if len(odd) >= 3 {
		p.fault(odd[0].answer, format, len(odd), odd[0].what)
	}
}

func (p *probe) wantFound() {
	if !p.limit.found || p.limit.face != "" {
		p.skipf("no 429 came: requests over the limit are answered otherwise (ratelimit/status, ratelimit/overload)")
	}
}

// wantWholeRequests wants the body of a create over the limit not to be taken
// for the next request of its connection.
func (p *probe) wantWholeRequests(c creation) {
	conn := p.dial(c.request)
	defer conn.Close()
	conn.send(p.text(c.request))
	if first, err := conn.next(); err != nil || !p.denies(first) {
		return
	}
	conn.last = p.read(p.full())
	conn.send(p.text(conn.last))
	if a, err := conn.next(); err == nil && a.status == http.StatusBadRequest {
		p.fault(a, "a GET behind a create that was answered 429, on its connection: got 400")
	}
}

// noteWaitHelps creates while the limit is used up, and waits as long as the
// 429 asks for, and a second more. Nobody else sends anything meanwhile.
func (p *probe) noteWaitHelps() {
	c := p.create(0, p.full())
	denied := p.once(c.request)
	asked, err := retryAfter(denied.header)
	if denied.status != http.StatusTooManyRequests || err != nil || asked > maxWait {
		return // it is admitted again, or another rule says so
	}
	p.sleep(asked + grace)
	if a := p.once(c.request); a.status == http.StatusTooManyRequests {
		p.mu.Lock()
		defer p.mu.Unlock()
		what := fmt.Sprintf("Retry-After asked for %v, and one more second passed", asked)
		p.seen.again = append(p.seen.again, fault{denied, what})
	}
}

// deniedCreate creates until a 429 comes, while others use up the limit: by
// reading and, where creates have a limit of their own, with bodies that
// create nothing.
func (p *probe) deniedCreate() (creation, answer) {
	bad := func() request {
		c := p.create(0, p.full())
		c.body = "{"
		return c.request
	}
	slow := false
	for _, other := range []func() request{func() request { return p.read(p.full()) }, bad} {
		p.pause()
		var denied answer
		var c creation
		creates := 0
		var others, refused atomic.Int64
		p.crowd(func(i int) bool {
			if i > 0 {
				others.Add(1)
				if p.denies(p.once(other())) {
					refused.Add(1)
					p.sleep(5 * time.Millisecond) // enough to take what comes free
				}
				return true
			}
			c = p.create(0, p.full())
			if a := p.once(c.request); a.status == http.StatusTooManyRequests {
				denied = a
				return false
			}
			// So that creates are few and reads are many.
			p.sleep(50 * time.Millisecond)
			creates++
			return creates < 40
		})
		if denied.status != 0 {
			return c, denied
		}
		slow = slow || creates < 40 || refused.Load()*4 < others.Load()
	}
	if slow {
		p.vacuousf("this time too few requests reached the limit: the target answers more slowly than before")
	}
	p.skipf("no create was answered 429, while reads are")
	panic("not reached")
}
