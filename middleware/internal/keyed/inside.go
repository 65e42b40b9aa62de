package keyed

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// SameRequest reports whether r is outer, as the Idempotent stage was given it,
// or a copy that middleware has handed on, whatever header and body it has got.
// Every copy of a request that a server has received has its RequestURI; one that
// a handler has made has none. Where outer was made too, r is a copy of it if it
// shares the header map or, if [http.Request.Clone] made it, the body that a
// keyed handler reads.
func SameRequest(outer, r *http.Request) bool {
	if outer.RequestURI != "" {
		return r.RequestURI == outer.RequestURI
	}
	header := reflect.ValueOf(outer.Header).UnsafePointer()
	if header != nil && header == reflect.ValueOf(r.Header).UnsafePointer() {
		return true
	}
	body, ok := r.Body.(*reader)
	return ok && body.of == outer
}

// Free frees the key of the keyed request that w answers, for a stage inside
// that refuses r. It does so only where nothing can have happened: r is the
// request itself, not one that its handler made or sends elsewhere, and nobody
// has read its body or begun its response.
func Free(w http.ResponseWriter, r *http.Request) {
	k, ok := response.Find[*writer](w)
	if !ok || k.begun() != 0 || k.q.Body.reader.begun {
		return
	}
	if outer := k.q.R; SameRequest(outer, r) && r.Method == outer.Method && r.URL.RawQuery == outer.URL.RawQuery &&
		strings.HasSuffix(outer.URL.Path, r.URL.Path) { // http.StripPrefix may stand between
		k.ctx.Freed.Store(true)
	}
}

// Answers reports whether w is the writer of a keyed request, or wraps it.
func Answers(w http.ResponseWriter) bool {
	_, ok := response.Find[*writer](w)
	return ok
}
