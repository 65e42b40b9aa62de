package keyed

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// ErrBodies means that the bodies in memory take all the room that there is for
// them.
var ErrBodies = errors.New("middleware: no room for another request body")

// Bodies counts the bytes of the request bodies that are in memory.
type Bodies struct {
	Max  int64
	used atomic.Int64
}

func (b *Bodies) reserve(n int64) bool {
	if b.used.Add(n) > b.Max {
		b.used.Add(-n)
		return false
	}
	return true
}

// Body is a request body that was read whole. It is used by one goroutine.
type Body struct {
	Bytes   []byte
	Dropped bool // it was released while the request waited

	from   *Bodies
	held   int64
	reader reader
}

// Release gives back the room that the body takes.
func (b *Body) Release() {
	if b.from != nil { // Read was called
		b.from.used.Add(-b.held)
	}
	b.held, b.Bytes = 0, nil
}

// Read reads the whole body of r into body. The caller calls Release. The error
// is an *http.MaxBytesError for a body over limit, ErrBodies when there is no
// room, and else that of reading.
func (b *Bodies) Read(body *Body, w http.ResponseWriter, r *http.Request, limit int64) error {
	body.from = b
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if r.ContentLength > limit {
		return &http.MaxBytesError{Limit: limit}
	}
	src := http.MaxBytesReader(response.Innermost(w), r.Body, limit)
	// Do not trust Content-Length: the room grows as data arrives.
	room := int64(512)
	if r.ContentLength >= 0 {
		room = min(r.ContentLength, 16<<10) + 1 // one more, to read the end into
	}
	if err := body.grow(room, limit); err != nil {
		return err
	}
	for {
		n, err := src.Read(body.Bytes[len(body.Bytes):cap(body.Bytes)])
		body.Bytes = body.Bytes[:len(body.Bytes)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if length := int64(len(body.Bytes)); len(body.Bytes) == cap(body.Bytes) {
			larger := 2 * length
			if left := r.ContentLength + 1 - length; left > 0 {
				larger = min(larger, length+left)
			}
			if err := body.grow(larger, limit); err != nil {
				return err
			}
		}
	}
}

// grow makes room for more. What counts is never more than the limit: the rest
// is for the end to be read into.
func (b *Body) grow(room, limit int64) error {
	counted := min(room, limit)
	if !b.from.reserve(counted - b.held) {
		return ErrBodies
	}
	b.held = counted
	b.Bytes = append(make([]byte, 0, room), b.Bytes...)
	return nil
}

// reader is a body that a handler reads.
type reader struct{ bytes.Reader }

func (*reader) Close() error { return nil }

// Reader returns the body from its beginning. A second call resets what the
// first returned.
func (b *Body) Reader() io.ReadCloser {
	b.reader.Reset(b.Bytes)
	return &b.reader
}

// waitingBody is the largest body that a request keeps while it waits for the
// first one with its key.
const waitingBody = 16 << 10

// Wait is called when the request is about to wait. It releases a large body:
// many may wait. Should the first request free the key, such a request is told
// to come again.
func (b *Body) Wait() {
	if len(b.Bytes) > waitingBody {
		b.Release()
		b.Dropped = true
	}
}
