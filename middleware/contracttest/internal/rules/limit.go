package rules

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// limit is what was found out about the rate limit of the full key, before
// any rule was checked.
type limit struct {
	found    bool
	stuck    bool          // it never gave way again
	capacity int           // requests until the first 429, or until the search ended
	units    int           // requests that come free
	wait     time.Duration // in which they come free
	odd      []fault       // responses in the burst that are neither a success nor a 429
	waits    []observation
	face     string // of the limiter's answers, when they are not 429

	crowd time.Duration // how long requests are sent to reach it
	slow  string        // why it cannot be reached, behind what is not offered
}

// observation is a wait that a 429 asked for and what came of it.
type observation struct {
	denied   answer
	asked    time.Duration
	err      error         // Retry-After makes no sense
	admitted bool          // after the wait
	after    time.Duration // when the first request was admitted; 0 when none was
	last     answer
}

const (
	maxWait    = 2 * time.Minute // that is tried out
	grace      = time.Second     // a server may round its wait down
	maxOdd     = 6
	fastSearch = 5 * time.Second // for the first 429; a target that takes longer is slow
	minProbed  = 3 * time.Second // a wait that is asked for before it ends
)

// longer returns a wait that ended long before the server said, if there is one.
func (l limit) longer() observation {
	for _, o := range l.waits {
		if o.err == nil && o.asked >= minProbed && o.after > 0 && o.after*4 <= o.asked+time.Second {
			return o
		}
	}
	return observation{}
}

// findLimit reads until a 429 comes, for half a minute at most, does what it
// says, and again. Later bursts have three times what the first one took.
func (p *probe) findLimit() {
	var denied time.Time
	p.limit.crowd = 30 * time.Second
	for round := range 2 {
		start := time.Now()
		admitted, burst := p.burst()
		took := time.Since(start)
		if round == 0 {
			p.limit.capacity, p.limit.crowd = admitted, 3*took
		}
		if len(p.limit.odd) >= maxOdd {
			if !p.recognise() {
				p.recover()
				return
			}
			burst = p.limit.odd[0].answer
		}
		if !p.denies(burst) {
			if round == 0 && took > fastSearch {
				p.limit.slow = fmt.Sprintf("; it answers no more than %d GETs in %v", admitted, took.Round(time.Second/10))
				p.target.Without = append(slices.Clone(p.target.Without), "rate-limit")
			}
			return
		}
		p.limit.found = true
		p.limit.units = max(1, admitted)
		if round > 0 {
			// What came free since the first 429 was spent by now.
			p.limit.wait = time.Since(denied)
		}
		denied = time.Now()
		o := p.observe(burst)
		p.limit.waits = append(p.limit.waits, o)
		if !o.admitted && o.after == 0 {
			p.limit.stuck = o.err != nil || o.asked <= maxWait
			p.limited(o.denied)
			return
		}
		if round == 0 {
			p.limit.wait = max(o.after, time.Second)
		}
	}
}

// denies reports whether a response is what the limiter answers: 429, or what
// was recognised in its place.
func (s *Session) denies(a answer) bool {
	return a.status == http.StatusTooManyRequests || s.limit.face != "" && face(a) == s.limit.face
}

// recognise takes the odd responses of a burst for those of the limiter, when
// they are all alike and no other refusal is like them.
func (p *probe) recognise() bool {
	first := face(p.limit.odd[0].answer)
	for _, odd := range p.limit.odd {
		if odd.answer.status == 0 || odd.answer.status < 500 && odd.answer.body == "" || face(odd.answer) != first {
			return false
		}
	}
	p.limit.face = first
	return true
}

var varying = regexp.MustCompile(`[0-9]+|[0-9A-Za-z_-]{16,}`)

// face is what all answers of a limiter have in common.
func face(a answer) string { return strconv.Itoa(a.status) + varying.ReplaceAllString(a.body, "") }

// burst reads with several connections until one response is not a success.
// It returns how many were, and the last 429.
func (p *probe) burst() (admitted int, denied answer) {
	var mu sync.Mutex
	var sent atomic.Int64
	names := members(p.sample.body)
	p.crowd(func(int) bool {
		if sent.Add(1) > int64(p.target.Burst) {
			return false
		}
		r := p.read(p.full())
		a, err := p.try(p.ctx, r)
		a.to = r
		mu.Lock()
		defer mu.Unlock()
		odd := ""
		switch {
		case p.ctx.Err() != nil:
			return false
		case err != nil:
			odd = fmt.Sprintf("got no response: %v", err)
		case p.denies(a):
			denied = a
			return false
		case !a.ok():
			odd = fmt.Sprintf("got %d", a.status)
		case disjoint(names, members(a.body)):
			odd = fmt.Sprintf("got %d with another body, %.100q", a.status, a.body)
		}
		if odd == "" {
			admitted++
			return true
		}
		p.limit.odd = append(p.limit.odd, fault{a, odd})
		return len(p.limit.odd) < maxOdd
	})
	return admitted, denied
}

