package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// TestMaxBytesReaderThroughTheWriter: a client that declares a large body and
// stalls gets its 413 without waiting, although no wrapper can forward what
// http.MaxBytesReader asks the server's own writer for.
func TestMaxBytesReaderThroughTheWriter(t *testing.T) {
	refuse := map[string]func(w http.ResponseWriter, r *http.Request){
		"http.Error": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		},
		"WriteProblem": func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large"})
		},
	}
	for name, refuse := range refuse {
		api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4))
			if tooLarge := (*http.MaxBytesError)(nil); !errors.As(err, &tooLarge) {
				t.Errorf("got %v, want an *http.MaxBytesError", err)
			}
			refuse(w, r)
		}, middleware.Options{Hooks: quiet()})
		srv := start(t, api)
		for _, length := range []string{"Content-Length: 200000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3e8\r\n"} {
			c := dial(t, srv)
			c.send("PUT /api/v1/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\n" + length + strings.Repeat("x", 1000))
			res := c.next("PUT")
			if wantID(t, res.Response); res.StatusCode != 413 || !res.Close {
				t.Errorf("%s, %s: got %d, close %v", name, length, res.StatusCode, res.Close)
			}
		}
	}
}

// TestSmuggledTail: net/http takes a request with both a length and chunks for
// chunked (and, up to Go 1.26, keeps the connection). Whatever it makes of the
// rest, that has to bring its own key.
func TestSmuggledTail(t *testing.T) {
	served := 0
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) { served++ }, middleware.Options{Hooks: quiet()})
	c := dial(t, start(t, api, withRequestIDs))
	c.send("PUT /api/v1/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
		"PUT /api/v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	first := c.next("PUT")
	if wantID(t, first.Response); first.StatusCode != 200 && first.StatusCode != 400 {
		t.Errorf("got %d first", first.StatusCode)
	}
	if !first.Close {
		second := c.next("PUT")
		if wantID(t, second.Response); second.StatusCode != 401 {
			t.Errorf("the tail: got %d", second.StatusCode)
		}
	}
	if io.Copy(io.Discard, c); served > 1 {
		t.Errorf("the handler ran %d times", served)
	}
}

// TestRequestBodyIsUntouched: reading, trailers and closing are the server's.
func TestRequestBodyIsUntouched(t *testing.T) {
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if string(body) != "body" || err != nil || r.Trailer.Get("Sum") != "1" || r.ContentLength != -1 {
			t.Errorf("got %q, %v, trailer %v, length %d", body, err, r.Trailer, r.ContentLength)
		}
	}, middleware.Options{Hooks: quiet()})
	c := dial(t, start(t, api))
	c.send("PUT /api/v1/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n4\r\nbody\r\n0\r\nSum: 1\r\n\r\n")
	if res := c.next("PUT"); res.StatusCode != 200 {
		t.Errorf("got %d", res.StatusCode)
	}
}

// TestStalledBodyWithoutKey: whoever has no key cannot hold its 401 back by not
// sending the body it has declared.
func TestStalledBodyWithoutKey(t *testing.T) {
	ring := newKeyring()
	srv := start(t, testAPI(ring.keys, middleware.Options{Hooks: quiet()}))
	for _, length := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked", "Content-Length: 1000000"} {
		for _, auth := range []string{"", "Authorization: Bearer nonsense\r\n"} {
			c := dial(t, srv)
			c.send("POST /api/v1/tasks HTTP/1.1\r\nHost: a\r\n" + auth + length + "\r\n\r\n")
			if res := c.next("POST"); res.StatusCode != 401 || !res.Close {
				t.Errorf("%s: got %d, close %v", length, res.StatusCode, res.Close)
			}
		}
	}
	// Without a body, the connection stays.
	c := dial(t, srv)
	for range 2 {
		c.send("GET /api/v1/tasks HTTP/1.1\r\nHost: a\r\n\r\n")
		if res := c.next("GET"); res.StatusCode != 401 || res.Close {
			t.Errorf("got %d, close %v", res.StatusCode, res.Close)
		}
	}
}

func TestExpectContinue(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t, scope.TasksWrite)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet()})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	api.HandleFunc("POST /api/v1/account", middleware.Require(scope.AccountRead), sayOK)
	srv := start(t, api)
	ask := func(path, token string) *wire {
		c := dial(t, srv)
		c.send("POST " + path + " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\nAuthorization: Bearer " + token + "\r\n\r\n")
		return c
	}
	if res := ask("/api/v1/tasks", "").next("POST"); res.StatusCode != 401 {
		t.Errorf("without a key: got %d first, want 401", res.StatusCode)
	}
	if res := ask("/api/v1/account", token).next("POST"); res.StatusCode != 403 {
		t.Errorf("without the scope: got %d first, want 403", res.StatusCode)
	}
	if res := ask("/api/v1/none", token).next("POST"); res.StatusCode != 404 {
		t.Errorf("without a route: got %d first, want 404", res.StatusCode)
	}
	c := ask("/api/v1/tasks", token)
	if res := c.head("POST"); res.StatusCode != 100 {
		t.Errorf("with a key: got %d first, want 100", res.StatusCode)
	}
	c.send("body")
	if res := c.next("POST"); res.StatusCode != 200 || res.body != "body" {
		t.Errorf("with a key: got %d %q", res.StatusCode, res.body)
	}
}
