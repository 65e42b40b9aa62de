package rules

import (
	"net/http"
	"regexp"
	"sync/atomic"
	"time"
)

// burst bounds what is sent to see a 429.
const (
	burst        = 3000
	burstTime    = 5 * time.Second
	burstWorkers = 8
)

var rateLimitRules = []Rule{
	{"ratelimit/retry-after", "A 429 carries Retry-After.", "contract, section 8", fullKey, func(p *probe) {
		if v := p.limited().header.Values("Retry-After"); len(v) != 1 || v[0] == "" {
			p.failf("got Retry-After %q, want one value", v)
		}
	}},
	{"ratelimit/request-id", "A 429 carries one request id.", "contract, section 4", fullKey, func(p *probe) {
		p.oneID("a rate-limited read", p.limited())
	}},
	{"ratelimit/wait-helps", "After the wait that Retry-After asks for, the request is answered.", "contract, section 8", fullKey, func(p *probe) {
		a := p.limited()
		if _, ok := retryAfter(a.header); !ok {
			p.skipf("Retry-After %q is neither whole seconds nor a date", a.header.Get("Retry-After"))
		}
		p.wait(a)
		p.wantOK("a read after Retry-After: "+a.header.Get("Retry-After"), p.once(p.read(bearer(p.target.Full))))
	}},
	{"ratelimit/whole-seconds", "Retry-After is whole seconds, at least 1: clients fail on fractions, and retry at once on 0.", ours, fullKey, func(p *probe) {
		if v := p.limited().header.Get("Retry-After"); !regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(v) {
			p.failf("got Retry-After %q", v)
		}
	}},
	{"ratelimit/only-then", "A success does not carry Retry-After.", ours, fullKey, func(p *probe) {
		if v := p.wantOK("a read", p.do(p.read(bearer(p.target.Full)))).header.Values("Retry-After"); len(v) != 0 {
			p.failf("a 2xx has Retry-After %q", v)
		}
	}},
	{"ratelimit/not-remembered", "A 429 is not remembered: after the wait, the repeat of the create takes effect.", ours, fullKey | createRoute, func(p *probe) {
		for range 3 {
			p.limited()
			key := keyed()
			a := p.once(p.create(bearer(p.target.Full), key))
			if a.status != http.StatusTooManyRequests {
				continue
			}
			for tries := 0; tries < 3 && a.status == http.StatusTooManyRequests; tries++ {
				p.wait(a)
				a = p.once(p.create(bearer(p.target.Full), key))
			}
			p.wantOK("the repeat", a)
			return
		}
		p.skipf("the limit gave way before the create came")
	}},
}

// limited reads until a 429 comes while nothing else is under way, so that its wait holds.
func (p *probe) limited() answer {
	read := p.read(bearer(p.target.Full))
	until := time.Now().Add(burstTime)
	var sent atomic.Int64
	for time.Now().Before(until) && sent.Load() < burst {
		var stop atomic.Bool
		p.together(burstWorkers, func(int) {
			for !stop.Load() && time.Now().Before(until) && sent.Add(1) <= burst {
				if p.once(read).status == http.StatusTooManyRequests {
					stop.Store(true)
				}
			}
		})
		if !stop.Load() {
			break
		}
		for range burstWorkers {
			if a := p.once(read); a.status == http.StatusTooManyRequests {
				return a
			}
		}
	}
	p.skipf("no 429 came within %d reads or %v", burst, burstTime)
	panic("not reached")
}
