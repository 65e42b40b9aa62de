package middleware

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/redact"
)

// redact returns a text without API keys.
func (p *reporter) redact(text string) string {
	return (&redact.Secrets{Shapes: p.shapes}).Redact(text)
}

// secrets returns the credentials of a request, to keep them out of the log: a
// handler may panic with the request itself, with an error that quotes it, or
// with a part of the key. They are those of the request and of requests outside
// it, and every text of the form of an API key.
func (p *reporter) secrets(x *exchange, r *http.Request) *redact.Secrets {
	s := &redact.Secrets{Shapes: p.shapes}
	if p.shapes == nil { // the reporter of WriteProblem
		s.Shapes = contractKey
	}
	for name, values := range r.Header {
		if !s.Spend(1) {
			break
		}
		// A client can send names of a megabyte, which take long to match.
		if len(name) > 256 || secretHeader.MatchString(name) || name == p.keyHeader {
			s.AddHeaders(values...)
		}
	}
	if x != nil {
		s.AddHeaders(x.authorization, x.apiKey)
	}
	for f := factsOf(r.Context()); f != nil; f = factsOf(f.Context) {
		if f.response != nil && f.response != x {
			s.AddHeaders(f.response.authorization, f.response.apiKey)
		}
	}
	return s
}

// keyShapes matches every text that begins like an API key of the service, so
// that one cut short matches too.
func keyShapes(s keystore.Service) *regexp.Regexp {
	whole := s.Pattern()
	pattern := whole[:strings.LastIndexByte(whole, '{')] + "{8,}"
	for _, legacy := range s.Legacy {
		if len(legacy.Prefix) > 3 { // a shorter one would hide words
			pattern += "|" + regexp.QuoteMeta(legacy.Prefix) + `[^\s"'\\,;<>(){}\[\]]{8,}`
		}
	}
	return regexp.MustCompile(pattern)
}

var contractKey = keyShapes(keystore.Service{})

var secretHeader = regexp.MustCompile(`(?i)authorization|cookie|key|token|secret|password`)

// method returns the method of a request for a log. Net/http takes any token of
// up to a megabyte for one, and it may be an API key: of the first 16 bytes a
// key has no more than redaction leaves.
func (p *reporter) method(r *http.Request) string {
	m := r.Method
	if len(m) <= len(http.MethodOptions) {
		return m
	}
	return p.redact(m[:min(len(m), 16)])
}
