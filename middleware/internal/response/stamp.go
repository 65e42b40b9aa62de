package response

import (
	"net/http"
	"strings"
)

// Stamp leaves exactly one value of the request id in h. It removes every other
// spelling of the name, and the name among the trailers.
func (w *Writer) Stamp(h http.Header) {
	if w.IDHeader == "" {
		return
	}
	values, present := h[w.IDHeader]
	if hasOther(h, present) {
		for name := range h {
			switch name {
			case "Trailer", "Transfer-Encoding", "Content-Length": // which may be none
				w.trailers = true
			}
			rest := name
			if len(name) != len(w.IDHeader) {
				rest = strings.TrimPrefix(name, http.TrailerPrefix)
			}
			if len(rest) == len(w.IDHeader) && name != w.IDHeader && strings.EqualFold(rest, w.IDHeader) {
				delete(h, name)
			}
		}
	}
	if len(values) != 1 || values[0] != w.ID {
		w.idValue[0] = w.ID // a handler may have written into the slice
		h[w.IDHeader] = w.idValue[:1:1]
	}
}

// hasOther reports whether h has fields beyond the request id and the fields of
// most responses. Only then can another spelling of the id's name be among
// them, and h has to be searched.
func hasOther(h http.Header, idPresent bool) bool {
	n := len(h)
	if idPresent {
		n--
	}
	for i := 0; n > 0 && i < len(usual); i++ {
		if _, ok := h[usual[i]]; ok {
			n--
		}
	}
	return n > 0
}

// usual is ordered by how often the names occur. None of them may be the name
// of the request id's header.
var usual = [...]string{"Content-Type", "Cache-Control", "Www-Authenticate", "Location", "Retry-After"}
