package middleware

import (
	"maps"
	"net/http"

	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// recovered answers for a handler that panicked with v, or aborts. before is the
// header as stages outside have set it.
func recovered(report *reporter, w http.ResponseWriter, r *http.Request, v any, before http.Header) {
	if v == http.ErrAbortHandler {
		panic(v)
	}
	x := exchangeOf(w)
	report.logPanic(x, r, v)
	x.record.panicked()
	if response.Committed(w) {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	clear(h)
	maps.Copy(h, before)
	x.Stamp(h)
	report.refuse(w, r, StageRecover, denied(codes.Internal))
}

// fieldsBefore returns what recovered restores: a copy of the header, nil if it
// has nothing but the request id.
func fieldsBefore(x *exchange, h http.Header) http.Header {
	if _, id := h[x.IDHeader]; len(h) == 0 || id && len(h) == 1 {
		return nil
	}
	return h.Clone()
}
