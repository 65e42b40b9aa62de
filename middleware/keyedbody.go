package middleware

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// waitingBody is the largest body that a repeat keeps while it waits for the first
// request. Of a larger one only the fingerprint is left; should the first request
// free the key, such a repeat is told to come again.
const waitingBody = 16 << 10

// readBody returns the whole body. The error is an *http.MaxBytesError when there
// is too much of it.
func (g *idempotency) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > g.MaxBody {
		return nil, &http.MaxBytesError{Limit: g.MaxBody}
	}
	// The server's own writer, because MaxBytesReader tells it to close the
	// connection by a method that no wrapper has. A declared length is a promise,
	// not a reason to set memory aside.
	src := http.MaxBytesReader(innermost(w), r.Body, g.MaxBody)
	room := int64(512)
	if r.ContentLength >= 0 {
		room = min(r.ContentLength, 16<<10) + 1 // one more, to read the end into
	}
	buf := make([]byte, 0, room)
	for {
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			larger := 2 * cap(buf)
			if left := r.ContentLength + 1 - int64(len(buf)); left > 0 {
				larger = min(larger, len(buf)+int(left))
			}
			buf = append(make([]byte, 0, larger), buf...)
		}
	}
}

func bodyProblem(err error) Problem {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p := problem(codeBodyTooLarge)
		p.Detail = "The request body is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes, the most that a request with an Idempotency-Key may have here."
		return p
	}
	p := problem(codeBadRequest)
	p.Detail = "The request body ended early or is not well formed. Nothing was done."
	return p
}

// bufferedBody is a request body that was read before.
type bufferedBody struct{ bytes.Reader }

func (*bufferedBody) Close() error { return nil }
