//go:build go1.27

package idemclient

import "net/http"

// discard closes a body. From Go 1.27 on net/http then reads what is left, so
// that the connection can be used again: up to 256 KiB in 50 ms. A Read beside
// Close would take these bytes, and make it wait the 50 ms for nothing.
func discard(res *http.Response) { res.Body.Close() }
