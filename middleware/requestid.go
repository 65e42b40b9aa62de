package middleware

import (
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// DefaultRequestIDHeader is the header of the request id where none is chosen.
const DefaultRequestIDHeader = "Svc-Request-Id"

// requestIDs begins and ends responses. Each gets one id.
type requestIDs struct {
	header string
	trust  func(*http.Request) bool
	report *reporter
}

// open begins the response that is sent to w, for a request with these outer
// facts or nil. It returns the writer for the handlers inside.
func (s *requestIDs) open(x *exchange, w http.ResponseWriter, r *http.Request, outer *facts) http.ResponseWriter {
	x.Owner, x.Request = x, r
	nested := outer != nil && outer.id() != ""
	if nested {
		// The same request behind a foreign writer, or a request within a
		// request.
		x.IDHeader, x.ID = outer.response.IDHeader, outer.response.ID
	} else {
		x.IDHeader = s.header
		s.assign(x, r)
	}
	x.observe(s.report.hooks(x, r))
	if x.record != nil {
		x.record.event.Nested, x.record.outer = nested, r.Pattern
	}
	w = x.Wrap(w)
	x.Stamp(w.Header()) // for an outer handler that answers in place of an aborted one
	return w
}

// close ends a response, after all handlers have returned.
func (s *requestIDs) close(x *exchange, r *http.Request, aborted bool) {
	if !aborted {
		x.Finish()
	}
	if run := x.silent.Load(); run != nil &&
		(x.Status > 200 || x.Bytes > 0 && x.Header().Get("Content-Encoding") == "") {
		run.SentPast()
	}
	if x.record != nil {
		s.report.ended(x, r, aborted)
	}
	if !aborted {
		x.Linger()
	}
}

func (s *requestIDs) assign(x *exchange, r *http.Request) {
	if s.trust != nil {
		if v := r.Header[x.IDHeader]; len(v) == 1 && validID(v[0]) {
			s.report.contain(x, r, func() { // Recover stands inside
				if s.trust(r) {
					x.ID = v[0]
				}
			})
		}
	}
	if x.ID == "" {
		text := xid.New().Encode(x.idText[:])
		// Safe: idText is never written again.
		x.ID = unsafe.String(&text[0], len(text))
	}
	rawconn.Own(r.Context(), x.ID)
}

func validID(id string) bool { return len(id) <= 64 && isWord(id, "._-") }

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
