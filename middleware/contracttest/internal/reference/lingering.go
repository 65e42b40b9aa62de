package reference

import (
	"cmp"
	"net/http"
)

// lingering returns the key, or the last one of the connection.
func (x *exchange) lingering(key string) string {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	if key != "" && len(key) <= 255 {
		x.conn.lastKey = key
	}
	return cmp.Or(key, x.conn.lastKey)
}

// lingers reports whether the key of the request is that of another one.
func (x *exchange) lingers() bool {
	return x.s.has("idem-key-lingers") && x.r.Header.Get("Idempotency-Key") == ""
}

// leave marks the connection of HTTP/1 as one whose next request begins with
// the body of this one.
func (x *exchange) leave() {
	if x.r.ProtoMajor == 1 && x.r.ContentLength != 0 {
		x.conn.left.Store(true)
	}
}

// leftover answers what is taken for a request and is the body of another one.
func (x *exchange) leftover() bool {
	if !x.conn.left.Swap(false) {
		return false
	}
	x.Header().Set("Connection", "close")
	x.refuse(http.StatusBadRequest, "bad_request")
	return true
}
