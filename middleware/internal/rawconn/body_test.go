package rawconn_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// likeResponse is 1 MB that is made of net/http's own answers, so that most writes
// that begin at a multiple of its length begin like a response.
func likeResponse() []byte {
	const answer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	return bytes.Repeat([]byte(answer), 1<<20/len(answer))
}

// largeBody sends likeResponse so that the connection gets it at the beginning of
// a write: after a flushed head, without chunks.
func largeBody(w http.ResponseWriter, r *http.Request) {
	body := likeResponse()
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	w.Write(body)
}

func TestBodyLikeResponse(t *testing.T) {
	body := likeResponse()
	length := strconv.Itoa(len(body))
	tests := []struct {
		name string
		h    http.HandlerFunc
	}{
		{"one write", func(w http.ResponseWriter, r *http.Request) { w.Write(body) }},
		{"after flush", largeBody},
		{"chunks", func(w http.ResponseWriter, r *http.Request) {
			for p := range chunks(body, 111) {
				w.Write(p)
				w.(http.Flusher).Flush()
			}
		}},
		{"flushed parts", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", length)
			w.(http.Flusher).Flush()
			for p := range chunks(body, len(body)/100) {
				w.Write(p)
				w.(http.Flusher).Flush()
			}
		}},
		{"ReadFrom", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", length)
			w.(http.Flusher).Flush()
			io.Copy(w, bytes.NewReader(body))
		}},
		{"after early hints", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			largeBody(w, r)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, serve(t, newServer(stage(tt.h))))
			for i := range 2 {
				c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				r := c.next("GET")
				if r.StatusCode == 103 {
					r.id(t)
					r = c.next("GET")
				}
				if got, want := r.id(t), "own-"+strconv.Itoa(i+1); got != want {
					t.Errorf("got id %q, want %q", got, want)
				}
				if r.body != string(body) {
					t.Errorf("the body has changed: got %d bytes, want %d", len(r.body), len(body))
				}
			}
		})
	}
}

func chunks(p []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(p) > 0 {
			k := min(n, len(p))
			if !yield(p[:k]) {
				return
			}
			p = p[k:]
		}
	}
}

// TestContinue: the automatic interim response goes out as it is, and neither
// ends the watch nor the ownership.
func TestContinue(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    http.Handler
		id   string
	}{
		{"owned", stage(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), "own-1"},
		{"not owned", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), "new-1"},
		{"owned later", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			stage(func(w http.ResponseWriter, r *http.Request) { w.Write(body) }).ServeHTTP(w, r)
		}), "own-1"},
		{"hijacked after", stage(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			conn, _, _ := w.(http.Hijacker).Hijack()
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"+string(body))
		}), "own-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, serve(t, newServer(tt.h)))
			c.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
			const interim = "HTTP/1.1 100 Continue\r\n\r\n"
			got := make([]byte, len(interim))
			if _, err := io.ReadFull(c.br, got); err != nil || string(got) != interim {
				t.Fatalf("got %q, %v; want %q", got, err, interim)
			}
			c.send("body")
			r := c.next("POST")
			if r.id(t) != tt.id || !strings.HasSuffix(r.body, "body") {
				t.Errorf("got id %q, body %q; want %q, body", r.id(t), r.body, tt.id)
			}
		})
	}
}
