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

// RequestIDOptions configure the request id.
type RequestIDOptions struct {
	// Header is the response header that carries the id; "" means
	// [DefaultRequestIDHeader].
	Header string

	// Trust reports whether the request comes from a trusted proxy. Then the id
	// that it brings in the same header is kept, if there is exactly one and it
	// matches ^[A-Za-z0-9._-]{1,64}$. Nil trusts nobody, and so does a Trust
	// that panics.
	Trust func(*http.Request) bool
}

// RequestID gives each request an id ([xid]: 20 characters, sortable by time,
// not secret) and each response one header that carries it.
//
// It MUST be the outermost stage; a handler outside it, such as an
// http.TimeoutHandler, answers without the header. The header is enforced when
// the response is committed, for every status including 1xx, so that no handler
// inside can remove, overwrite or repeat it. [RequestIDListener] covers the
// answers that net/http gives before any handler runs.
//
// A RequestID inside another one does nothing for the same response. When the
// response ends, [Hooks].Observe is told of it.
//
// [xid]: https://github.com/rs/xid
func (g *Guard) RequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if exchangeOf(w) != nil {
			next.ServeHTTP(w, r)
			return
		}
		x := new(exchange)
		w = x.open(g, w, r, factsOf(r.Context()))
		aborted := true
		defer func() { x.close(r, aborted) }()
		f := extend(r.Context())
		f.response, f.hooks = x, x.hooks
		f.serve(next, w, r)
		aborted = false
	})
}

func (x *exchange) assignID(r *http.Request, trust func(*http.Request) bool) {
	if trust != nil {
		if v := r.Header[x.IDHeader]; len(v) == 1 && validID(v[0]) {
			x.guard.contain(x, r, func() { // Recover stands inside
				if trust(r) {
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
	"Age", "Allow", "Authorization", "Cache-Control", "Connection", "Date", "Etag", "Expires", "Idempotent-Replayed", "Keep-Alive",
	"Last-Modified", "Link", "Location", "Proxy-Authenticate", "Proxy-Connection", "Ratelimit", "Ratelimit-Policy", "Retry-After",
	"Server", "Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Vary", "Www-Authenticate",
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
