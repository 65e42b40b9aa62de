package rules

import "strings"

// guises are how browsers, caches, proxies, probes and SDKs send a request:
// header lines, or a word that head and exchange know. None of them is a key or
// a scope.
var guises = []string{
	"If-None-Match: *",
	"If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT",
	"If-Match: \"contract\"\nIf-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT",
	"Range: bytes=0-9",
	"Accept: text/event-stream",
	"Accept: text/csv, application/xml;q=0.9",
	"Accept: text/html, */*;q=0.8\nSec-Fetch-Mode: navigate",
	"Accept-Encoding: gzip",
	"Accept-Encoding: br;q=1.0, *;q=0.1",
	"Origin: https://app.example.com\nSec-Fetch-Site: same-site\nX-Requested-With: XMLHttpRequest\nSec-Purpose: prefetch",
	asPreflight,
	"Referer: {{url}}/dashboard\nCookie: session=contract; token=contract",
	"X-Forwarded-For: 127.0.0.1\nX-Real-Ip: 127.0.0.1\nForwarded: for=127.0.0.1;proto=https\nX-Forwarded-Proto: https\n" +
		"X-Forwarded-Host: localhost\nX-Forwarded-Prefix: /internal\nVia: 1.1 internal\nX-Client-Verify: SUCCESS",
	"X-Original-Url: /health\nX-Rewrite-Url: /health",
	"X-Internal: true\nX-Admin: true\nX-User-Id: 1\nX-Authenticated: true\n" +
		"X-Authenticated-Userid: 1\nX-Consumer-Id: 1\nX-Forwarded-User: admin\nX-Remote-User: admin\n" +
		"X-Middleware-Subrequest: middleware:middleware:middleware:middleware:middleware",
	"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\nX-Request-Id: contract\nB3: 0\n" +
		"X-Correlation-Id: contract\nX-Amzn-Trace-Id: Root=1-67891233-abcdef012345678912345678;Sampled=0",
	"Accept-Version: 9\nX-Api-Version: 9\nX-Environment: test\nPrefer: return=minimal",
	"Host: localhost",
	"User-Agent: kube-probe/1.30",
	"User-Agent: Googlebot/2.1",
	"Upgrade: websocket\nConnection: Upgrade, Authorization\n" +
		"Sec-Websocket-Version: 13\nSec-Websocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
	"Content-Type: text/plain",
	"Expect: 100-continue",
	"X-Scopes: " + everyScope + "\nX-Oauth-Scopes: " + everyScope,
	asQuery,
	withBody,
	asHTTP10,
	absoluteTarget,
	lowerNames,
}

const (
	asQuery        = "a query"
	withBody       = "a body"
	asHTTP10       = "HTTP/1.0"
	absoluteTarget = "a whole URL for its target"
	lowerNames     = "header names in small letters"
	asChunks       = "chunks"
	cutShort       = "a body that ends early"

	asPreflight = "Origin: https://example.com\nAccess-Control-Request-Method: GET\n" +
		"Access-Control-Request-Headers: authorization"

	everyScope = "account:read workers:read workers:write tasks:read tasks:write tasks:cancel approvals:write " +
		"deliverables:read deliverables:write chat:read chat:write knowledge:read knowledge:write " +
		"integrations:read integrations:write webhooks:write"
)

// guised returns the request in a guise.
func (r request) guised(guise string) request {
	switch {
	case strings.Contains(guise, ": "):
		for line := range strings.SplitSeq(guise, "\n") {
			name, _, _ := strings.Cut(line, ":")
			r = r.without(name).with(line)
		}
	case guise == asQuery:
		r.path += separator(r.path) + "scope=" + strings.ReplaceAll(everyScope, " ", "+") +
			"&debug=true&public=1&callback=f&format=csv&_method=OPTIONS&q=%3Cscript%3E..%2F..%2Fetc%2Fpasswd"
	case guise == withBody && r.body == "":
		r.body = "{}"
	case guise == asChunks:
		r.chunked = true
	default:
		r.wire = guise
	}
	return r
}

// inGuise calls look with the read of a key in each guise, and with what to call
// it.
func (p *probe) inGuise(key string, look func(what string, a answer)) {
	each(p, guises, func(guise string) {
		guise = strings.Replace(guise, "{{url}}", p.target.URL, 1)
		name, more, _ := strings.Cut(guise, "\n")
		if more != "" {
			name += ", and more"
		}
		a, err := p.tryPatiently(p.read(key).guised(guise).anew())
		if err == nil { // a server may have no answer to this
			look("a GET with "+name, a)
		}
	})
}

// lets reports whether a response is what a caller gets who may ask.
func (p *probe) lets(a answer) bool {
	if a.status == 304 || a.status == 206 {
		return p.do(a.to.at(unknown(a.to.path))).status != a.status
	}
	return p.served(a)
}

// takes reports whether a request succeeds with a live key. A server may have
// another refusal than 401 and 403 for what it does not take from anybody.
func (p *probe) takes(r request) bool {
	a, err := p.tryPatiently(r.without("Authorization").with(bearer(p.full())))
	return err == nil && a.ok()
}

// refusesGuises wants each guise to be refused as the caller is, and no other
// type of body to create.
func (p *probe) refusesGuises(by caller) {
	for _, coding := range []string{"gzip", "identity"} {
		p.do(p.read(p.full()).with("Accept-Encoding: " + coding)) // may fill a cache
	}
	p.inGuise(by.key, func(what string, a answer) {
		if p.lets(a) || a.status != by.status && a.class() != 5 && p.takes(a.to) {
			p.fault(a, "%s %s: got %d, want %d", what, by.who, a.status, by.status)
		}
	})
	p.eachCreate(by.key, func(c creation) {
		w := p.watch(c)
		p.refuses(by, "a create with a cookie and", c.guised("Cookie: session=contract"))
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
			"application/grpc", ""} {
			r := c.without("Content-Type")
			if kind != "" {
				r = r.with("Content-Type: " + kind)
			}
			r.chunked = kind == ""
			r.path += separator(r.path) + "contract=1"
			if a := p.do(r.anew()); a.ok() {
				p.fault(a, "a create %s of type %q: got %d, want %d", by.who, kind, a.status, by.status)
			}
		}
		w.most(0, "after creates of other types "+by.who)
	})
}
