package middleware

import (
	"context"
	"net/http"
	"net/textproto"
	"strings"
	"unsafe"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// DefaultRequestIDHeader is the header of the request id where none is chosen.
const DefaultRequestIDHeader = "Svc-Request-Id"

// RequestIDOptions configure [RequestID].
type RequestIDOptions struct {
	// Header is the response header that carries the id; "" means
	// [DefaultRequestIDHeader].
	Header string

	// Trust tells whether the id that the request brings in the same header may be
	// kept, because it comes from a proxy of yours. It is kept only when there is
	// exactly one and it matches ^[A-Za-z0-9._-]{1,64}$. Nil trusts nobody.
	Trust func(*http.Request) bool

	Hooks *Hooks
}

// RequestID gives each request an id ([xid]: 20 characters, sortable by time,
// not secret) and each response one header that carries it.
//
// It MUST be the outermost stage; whatever stands outside it, such as an
// http.TimeoutHandler, answers without the header. The header is enforced when
// the response is committed, for every status including 1xx, so that nothing
// inside can remove, overwrite or double it. What net/http answers before any
// handler runs is covered by [Harden].
//
// A second RequestID inside the first does nothing.
//
// [xid]: https://github.com/rs/xid
func RequestID(o RequestIDOptions) func(http.Handler) http.Handler {
	header := o.header()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, outer *http.Request) {
			s, r := enter(outer, o.Hooks)
			if s.header != "" {
				next.ServeHTTP(w, r)
				return
			}
			s.header = header
			s.assign(r, o.Trust)
			rawconn.Own(r.Context(), s.id)
			w = s.dress(w)
			s.stamp(w.Header())
			defer s.leave(outer, r)
			next.ServeHTTP(w, r)
		})
	}
}

// RequestIDFrom returns the id of the request whose context this is, or "".
func RequestIDFrom(ctx context.Context) string {
	if s := stateFrom(ctx); s != nil {
		return s.id
	}
	return ""
}

func (o RequestIDOptions) header() string {
	if o.Header == "" {
		return DefaultRequestIDHeader
	}
	if !validToken(o.Header) {
		panic("middleware: RequestIDOptions.Header " + quote(o.Header) + " is not a header field name (RFC 9110, section 5.1)")
	}
	return textproto.CanonicalMIMEHeaderKey(o.Header)
}

// originalHeader names the header in which a replay tells the first response's
// id: Svc-Request-Id gives Svc-Original-Request-Id.
func originalHeader(header string) string {
	if prefix, ok := strings.CutSuffix(header, "Request-Id"); ok {
		return prefix + "Original-Request-Id"
	}
	return "Original-" + header
}

func (s *state) assign(r *http.Request, trust func(*http.Request) bool) {
	if trust != nil {
		if v := r.Header[s.header]; len(v) == 1 && validID(v[0]) && trust(r) {
			s.id = v[0]
			s.idValue[0] = s.id
			return
		}
	}
	text := xid.New().Encode(s.idText[:])
	// The bytes are written once, here, and live as long as the string does.
	s.id = unsafe.String(&text[0], len(text))
	s.idValue[0] = s.id
}

func validID(id string) bool {
	if len(id) == 0 || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !isAlphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// validToken reports whether s is a token of RFC 9110, section 5.6.2.
func validToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}

// stamp leaves exactly one value of the request id in h, whatever spelling of
// the name a handler used.
func (s *state) stamp(h http.Header) {
	if s.header == "" {
		return
	}
	for name := range h {
		if len(name) == len(s.header) && name != s.header && strings.EqualFold(name, s.header) {
			delete(h, name)
		}
	}
	if v := h[s.header]; len(v) != 1 || v[0] != s.id {
		s.idValue[0] = s.id // a handler may have written into the slice
		h[s.header] = s.idValue[:1:1]
	}
}

// leave is what RequestID does on the way out.
func (s *state) leave(outer, r *http.Request) {
	s.w.finish()
	// The server removes the files of a form from the request that it made.
	if outer.MultipartForm == nil {
		outer.MultipartForm = r.MultipartForm
	}
	// An access log outside holds the request that came in, in which the mux
	// could not leave the pattern.
	if outer.Pattern != "" {
		return
	}
	if s.returned.Load() {
		outer.Pattern = s.pattern
	} else {
		outer.Pattern = r.Pattern
	}
}