// crowd calls send on several connections, again and again for some seconds, or
// for longer where the target is slow, until one call returns false.
func (p *probe) crowd(send func(worker int) bool) {
	workers, d := 8, max(fastSearch, p.limit.crowd)
	if p.latency > 100*time.Millisecond {
		workers, d = 16, max(d, 30*p.latency)
	}
	until := time.Now().Add(d)
	var over atomic.Bool
	p.parallel(workers, func(i int) {
		for !over.Load() && time.Now().Before(until) {
			if !send(i) {
				over.Store(true)
			}
		}
	})
}

// recover waits until a server that refuses otherwise than with a 429 answers
// again.
func (p *probe) recover() {
	for range 30 {
		p.sleep(time.Second)
		a, err := p.try(p.ctx, p.read(p.full()))
		if err == nil && a.ok() && !disjoint(members(p.sample.body), members(a.body)) {
			return
		}
	}
}

// observe waits as long as a 429 asks for. It asks well before that, too, and
// then keeps to what the 429 says that it gets. When waiting does not help, it
// tries for a while longer. It asks for a 429 of its own, because others were
// under way with that of the burst.
func (p *probe) observe(burst answer) observation {
	start := time.Now()
	o := observation{denied: p.once(p.read(p.full()))}
	ask := func(after time.Duration) bool {
		p.sleep(after)
		o.last = p.once(p.read(p.full()))
		if !p.denies(o.last) {
			o.after = time.Since(start)
		}
		return o.after > 0
	}
	if !p.denies(o.denied) {
		// Admitted meanwhile, as behind a slow server.
		o = observation{denied: burst, admitted: true, after: time.Since(start), last: o.denied}
		o.asked, o.err = retryAfter(burst.header)
		return o
	}
	o.asked, o.err = retryAfter(o.denied.header)
	for _, part := range []time.Duration{50, 4} {
		first := o.asked
		if o.err != nil || first < minProbed {
			break
		}
		if ask(min(first, maxWait) / part) {
			o.admitted = true
			return o
		}
		o.denied, start = o.last, time.Now()
		if o.asked, o.err = retryAfter(o.denied.header); o.asked > first {
			break // it counts what it refuses
		}
	}
	if o.err == nil && o.asked <= maxWait {
		start = time.Now()
		if o.admitted = ask(o.asked+20*time.Millisecond) || ask(grace); o.admitted {
			return o
		}
	}
	for range 60 {
		if ask(time.Second) {
			break
		}
	}
	return o
}

var wholeSeconds = regexp.MustCompile(`^[0-9]+$`)

// maxRetryAfter is more than any limit of an API asks for. What is longer is
// in another unit, or a date in seconds.
const maxRetryAfter = 24 * time.Hour

var errNoWait = errors.New("there is no Retry-After")

// retryAfter reads the header in either of the forms of RFC 9110, section
// 10.2.3. Its error says what is wrong.
func retryAfter(h http.Header) (time.Duration, error) {
	values := h.Values("Retry-After")
	switch {
	case len(values) == 0:
		return 0, errNoWait
	case len(values) > 1:
		return 0, fmt.Errorf("Retry-After is there %d times: %q", len(values), values)
	}
	value := strings.TrimSpace(values[0])
	if wholeSeconds.MatchString(value) {
		n, err := strconv.Atoi(value)
		if err != nil || time.Duration(n) > maxRetryAfter/time.Second {
			return 0, fmt.Errorf("Retry-After %s asks for more than a day: it is the number of seconds to wait", value)
		}
		return time.Duration(n) * time.Second, nil
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, fmt.Errorf("Retry-After %q is neither whole seconds nor a date", value)
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now().Truncate(time.Second)
	}
	switch d := at.Sub(now); {
	case d < 0:
		return 0, fmt.Errorf("Retry-After %q is in the past", value)
	case d > maxRetryAfter:
		return 0, fmt.Errorf("Retry-After %q is more than a day away", value)
	default:
		return d, nil
	}
}

// room waits until the limit has room for n requests, and returns how many
// there will be room for.
func (p *probe) room(n int) int {
	l := p.limit
	if !l.found || l.units == 0 {
		return n
	}
	n = min(n, max(2, l.capacity-2))
	waits := func() time.Duration { return time.Duration((n+l.units-1)/l.units) * l.wait }
	for n > 2 && waits() > max(l.wait, 30*time.Second) {
		n = max(2, n/2)
	}
	p.pause()
	p.sleep(max(waits(), time.Second))
	return n
}
