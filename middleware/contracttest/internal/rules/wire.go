package rules

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

var wireRules = []Rule{
	{"wire/request-line", "The refusal of a request line that makes no sense carries one request id.", "contract, section 4", server, func(p *probe) {
		p.idOnRefusal("GARBAGE\r\n\r\n")
		p.idOnRefusal("GET\r\n\r\n")
		p.idOnRefusal("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n")
		p.idOnRefusal("G@T / HTTP/1.1\r\nHost: a\r\n\r\n")
	}},
	{"wire/header", "The refusal of a header that makes no sense carries one request id.", "contract, section 4", server, func(p *probe) {
		p.idOnRefusal("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n")
		p.idOnRefusal("GET / HTTP/1.1\r\nHost: a\r\nspace : x\r\n\r\n")
		p.idOnRefusal("GET / HTTP/1.1\r\nHost: a\r\nControl: \x01\r\n\r\n")
		p.idOnRefusal("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n")
	}},
	{"wire/host", "The refusal of a request with no Host, or with two, carries one request id.", "contract, section 4", server, func(p *probe) {
		p.idOnRefusal("GET / HTTP/1.1\r\n\r\n")
		p.idOnRefusal("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
	}},
	{"wire/large-header", "The refusal of a header that is too large (431) carries one request id.", "contract, section 4", server, func(p *probe) {
		// More than the 1 MiB that net/http allows by default.
		p.idOnRefusal("GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("Filler: "+strings.Repeat("x", 1000)+"\r\n", 1200) + "\r\n")
	}},
	{"wire/transfer-coding", "The refusal of an unknown transfer coding (501) carries one request id.", "contract, section 4", server, func(p *probe) {
		p.idOnRefusal("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n")
	}},
	{"wire/version", "The refusal of an unknown version (505) carries one request id.", "contract, section 4", server, func(p *probe) {
		p.idOnRefusal("GET / HTTP/3.0\r\nHost: a\r\n\r\n")
	}},
	{"wire/expectation", "The refusal of an unknown expectation (417) carries one request id.", "contract, section 4", server, func(p *probe) {
		p.idOnRefusal("GET " + p.base.Path + p.target.Read + " HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nConnection: close\r\n\r\n")
	}},
	{"wire/asterisk", "The answer to OPTIONS * carries one request id.", "contract, section 4", server, func(p *probe) {
		p.idOnRefusal("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	}},
	{"wire/http-1.0", "A response to an HTTP/1.0 client carries one request id.", "contract, section 4", 0, func(p *probe) {
		a, err := p.dial().roundTrip("GET", "GET "+p.base.Path+p.target.Read+" HTTP/1.0\r\nHost: "+p.base.Host+"\r\n\r\n")
		if err != nil {
			p.noAnswer("HTTP/1.0", err)
		}
		p.oneID("HTTP/1.0", a)
	}},
	{"wire/pipelining", "Pipelined requests are answered in order, each with an id of its own.", "contract, section 4", 0, func(p *probe) {
		const n = 4
		c := p.dial()
		go c.send(strings.Repeat("GET "+p.base.Path+p.target.Read+" HTTP/1.1\r\nHost: "+p.base.Host+"\r\n\r\n", n))
		ids := make(map[string]bool)
		for i := range n {
			a, err := c.next("GET")
			if err != nil && i > 0 {
				p.inTime()
				return // a server may close after a refusal
			}
			if err != nil {
				p.noAnswer("the first of some pipelined requests", err)
			}
			id := p.oneID("a pipelined request", a)
			if ids[id] {
				p.failf("request %d on one connection has the id of one before, %q", i+1, id)
			}
			ids[id] = true
		}
	}},
	{"wire/early-close", "When the client left before it was answered, the repeat of its create gets a response, the same each time.", "contract, section 4", fullKey | createRoute, func(p *probe) {
		key := keyed()
		c := p.dial()
		c.send(p.post(bearer(p.target.Full), key, contentLength(len(p.target.CreateBody))) + p.target.CreateBody)
		p.sleep(50 * time.Millisecond) // let the server begin
		c.Close()
		first := p.afterConflicts(p.create(bearer(p.target.Full), key))
		p.wantOK("the repeat", first)
		p.wantSame("the next repeat", p.do(p.create(bearer(p.target.Full), key)), first)
	}},
	{"wire/cut-body", "A body that ends early is refused, takes no effect and leaves the idempotency key free.", ours, fullKey | createRoute, func(p *probe) {
		p.badBody(func(key string) string {
			return p.post(bearer(p.target.Full), key, contentLength(len(p.target.CreateBody)+10)) + p.target.CreateBody
		})
	}},
	{"wire/bad-chunk", "A body with a chunk that makes no sense is refused, takes no effect and leaves the idempotency key free.", ours, fullKey | createRoute, func(p *probe) {
		p.badBody(func(key string) string {
			n := strconv.FormatInt(int64(len(p.target.CreateBody)), 16)
			return p.post(bearer(p.target.Full), key, "Transfer-Encoding: chunked") + n + "\r\n" + p.target.CreateBody + "\r\nzz\r\n\r\n"
		})
	}},
	{"wire/stalled-body", "A refusal does not wait for the rest of the body.", ours, createRoute, func(p *probe) {
		c := p.dial()
		_ = c.SetDeadline(time.Now().Add(patience / 2))
		a, err := c.roundTrip("POST", p.post(bearer("contract-unknown"), contentLength(1000))+"x")
		if err != nil {
			p.noAnswer(fmt.Sprintf("1 of 1000 bytes with an unknown key, for %v", patience/2), err)
		}
		p.want("a body that does not come, with an unknown key", a, 401)
	}},
	{"wire/expect-refused", "Who sends Expect: 100-continue without a key gets 401 at once, not 100.", "RFC 9110, section 10.1.1", createRoute, func(p *probe) {
		a, err := p.dial().roundTrip("POST", p.post("Expect: 100-continue", contentLength(10)))
		if err != nil {
			p.noAnswer("before the body was sent", err)
		}
		p.want("without a key", a, 401)
	}},
	{"wire/expect-continue", "Who sends Expect: 100-continue with a key gets 100 and, for the body, the response.", "RFC 9110, section 10.1.1", fullKey | createRoute, func(p *probe) {
		p.wantOK("a create", p.patiently(func() answer {
			c := p.dial()
			defer c.Close()
			c.send(p.post(bearer(p.target.Full), "Expect: 100-continue", contentLength(len(p.target.CreateBody))))
			a, err := c.next("POST")
			if err == nil && a.status == http.StatusContinue {
				c.send(p.target.CreateBody)
				a, err = c.next("POST")
			}
			if err != nil {
				p.noAnswer("Expect: 100-continue", err)
			}
			return a
		}))
	}},
}

func contentLength(n int) string { return "Content-Length: " + strconv.Itoa(n) }

// idOnRefusal sends what a server refuses. A connection that is closed without a response is no response without an id.
func (p *probe) idOnRefusal(text string) {
	a, err := p.dial().roundTrip("GET", text)
	if err != nil {
		p.inTime()
		return
	}
	what, _, _ := strings.Cut(text, "\n")
	p.oneID(strings.TrimSpace(what), a)
}

// badBody sends a create whose body is not whole, and then a whole one with the same idempotency key.
func (p *probe) badBody(text func(key string) string) {
	key := keyed()
	p.patiently(func() answer {
		c := p.dial()
		defer c.Close()
		c.send(text(key))
		c.closeWrite()
		a, err := c.next("POST")
		if err == nil && (a.status < 400 || a.status >= 500) {
			p.failf("got %v, want a 4xx", a)
		}
		return a
	})
	p.wantOK("the whole create with the same key", p.do(p.create(bearer(p.target.Full), key)))
}

// afterConflicts repeats a request for as long as it is said to be in progress, a few times.
func (p *probe) afterConflicts(r request) answer {
	a := p.do(r)
	for range 3 {
		if a.status != http.StatusConflict {
			break
		}
		p.wait(a)
		a = p.do(r)
	}
	return a
}
