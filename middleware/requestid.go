package middleware

import (
	"net/http"
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
		// The same request behind a foreign writer, or a request within a request.
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
