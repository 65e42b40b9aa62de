package rules

import (
	"fmt"
	"strconv"
	"time"
)

// Interruptions look at a create whose client or body does not reach its end.
// What happened then is the server's business: the create may be made or not.
// The repeat has to end in a success, with one resource.
var interruptionChecks = checks{
	"interruption/client-leaves": func(p *probe) {
		// The longer waits meet a handler in the middle of its work.
		for _, wait := range []time.Duration{0, 5 * time.Millisecond, 50*time.Millisecond + p.slowest()/2} {
			p.interrupt(func(*conn) { p.sleep(wait) })
		}
	},
	"interruption/half-close": func(p *probe) {
		p.interrupt(func(c *conn) {
			c.closeWrite()
			_, _ = c.next() // some servers leave without a response
		})
	},
	"interruption/cut-body":   func(p *probe) { p.cut(p.short) },
	"interruption/cut-string": func(p *probe) { p.cut(p.half) },
	"interruption/cut-chunk": func(p *probe) {
		for _, rest := range []func(c creation) string{
			creation.half,
			func(c creation) string { return c.body + "\r\n" },
			func(c creation) string { return c.body + "\r\nzz\r\n\r\n" },
		} {
			p.cut(func(c creation) string {
				return p.head(c.request, "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n", len(c.body)) + rest(c)
			})
		}
	},
	"interruption/slow-body": func(p *probe) {
		c := p.create(0, p.full())
		w := p.watch(c)
		text := p.text(c.request)
		half := len(text) - len(c.body)/2 - 1
		slow := p.dial(c.request)
		slow.send(text[:half])
		p.parallel(2, func(i int) {
			if i == 1 {
				p.sleep(3 * time.Second)
				if p.has("other") { // a server of one worker answers when the slow one is through
					_, _ = p.tryPatiently(p.read(p.key("other")).anew())
				}
				return
			}
			p.sleep(3500 * time.Millisecond)
			// A server may have lost its patience.
			if a, err := slow.roundTrip(text[half:], (*conn).next); err == nil {
				p.noteOwn(a)
			}
		})
		p.settled(c)
		w.exactly(1, "after a slow body and its repeat")
	},
	"interruption/no-effect": func(p *probe) {
		for _, text := range []func(c creation) string{p.short, p.half} {
			c := p.create(0, p.full())
			w := p.watch(c)
			p.sendCut(c, text(c))
			w.most(0, "after a body that was cut")
			p.wantOK("the whole body with the same key", p.do(c.request))
		}
	},
	"interruption/refusal-at-once": func(p *probe) {
		r := p.unkeyed(0, "").as(flipLast(p.full())).request
		p.refusesAtOnce("1 of 1000 bytes with an invalid key", r, p.head(r, contentLength(1000))+"x")
	},
	"interruption/expect-refused": func(p *probe) {
		r := p.unkeyed(0, "").with("Expect: 100-continue")
		p.refusesAtOnce("Expect: 100-continue without a key", r, p.head(r, contentLength(10)))
	},
}

// short is a create whose body ends before its Content-Length, and half is one
// whose body ends in the middle of a string.
func (p *probe) short(c creation) string {
	return p.head(c.request, contentLength(len(c.body)+10)) + c.body
}
func (p *probe) half(c creation) string {
	return p.head(c.request, contentLength(len(c.body))) + c.half()
}

// refusesAtOnce wants a 401 for a text that lacks the rest of a body.
func (p *probe) refusesAtOnce(what string, r request, text string) {
	c := p.dial(r)
	_ = c.SetDeadline(time.Now().Add(p.patience() / 2))
	a, err := c.roundTrip(text, (*conn).any)
	if err != nil {
		p.fault(answer{to: r}, "%s: no response for %v", what, p.patience()/2)
	}
	p.noteOwn(a)
	p.want(what, a, 401)
}

// interrupt creates in a way that may come to nothing, and then repeats the
// create as a client does that knows nothing.
func (p *probe) interrupt(leave func(*conn)) {
	p.eachCreate(p.full(), func(c creation) {
		w := p.watch(c)
		p.pause()
		conn := p.dial(c.request)
		conn.send(p.text(c.request))
		leave(conn)
		conn.Close()
		first := p.wantOK("the repeat after an interrupted create", p.settled(c))
		p.wantSame("the next repeat", p.do(c.request), first)
		w.exactly(1, "after an interrupted create and its repeats")
	})
}

// cut sends a create whose body does not reach its end, and then the whole
// one. What the second one gets is not looked at: a server may have stored a
// refusal of the first one.
func (p *probe) cut(text func(c creation) string) {
	p.eachCreate(p.full(), func(c creation) {
		w := p.watch(c)
		status := p.sendCut(c, text(c))
		whole := p.settled(c)
		what := fmt.Sprintf("after a cut body (%s) and the whole one (%d)", status, whole.status)
		if whole.ok() {
			p.wantSame("the next repeat", p.do(c.request), whole)
			w.exactly(1, what)
			return
		}
		w.most(1, what)
	})
}

// sendCut sends the text and closes the sending side. It returns what came.
func (p *probe) sendCut(c creation, text string) string {
	a := p.patiently(func() answer {
		conn := p.dial(c.request)
		defer conn.Close()
		conn.last.wire = cutShort
		conn.send(text)
		conn.closeWrite()
		a, err := conn.next()
		if err != nil {
			return answer{}
		}
		p.noteOwn(a)
		return a
	})
	if a.status == 0 {
		return "no response"
	}
	return strconv.Itoa(a.status)
}
