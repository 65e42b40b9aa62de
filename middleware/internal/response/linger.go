package response

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// PrepareLinger is called before a refusal of so many bytes is sent, whose
// header is h. [Writer.Linger] then waits for the client of a large body.
func (w *Writer) PrepareLinger(h http.Header, length int) {
	// Of a shorter body net/http reads the rest before it answers.
	if w.lingers = w.http1() && w.Request.ContentLength > 256<<10 && !w.Committed(); !w.lingers {
		return
	}
	h["Content-Length"] = []string{strconv.Itoa(length)}
	if w.expects() {
		h["Connection"] = []string{"close"}
	}
}

// expects reports whether the client should wait until it is asked for its
// body.
func (w *Writer) expects() bool { return w.Request.Header["Expect"] != nil }

// Linger sends a refusal and then takes what still comes of the body: at most
// 128 MiB, in half a minute, while each comes within five seconds. To close a
// connection with bytes that nobody has read resets it, and the client could lose
// the response. It is called last, when nothing is held for the request any more.
func (w *Writer) Linger() {
	if !w.lingers {
		return
	}
	c, rest := http.NewResponseController(w.below), io.Reader(w.Request.Body)
	err := c.Flush()
	if err == nil && w.expects() { // from Go 1.27 on its body cannot be read any more
		if conn, _, failed := c.Hijack(); failed == nil {
			defer conn.Close()
			rest = conn
		}
	}
	began := time.Now()
	for n := 0; n < 128 && err == nil; n++ {
		most := min(5*time.Second, 30*time.Second-time.Since(began))
		if err = c.SetReadDeadline(time.Now().Add(most)); err == nil {
			_, err = io.CopyN(io.Discard, rest, 1<<20)
		}
	}
}
