package middleware

import (
	"context"
	"errors"
	"net/http"
	"net/textproto"
	"slices"
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
	o.Header = o.header()
	return func(next http.Handler) http.Handler { return &requestID{o, pieceOf(next)} }
}

type requestID struct {
	RequestIDOptions
	following piece
}

func (h *requestID) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(enter(r), w, r) }

func (h *requestID) serve(s *state, w http.ResponseWriter, r *http.Request) {
	s.heed(h.Hooks)
	if s.header != "" {
		w = s.dress(w)
		if s.w.state != nil { // a response of its own, or somebody's wrapper of this one
			defer s.w.finish()
		}
		h.following.serve(s, w, r)
		return
	}
	s.header = h.Header
	s.assign(r, h.Trust)
	rawconn.Own(r.Context(), s.id)
	w = s.dress(w)
	s.w.stamp(w.Header())
	defer s.leave(r)
	h.following.serve(s, w, r)
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
	if err := o.Validate(); err != nil {
		panic(err.Error())
	}
	return textproto.CanonicalMIMEHeaderKey(o.Header)
}

// Validate returns an error when Header cannot carry a request id: because it is
// not a field name (RFC 9110, section 5.1), or because it has a meaning of its own
// in a response. The stages panic then; a program that takes the name from its
// configuration asks first.
func (o RequestIDOptions) Validate() error {
	if o.Header == "" {
		return nil
	}
	if !validToken(o.Header) {
		return errors.New("middleware: RequestIDOptions.Header " + quote(o.Header) + " is not a header field name")
	}
	name := textproto.CanonicalMIMEHeaderKey(o.Header)
	if strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Access-Control-") || slices.Contains(taken, name) {
		return errors.New("middleware: RequestIDOptions.Header " + quote(o.Header) + " has another meaning in a response")
	}
	return nil
}

var taken = []string{
	"Age", "Allow", "Authorization", "Cache-Control", "Connection", "Date", "Etag", "Expires", "Idempotent-Replayed", "Keep-Alive",
	"Last-Modified", "Link", "Location", "Proxy-Authenticate", "Proxy-Connection", "Ratelimit", "Ratelimit-Policy", "Retry-After",
	"Server", "Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Vary", "Www-Authenticate",
}

// originalHeader names the header in which a replay tells the first response's
// id: Svc-Request-Id gives Svc-Original-Request-Id.
func originalHeader(header string) string {
	if prefix, ok := strings.CutSuffix(header, "Request-Id"); ok {
		return prefix + "Original-Request-Id"
	}
	return "Original-" + header
}

// isOriginal reports whether name is originalHeader(header), and allocates nothing.
func isOriginal(name, header string) bool {
	if prefix, ok := strings.CutSuffix(header, "Request-Id"); ok {
		rest, ok := strings.CutPrefix(name, prefix)
		return ok && rest == "Original-Request-Id"
	}
	rest, ok := strings.CutPrefix(name, "Original-")
	return ok && rest == header
}

func (s *state) assign(r *http.Request, trust func(*http.Request) bool) {
	if trust != nil {
		if v := r.Header[s.header]; len(v) == 1 && validID(v[0]) && trust(r) {
			s.id = v[0]
			return
		}
	}
	text := xid.New().Encode(s.idText[:])
	// The bytes are written once, here, and live as long as the string does.
	s.id = unsafe.String(&text[0], len(text))
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
// the name a handler used, and none among the trailers, by the prefix that needs no
// declaration.
func (w *writer) stamp(h http.Header) {
	s := w.state
	if s.header == "" {
		return
	}
	v := h[s.header]
	if elsewhere(h, v != nil) {
		for name := range h {
			rest := name
			if len(name) != len(s.header) {
				rest = strings.TrimPrefix(name, http.TrailerPrefix)
			}
			if len(rest) == len(s.header) && name != s.header && strings.EqualFold(rest, s.header) {
				delete(h, name)
			}
		}
	}
	if len(v) != 1 || v[0] != s.id {
		w.idValue[0] = s.id // a handler may have written into the slice
		h[s.header] = w.idValue[:1:1]
	}
}

// elsewhere reports whether h has other fields than the id's own, if it is there,
// and those of most responses, so that a second id may hide among them. To ask costs
// less than to look.
func elsewhere(h http.Header, own bool) bool {
	n := len(h)
	if own {
		n--
	}
	for i := 0; n > 0 && i < len(usual); i++ {
		if h[usual[i]] != nil {
			n--
		}
	}
	return n > 0
}

// The order is that of how often they occur; none can be the name of the id.
var usual = [...]string{"Content-Type", "Cache-Control", "Www-Authenticate", "Retry-After"}

// leave is what RequestID does on the way out.
func (s *state) leave(outer *http.Request) {
	s.w.finish()
	r := s.copied
	if r == nil {
		return // no handler has had it
	}
	if s.w.committed {
		s.w.stamp(s.w.below.Header()) // what trailers are read from
	}
	// The server removes the files of a form from the request that it made.
	if outer.MultipartForm == nil {
		outer.MultipartForm = r.MultipartForm
	}
	// An access log outside holds the request that came in, which may not be the
	// one that a mux has left its pattern in.
	if outer.Pattern != "" {
		return
	}
	if pattern := s.returned.Load(); pattern != nil {
		outer.Pattern = *pattern
	} else {
		outer.Pattern = r.Pattern
	}
}
