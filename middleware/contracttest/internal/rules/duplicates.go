package rules

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// atOnce sends one create on several connections, whose last byte leaves at
// one time, and returns the responses that are not 429.
func (p *probe) atOnce(c creation, n int) []answer {
	var lost atomic.Pointer[error]
	for range 5 {
		n := p.room(n)
		conns := make([]*conn, n)
		text := p.text(c.request)
		p.parallel(n, func(i int) {
			// A server that takes one request at a time is busy with the first
			// of these and may take no more connections.
			one, err := p.connect(c.request, 2*time.Second+p.latency)
			if err == nil {
				one.send(text[:len(text)-1])
				conns[i] = one
			}
		})
		conns = slices.DeleteFunc(conns, func(c *conn) bool { return c == nil })
		answers := make([]answer, len(conns))
		var ready sync.WaitGroup
		ready.Add(len(conns))
		p.parallel(len(conns), func(i int) {
			ready.Done()
			ready.Wait()
			a, err := conns[i].roundTrip(text[len(text)-1:], (*conn).next)
			if err != nil {
				lost.Store(&err) // a server may have more connections than it can take
				return
			}
			p.note(a)
			answers[i] = a
		})
		admitted := slices.DeleteFunc(answers, func(a answer) bool {
			if p.denies(a) {
				p.limited(a)
			}
			return a.status == 0 || p.denies(a)
		})
		if len(conns) > 0 && len(admitted) >= min(len(conns), 2) {
			return admitted
		}
		p.pause()
	}
	if err := lost.Load(); err != nil {
		p.noAnswer(c.request, *err)
	}
	p.unclearf("the rate limit leaves no room for two requests at one time")
	panic("not reached")
}

// settled repeats a create until it is not in progress any more.
func (p *probe) settled(c creation) answer {
	a, start := p.do(c.request), time.Now()
	for try := 0; try < 10 || time.Since(start) < p.patience(); try++ {
		if a.status != 409 && a.status != 425 {
			break
		}
		d := time.Second
		if after, _ := retryAfter(a.header); after > 0 { // 0 where it makes no sense
			d = min(after, 5*time.Second)
		}
		p.sleep(d)
		a = p.do(c.request)
	}
	return a
}

// wantSlowBody sends a create in the middle of its duplicate: between its head
// and its body.
func (p *probe) wantSlowBody() {
	c, old := p.create(0, p.full()), p.create(0, p.full())
	before := p.wantOK("the create", p.do(old.request))
	w := p.watch(c)
	slow, text := p.dial(c.request), p.text(c.request)
	slow.send(strings.TrimSuffix(text, c.body))
	answered := make(chan answer, 1)
	answers := make([]answer, 2)
	p.parallel(2, func(i int) {
		if i == 0 {
			p.sleep(p.latency + 5*time.Millisecond) // the head goes first
			if again := p.do(old.anew()); again.ok() || again.status == 409 {
				p.wantSame("a repeat beside a slow create", again, before)
			}
			answers[0], _ = p.tryPatiently(c.anew())
			answered <- answers[0]
			return
		}
		select { // a server that takes one request at a time waits for the body
		case <-answered:
		case <-time.After(2*time.Second + p.slowest()):
		}
		if a, err := slow.roundTrip(c.body, (*conn).next); err == nil {
			p.noteOwn(a)
			answers[1] = a
		}
	})
	w.wantOne(answers)
}

// wantOne wants the responses to a create and its duplicate to be the same, or
// refusals, and one resource.
func (w watch) wantOne(answers []answer) {
	original := w.p.wantOK("the repeat after a duplicate in the middle of a create", w.p.settled(w.c))
	for _, a := range answers {
		if a.ok() {
			w.p.wantSame("a create or its duplicate in the middle", a, original)
		}
	}
	w.exactly(1, "after a duplicate in the middle of a create")
}
