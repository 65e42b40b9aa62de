package rules

import "strings"

var wireChecks = checks{
	"wire/request-line": wantsID("GARBAGE\r\n\r\n", "GET\r\n\r\n",
		"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "G@T / HTTP/1.1\r\nHost: a\r\n\r\n"),
	"wire/header": wantsID("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nspace : x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nControl: \x01\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"),
	"wire/host":        wantsID("GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
	"wire/long-target": wantsID("GET /?" + strings.Repeat("x", 9e3) + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
	// More than the 1 MiB that net/http allows by default.
	"wire/large-header": wantsID("GET / HTTP/1.1\r\nHost: a\r\n" +
		strings.Repeat("Filler: "+strings.Repeat("x", 1000)+"\r\n", 1200) + "\r\n"),
	"wire/transfer-coding": wantsID("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"),
	"wire/version":         wantsID("GET / HTTP/3.0\r\nHost: a\r\n\r\n"),
	"wire/expectation":     wantsID("GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nConnection: close\r\n\r\n"),
	"wire/asterisk":        wantsID("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
}

// wantsID wants a request id on what the HTTP server writes by itself.
func wantsID(refused ...string) func(*probe) {
	return func(p *probe) {
		for _, raw := range refused {
			a, err := p.dial(request{}).roundTrip(raw, (*conn).any)
			if err != nil {
				continue // a closed connection is no response without an id
			}
			line, _, _ := strings.Cut(raw, "\r\n")
			p.wantID(line, a)
		}
	}
}
