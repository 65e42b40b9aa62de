//go:build !go1.27

package idemclient

import (
	"io"
	"net/http"
	"time"
)

// discard reads a little of a body, so that its connection can be used again,
// and closes it.
func discard(res *http.Response) {
	late := time.AfterFunc(100*time.Millisecond, func() { res.Body.Close() })
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
	late.Stop()
	res.Body.Close()
}
