package rules

import (
	"slices"
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
	a := p.do(c.request)
	for range 10 {
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
