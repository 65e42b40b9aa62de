package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Interruptions look at a create whose client or body does not reach its end.
// What happened then is the server's business: the create may be made or not.
// The repeat has to end in a success, with one resource.
var interruptionRules = []Rule{
	{
		Name: "interruption/client-leaves", Level: Contract, Source: section4, needs: []string{"create"},
		Text: "When the client leaves before it was answered, the repeat makes no second resource.",
		Hint: "detach the handler from the connection and store its response, or undo what it did",
		check: func(p *probe) {
			// The longer waits meet a handler in the middle of its work.
			for _, wait := range []time.Duration{0, 5 * time.Millisecond, 50*time.Millisecond + p.latency/2} {
				p.interrupt(func(c creation, conn *conn) {
					conn.send(p.text(c.request))
					p.sleep(wait)
					conn.Close()
				})
			}
		},
	},
	{
		Name: "interruption/half-close", Level: Contract, Source: section4, needs: []string{"create"},
		Text: "When the client closes its sending side after the request, the repeat makes no second resource.",
		Hint: "a closed sending side is no reason to end a create in the middle",
		check: func(p *probe) {
			p.interrupt(func(c creation, conn *conn) {
				conn.send(p.text(c.request))
				conn.closeWrite()
				_, _ = conn.next("POST") // some servers leave without a response
			})
		},
	},
	{
		Name: "interruption/cut-body", Level: Contract, Source: section4, needs: []string{"create"},
		Text: "When the body ends before its Content-Length, the repeat makes no second resource.",
		Hint: "take an unexpected end of the body for an error and do nothing",
		check: func(p *probe) {
			p.cut(func(c creation) string { return p.head(c.request, contentLength(len(c.body)+10)) + c.body })
		},
	},
	{
		Name: "interruption/cut-string", Level: Contract, Source: section4, needs: []string{"create"},
		Text: "When the body ends in the middle of a string, the repeat makes no second resource.",
		Hint: "take an unexpected end of the body for an error and do nothing",
		check: func(p *probe) {
			p.cut(func(c creation) string { return p.head(c.request, contentLength(len(c.body))) + c.half() })
		},
	},
	{
		Name: "interruption/cut-chunk", Level: Contract, Source: section4, needs: []string{"create"},
		Text: "When the body ends in the middle of a chunk, or behind one, the repeat makes no second resource.",
		Hint: "a chunked body ends with its last chunk and not with the connection",
		check: func(p *probe) {
			chunk := func(n int) string { return strconv.FormatInt(int64(n), 16) + "\r\n" }
			p.cut(func(c creation) string {
				return p.head(c.request, "Transfer-Encoding: chunked") + chunk(len(c.body)) + c.half()
			})
			p.cut(func(c creation) string {
				return p.head(c.request, "Transfer-Encoding: chunked") + chunk(len(c.body)) + c.body + "\r\n"
			})
			p.cut(func(c creation) string {
				return p.head(c.request, "Transfer-Encoding: chunked") + chunk(len(c.body)) + c.body + "\r\nzz\r\n\r\n"
			})
		},
	},
	{
		Name: "interruption/no-effect", Level: Advice, Source: practice, needs: []string{"create", "list"},
		Text: "A body that was cut takes no effect and leaves the key free: the whole body with the same key creates.",
		Hint: "read the body to its end before anything else",
		check: func(p *probe) {
			for _, text := range []func(c creation) string{
				func(c creation) string { return p.head(c.request, contentLength(len(c.body)+10)) + c.body },
				func(c creation) string { return p.head(c.request, contentLength(len(c.body))) + c.half() },
			} {
				c := p.create(0, p.full())
				w := p.watch(c)
				p.sendCut(c, text(c))
				w.most(0, "after a body that was cut")
				p.wantOK("the whole body with the same key", p.do(c.request))
			}
		},
	},
	{
		Name: "interruption/refusal-at-once", Level: Advice, Source: practice, needs: []string{"create"},
		Text: "A refusal does not wait for the rest of the body.",
		Hint: "answer 401 before the body is read, and close the connection",
		check: func(p *probe) {
			c := p.unkeyed(0, "").as(flipLast(p.full()))
			conn := p.dial()
			_ = conn.SetDeadline(time.Now().Add(p.patience() / 2))
			a, err := conn.roundTrip("POST", p.head(c.request, contentLength(1000))+"x")
			if err != nil {
				p.fault(answer{to: c.request}, "1 of 1000 bytes with an invalid key: no response for %v", p.patience()/2)
			}
			a.to = c.request
			p.noteOwn(a)
			p.want("1 of 1000 bytes with an invalid key", a, 401)
		},
	},
	{
		Name: "interruption/expect-refused", Level: Advice, Source: "RFC 9110, section 10.1.1", needs: []string{"create"},
		Text: "Expect: 100-continue without a key is answered 401 at once, not 100.",
		Hint: "do not read the body before the key was looked at",
		check: func(p *probe) {
			c := p.unkeyed(0, "")
			c.request = c.with("Expect: 100-continue")
			conn := p.dial()
			_ = conn.SetDeadline(time.Now().Add(p.patience() / 2))
			a, err := conn.roundTrip("POST", p.head(c.request, contentLength(10)))
			if err != nil {
				p.fault(answer{to: c.request}, "no response before the body was sent: %v", err)
			}
			a.to = c.request
			p.noteOwn(a)
			p.want("Expect: 100-continue without a key", a, 401)
		},
	},
}

// interrupt creates in a way that may come to nothing, and then repeats the
// create as a client does that knows nothing.
func (p *probe) interrupt(send func(c creation, to *conn)) {
	for i := range p.target.Creates {
		c := p.create(i, p.full())
		w := p.watch(c)
		p.pause()
		conn := p.dial()
		conn.last = c.request
		send(c, conn)
		conn.Close()
		first := p.settled(c)
		p.wantSame("the next repeat", p.do(c.request), first)
		w.exactly(1, "after an interrupted create and its repeats")
	}
}

// cut sends a create whose body does not reach its end, and then the whole
// one. What the second one gets is not looked at: a server may have stored a
// refusal of the first one.
func (p *probe) cut(text func(c creation) string) {
	for i := range p.target.Creates {
		c := p.create(i, p.full())
		w := p.watch(c)
		status := p.sendCut(c, text(c))
		whole := p.do(c.request)
		for range 5 {
			if whole.status != 409 && whole.status != 425 {
				break
			}
			p.sleep(time.Second)
			whole = p.do(c.request)
		}
		what := fmt.Sprintf("after a cut body (%s) and the whole one (%d)", status, whole.status)
		if whole.ok() {
			p.wantSame("the next repeat", p.do(c.request), whole)
			w.exactly(1, what)
			continue
		}
		w.most(1, what)
	}
}

// sendCut sends the text and closes the sending side. It returns what came.
func (p *probe) sendCut(c creation, text string) string {
	for range maxRetries {
		p.pause()
		conn := p.dial()
		conn.last = c.request
		conn.send(text)
		conn.closeWrite()
		a, err := conn.next("POST")
		conn.Close()
		if err != nil {
			return "no response"
		}
		p.noteOwn(a)
		if a.status == 429 {
			p.limited(a)
			continue
		}
		p.saw(a)
		return strings.TrimSpace(strconv.Itoa(a.status))
	}
	p.unclearf("the server went on answering 429 after %d waits", maxRetries)
	panic("not reached")
}
