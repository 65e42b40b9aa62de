package idemclient

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

const keyField = "Idempotency-Key"

type contextKey struct{}

// WithKey gives the request that is sent with ctx its Idempotency-Key: 1 to 255
// printable ASCII characters without spaces, such as the id of the job that the
// request belongs to. Two requests that differ must not share a key: give each
// its own context. Requests with safe methods, such as GET, get none. A key in
// the header of the request wins. If the key is not valid, Do returns an error
// and sends nothing.
//
// A process that starts again and repeats the job's request sends the same key
// again. One that a [Transport] makes is lost with the process.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, contextKey{}, key)
}

// keyOf returns the key that the request is to have, or "" for none. It is the
// one that it carries, its context's, that of the request which was redirected
// to this one, or a new one.
func (t *Transport) keyOf(req *http.Request) (string, error) {
	values := req.Header[keyField]
	key, given := req.Context().Value(contextKey{}).(string)
	switch methods := t.Methods; {
	case safe(req.Method):
		return "", nil
	case len(values) > 0:
		key = strings.Join(values, ", ") // several are refused for the space
	case given:
	case !slices.Contains(methods, req.Method) && (methods != nil || req.Method != http.MethodPost):
		return "", nil
	default:
		from := redirected(req)
		if from == nil || from.key == "" {
			return rand.Text(), nil
		}
		key = from.key
	}
	wrong := func(c rune) bool { return c <= ' ' || c > '~' }
	if key == "" || len(key) > 255 || strings.ContainsFunc(key, wrong) {
		return "", fmt.Errorf("idemclient: the Idempotency-Key %.300q has %d bytes: "+
			"send one of 1 to 255 printable ASCII characters without spaces", key, len(key))
	}
	return key, nil
}

// safe reports whether a request needs no key to be sent again.
func safe(method string) bool {
	return slices.Contains([]string{"", "GET", "HEAD", "OPTIONS", "TRACE"}, method)
}

// An UnknownError says that a request with an Idempotency-Key may have taken
// effect or not. To find out, send the same request with the same key again, by
// [WithKey]. With another key it may be done twice.
type UnknownError struct {
	Key   string
	Tries int   // how often the request was sent
	Err   error // what came in place of an answer
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("idemclient: the request with the Idempotency-Key %q may have taken effect: "+
		"do not repeat this under another key, send it again under this one (tries: %d): %v", e.Key, e.Tries, e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }
