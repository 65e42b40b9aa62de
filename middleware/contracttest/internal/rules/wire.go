package rules

import "strings"

var wireRules = []Rule{
	wireRule("request-line", "The refusal of a request line that makes no sense has one request id.",
		"GARBAGE\r\n\r\n", "GET\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "G@T / HTTP/1.1\r\nHost: a\r\n\r\n"),
	wireRule("header", "The refusal of a header that makes no sense has one request id.",
		"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nspace : x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nControl: \x01\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"),
	wireRule("host", "The refusal of a request with no Host, or with two, has one request id.",
		"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
	// More than the 1 MiB that net/http allows by default.
	wireRule("large-header", "The refusal of a header that is too large (431) has one request id.",
		"GET / HTTP/1.1\r\nHost: a\r\n"+strings.Repeat("Filler: "+strings.Repeat("x", 1000)+"\r\n", 1200)+"\r\n"),
	wireRule("transfer-coding", "The refusal of an unknown transfer coding (501) has one request id.",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"),
	wireRule("version", "The refusal of an unknown version (505) has one request id.",
		"GET / HTTP/3.0\r\nHost: a\r\n\r\n"),
	wireRule("expectation", "The refusal of an unknown expectation (417) has one request id.",
		"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nConnection: close\r\n\r\n"),
	wireRule("asterisk", "The response to OPTIONS * has one request id.",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
}

func wireRule(name, text string, refused ...string) Rule {
	return Rule{
		Name: "wire/" + name, Level: Wire, Source: section4, Text: text,
		Hint: "the HTTP server writes this response by itself; a wrapped listener can add the header",
		check: func(p *probe) {
			for _, raw := range refused {
				a, err := p.dial(request{}).roundTrip(raw, (*conn).any)
				if err != nil {
					continue // a closed connection is no response without an id
				}
				line, _, _ := strings.Cut(raw, "\r\n")
				p.wantID(line, a)
			}
		},
	}
}
