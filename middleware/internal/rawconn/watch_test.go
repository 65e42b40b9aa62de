package rawconn_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// TestHandlerWithoutOwner: what no stage owns gets the line if it has none, keeps
// its own if it has one, and keeps its body.
func TestHandlerWithoutOwner(t *testing.T) {
	tests := []struct {
		name   string
		h      http.HandlerFunc
		id     string
		status int
		body   string
	}{
		{"none", hello, "new-1", 200, "hello"},
		{"its own", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(field, "mine")
			io.WriteString(w, "hello")
		}, "mine", 200, "hello"},
		{"text 400", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			http.Error(w, "no", 400)
		}, "new-1", 400, "no\n"},
		{"long text to HTTP/1.0", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(400)
			io.WriteString(w, strings.Repeat("a", 3000))
		}, "new-1", 400, strings.Repeat("a", 3000)},
		{"417 that keeps the connection", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(417) }, "new-1", 417, ""},
		{"large head", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", strings.Repeat("a", 3<<12))
			w.Header().Set("Z", strings.Repeat("z", 3<<12))
			io.WriteString(w, "hello")
		}, "new-1", 200, "hello"},
		{"early hints", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, "hello")
		}, "", 103, ""},
		{"owner after early hints", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			stage(hello).ServeHTTP(w, r)
		}, "", 103, ""},
		{"body like a response", largeBody, "new-1", 200, string(likeResponse())},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, serve(t, newServer(tt.h)))
			version := "1.1"
			if strings.HasSuffix(tt.name, "HTTP/1.0") {
				version = "1.0"
			}
			c.send("GET / HTTP/" + version + "\r\nHost: a\r\n\r\n")
			r := c.next("GET")
			if r.StatusCode == 103 && tt.status == 103 {
				if idLine.MatchString(r.head) {
					t.Errorf("an id that nobody owns in %q", r.head)
				}
				if id := c.next("GET").id(t); !strings.HasSuffix(id, "-1") {
					t.Errorf("got id %q on the final head", id)
				}
				return
			}
			if r.StatusCode != tt.status || r.id(t) != tt.id || r.body != tt.body {
				t.Errorf("got %d, id %q, %d bytes; want %d, %q, %d bytes", r.StatusCode, r.id(t), len(r.body), tt.status, tt.id, len(tt.body))
			}
		})
	}
}

// TestOwnedResponseIsNotTouched, even if it has no id and looks like net/http's.
func TestOwnedResponseIsNotTouched(t *testing.T) {
	c := dial(t, serve(t, newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rawconn.Own(r.Context(), "own")
		w.Header()["Date"] = nil
		w.Header().Set("Connection", "close")
		w.WriteHeader(417)
	}))))
	c.send(getRequest)
	want := "HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	if got := c.all(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOwnerOfOneRequest: the next request on the connection is not his.
func TestOwnerOfOneRequest(t *testing.T) {
	c := dial(t, serve(t, newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/owned" {
			rawconn.Own(r.Context(), "own")
			w.Header().Set(field, "own")
		}
		hello(w, r)
	}))))
	for _, tt := range []struct{ path, id string }{{"/owned", "own"}, {"/", "new-1"}, {"/owned", "own"}, {"/", "new-2"}} {
		c.send("GET " + tt.path + " HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := c.next("GET").id(t); got != tt.id {
			t.Errorf("%s: got id %q, want %q", tt.path, got, tt.id)
		}
	}
}

// TestStates has the turns that net/http does not take over TCP. Each row is
// what a connection sees, in order: an owner, a state of net/http, or a write.
func TestStates(t *testing.T) {
	const head, line = "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nSvc-Request-Id: new-1\r\n\r\n"
	type own string
	tests := []struct {
		name   string
		events []any
		want   string
	}{
		{"answer twice", []any{inner, inner}, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: 35\r\n" +
			"Connection: close\r\nSvc-Request-Id: new-1\r\n\r\n" + `{"status":400,"request_id":"new-1"}` + inner},
		{"idle before any answer is HTTP/2", []any{http.StateIdle, head}, head},
		{"no HTTP at first", []any{"\x16\x03\x01", head}, "\x16\x03\x01" + head},
		{"idle after no HTTP", []any{"\x16\x03\x01", http.StateIdle, head}, "\x16\x03\x01" + head},
		{"two heads", []any{head, head}, line + head},
		{"owner after the head", []any{head, own("own"), http.StateHijacked, head}, line + head},
		{"owner after the hijack", []any{http.StateHijacked, own("own"), head}, line},
		{"idle after the hijack", []any{own("own"), http.StateHijacked, http.StateIdle, head, head}, strings.Replace(line, "new-1", "own", 1) + head},
		{"two owners", []any{own("first"), own("own"), http.StateHijacked, head}, strings.Replace(line, "new-1", "own", 1)},
		{"empty write", []any{"", head}, line},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := new(http.Server)
			conn := new(sink)
			c := accept(t, srv, conn)
			for _, e := range tt.events {
				switch e := e.(type) {
				case own:
					rawconn.Own(connContext(srv, c), string(e))
				case http.ConnState:
					srv.ConnState(c, e)
				case string:
					io.WriteString(c, e)
				}
			}
			if got := conn.out.String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
