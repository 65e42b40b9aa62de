package keyed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// ErrBodies means that the bodies in memory, and what is made of them, take all
// the room that there is for them.
var ErrBodies = errors.New("middleware: no room for another request body")

// Bodies counts the bytes of bodies that are in memory. A tenant may have as
// many as are left free: k tenants that take what they can leave one part in k+1
// to others, as by the dynamic thresholds of Choudhury and Hahne (1998).
type Bodies struct {
	Max int64

	mu      sync.Mutex
	used    int64
	tenants map[string]int64 // what each has; none has 0

	computing chan struct{} // has what runs in Compute
}

// NewBodies returns a count of at most so many bytes.
func NewBodies(most int64) *Bodies { return &Bodies{Max: most, computing: make(chan struct{}, 4)} }

// reserve counts n more bytes of a tenant, up to one part in so many of what is
// left free.
func (b *Bodies) reserve(tenant string, n, parts int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count(tenant, n, parts)
}

// count is reserve where b.mu is held.
func (b *Bodies) count(tenant string, n, parts int64) bool {
	has := b.tenants[tenant] + n
	if n > 0 && has > (b.Max-b.used)/parts {
		return false
	}
	if b.tenants == nil {
		b.tenants = make(map[string]int64)
	}
	if b.tenants[tenant] = has; has == 0 {
		delete(b.tenants, tenant)
	}
	b.used += n
	return true
}

// Body is a request body that was read whole. It is used by one goroutine.
type Body struct {
	Bytes []byte

	from   *Bodies
	tenant string
	held   int64
	more   int64 // that Hold has taken
	reader reader

	promised int64 // counted for what has not come yet; Bodies.mu guards it
}

// Release gives back the room that the body takes.
func (b *Body) Release() {
	if all := b.held + b.more; all > 0 {
		b.from.reserve(b.tenant, -all, 1)
	}
	b.held, b.more, b.Bytes = 0, 0, nil
}

// Hold takes room for n bytes beside the body, in place of those before, until
// Release. It reports whether there was room: half of what bodies may take, which
// need it more.
func (b *Body) Hold(n int) bool {
	ok := b.from.reserve(b.tenant, int64(n)-b.more, 2)
	if ok {
		b.more = int64(n)
	}
	return ok
}

// Compute calls f, which takes n bytes beside the body. It waits for up to a
// second while four others are called. The error is that of ctx, or ErrBodies. A
// call alone, or for a body that does not count, needs no room.
func (b *Body) Compute(ctx context.Context, n int, f func()) error {
	if b.held == 0 {
		f()
		return nil
	}
	computing := b.from.computing
	select {
	case computing <- struct{}{}:
	default:
		select {
		case computing <- struct{}{}:
		case <-time.After(time.Second):
			return ErrBodies
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { <-computing }()
	if alone := len(computing) == 1; !b.Hold(n) && !alone {
		return ErrBodies
	}
	f()
	b.Hold(0)
	return nil
}

// A body with a Content-Length over early has all its room before it is read,
// so that it is refused then or not at all. If less than a mebibyte comes in
// the time of patience, the room for what has not come is given back.
const (
	early    = 256 << 10 // of a shorter one net/http reads the rest when it is refused
	patience = 10 * time.Second
)

// ErrConsumed means that a body is empty in spite of its Content-Length: somebody
// has read it. Where a client sends less, net/http has an error.
var ErrConsumed = errors.New("middleware: the body of a request has been read")

// Read reads the whole body of r into body, on the account of a tenant. The
// caller calls Release. The error is an *http.MaxBytesError for a body over
// limit, ErrBodies when there is no room, ErrConsumed, and else that of
// reading.
func (b *Bodies) Read(body *Body, tenant string, w http.ResponseWriter, r *http.Request, limit int64) error {
	body.from, body.tenant, body.reader.of = b, tenant, r
	switch {
	case r.ContentLength > 0 && (r.Body == nil || r.Body == http.NoBody):
		return ErrConsumed
	case r.Body == nil || r.Body == http.NoBody:
		return nil
	case r.ContentLength > limit:
		return &http.MaxBytesError{Limit: limit}
	}
	src := http.MaxBytesReader(response.Innermost(w), r.Body, limit)
	// Do not trust Content-Length: memory grows as data arrives.
	room, whole := int64(512), r.ContentLength+1 // one more, to read the end into
	if whole > 0 {
		room = min(whole, 16<<10+1)
	}
	var lapse *time.Timer
	if r.ContentLength > early {
		if !b.reserve(tenant, min(whole, limit), 1) {
			return ErrBodies
		}
		body.promised = min(whole, limit)
		defer body.lapse()
		lapse = time.AfterFunc(patience, body.lapse)
		defer lapse.Stop()
	}
	for {
		if err := body.grow(room, limit); err != nil {
			return err
		}
		for len(body.Bytes) < cap(body.Bytes) {
			had := len(body.Bytes)
			n, err := src.Read(body.Bytes[had:cap(body.Bytes)])
			body.Bytes = body.Bytes[:had+n]
			if lapse != nil && had>>20 != (had+n)>>20 {
				lapse.Reset(patience)
			}
			switch {
			case err == io.EOF && had+n == 0 && r.ContentLength > 0:
				return ErrConsumed
			case err == io.EOF:
				return nil
			case err != nil:
				return err
			}
		}
		if room *= 2; room/2 < whole {
			room = min(room, whole)
		}
	}
}

// uncounted is the largest room that is not counted. The connection of the
// request takes more.
const uncounted = 4 << 10

// grow makes room for more. What counts is never more than the limit: the rest
// is for the end to be read into.
func (b *Body) grow(room, limit int64) error {
	counted := min(room, limit)
	if room <= uncounted {
		counted = 0
	} else if !b.take(counted - b.held) {
		return ErrBodies
	}
	b.held = counted
	b.Bytes = append(make([]byte, 0, room), b.Bytes...)
	return nil
}

// take counts n bytes more, unless they were promised and so are counted.
func (b *Body) take(n int64) bool {
	b.from.mu.Lock()
	defer b.from.mu.Unlock()
	promised := min(n, b.promised)
	b.promised -= promised
	return b.from.count(b.tenant, n-promised, 1)
}

// lapse gives back what was promised and has not come.
func (b *Body) lapse() {
	b.from.mu.Lock()
	defer b.from.mu.Unlock()
	b.from.count(b.tenant, -b.promised, 1)
	b.promised = 0
}

// reader is a body that a handler reads.
type reader struct {
	bytes bytes.Reader  // not embedded: a body cannot be rewound
	begun bool          // the handler has begun to read
	of    *http.Request // whose body was read
}

func (r *reader) Read(p []byte) (int, error) {
	r.begun = true
	return r.bytes.Read(p)
}

func (*reader) Close() error { return nil }

// Reader returns the body from its beginning. A second call resets what the
// first returned.
func (b *Body) Reader() io.ReadCloser {
	b.reader.bytes.Reset(b.Bytes)
	b.reader.begun = false
	return &b.reader
}
