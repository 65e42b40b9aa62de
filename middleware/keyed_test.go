package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
)

// keyed puts h behind the stages that Idempotency needs, for any key.
func keyed(ring *keyring, o middleware.Options, h http.Handler) http.Handler {
	if o.Hooks == nil {
		o.Hooks = quiet()
	}
	if o.Idempotency.Runner == nil {
		o.Idempotency.Runner = replies()
	}
	g := middleware.New(ring.keys, o)
	return middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey, g.Idempotent)(h)
}

// numbered is a create whose response tells which run it was.
func numbered(runs *atomic.Int64, before func(*http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := runs.Add(1)
		if before != nil {
			before(r)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", fmt.Sprintf("/tasks/%d", n))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":"task_%d"}`, n)
	}
}

// keyedRequest is a create of "{}".
func keyedRequest(t testing.TB, url, token, key string) *http.Request {
	r := newRequest(t, "POST", url, token, strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", key)
	return r
}

// outcome is what clients get for the first request of a key and for a repeat.
// A status of 0 is a response that does not come to its end.
type outcome struct {
	status int
	code   string // of a problem
	body   string // else
}

func (o outcome) String() string { return fmt.Sprintf("%d %s%s", o.status, o.code, o.body) }

// outcomeOf sends a request and reads the answer as far as it comes.
func outcomeOf(t *testing.T, client *http.Client, r *http.Request) (outcome, http.Header) {
	t.Helper()
	res, err := client.Do(r)
	if err != nil {
		return outcome{}, nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return outcome{}, res.Header
	}
	if res.Header.Get("Content-Type") == "application/problem+json" {
		return outcome{res.StatusCode, answer{res, string(body)}.problem(t).Code, ""}, res.Header
	}
	return outcome{res.StatusCode, "", string(body)}, res.Header
}

// TestRetryBetweenStages: whoever stands outside Idempotency and calls it again
// for the same request gets the replay.
func TestRetryBetweenStages(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var runs atomic.Int64
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	h := middleware.Chain(
		g.RequestID, g.Authenticate, g.AnyKey,
		func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(httptest.NewRecorder(), r)
				r.Body = io.NopCloser(strings.NewReader("{}"))
				next.ServeHTTP(w, r)
			})
		},
		g.Idempotent,
	)(numbered(&runs, nil))
	srv, client := listen(t, "HTTP/1.1", h)
	a := do(t, client, keyedRequest(t, srv.URL, token, "a"))
	if runs.Load() != 1 || a.StatusCode != 201 || a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("ran %d times, got %d, replayed %q", runs.Load(), a.StatusCode, a.Header.Get("Idempotent-Replayed"))
	}
}
