package middleware

import (
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func named(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// mistakes are what is wrong with options.
type mistakes []error

// when adds one if it is there.
func (m *mistakes) when(there bool, format string, args ...any) {
	if there {
		*m = append(*m, fmt.Errorf(format, args...))
	}
}

// validHeader returns an error for a name that cannot carry a request id: it is
// not a field name (RFC 9110, section 5.1), or it has a meaning of its own in a
// response.
func validHeader(header string) error {
	if !validToken(header) {
		return errors.New(strconv.Quote(header) + " is not a header field name")
	}
	name := textproto.CanonicalMIMEHeaderKey(header)
	if strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Access-Control-") ||
		strings.HasPrefix(name, "X-Ratelimit-") || slices.Contains(reserved, name) {
		return errors.New(strconv.Quote(header) + " is a standard header of responses; choose another name")
	}
	return nil
}

var reserved = []string{
	"Age", "Allow", "Authorization", "Cache-Control", "Connection", "Date", "Deprecation", "Etag", "Expires",
	"Idempotent-Replayed", "Keep-Alive", "Last-Modified", "Link", "Location", "Proxy-Authenticate",
	"Proxy-Connection", "Ratelimit", "Ratelimit-Policy", "Retry-After", "Server", "Set-Cookie", "Sunset", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade", "Vary", "Www-Authenticate",
}

// requestHeader matches headers that browsers, proxies and other stages write.
var requestHeader = regexp.MustCompile(`^(Accept|If-|Proxy-|Sec-|X-Forwarded-|` +
	`(Cookie2?|Dnt|Expect|Forwarded|From|Host|Idempotency-Key` +
	`|Max-Forwards|Origin|Priority|Range|Referer|Traceparent|Tracestate|User-Agent|Via|X-Real-Ip|X-Requested-With)$)`)

// validToken reports whether s is a token of RFC 9110, section 5.6.2.
func validToken(s string) bool { return isWord(s, "!#$%&'*+-.^_`|~") }

// isWord reports whether s has only ASCII letters, digits and characters of
// others, and at least one.
func isWord(s, others string) bool {
	for i := range len(s) {
		c := s[i]
		alphanumeric := '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !alphanumeric && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return s != ""
}
