package middleware_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

// TestForeignWriters: a stage of somebody else may stand outside ours or
// between two of ours, and nobody flushes past the commit.
func TestForeignWriters(t *testing.T) {
	recovers := keyless().Recover
	for name, around := range map[string]func(http.Handler) http.Handler{
		"outside": middleware.Chain(unwrapping, stage(), recovers),
		"between": middleware.Chain(stage(), unwrapping, recovers),
		"inside":  middleware.Chain(stage(), recovers, unwrapping),
	} {
		for _, h := range []http.Handler{steps("half", "flush", "panic"), steps("flush", "panic")} {
			srv := start(t, around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				clear(w.Header())
				h.ServeHTTP(w, r)
			})))
			got, head := outcomeOf(t, srv.Client(), get(t, srv, "/", ""))
			if wantID(t, &http.Response{Header: head}); got.status != 0 {
				t.Errorf("%s: the client has read %v to its end, which was cut short", name, got)
			}
		}
	}
}

func superfluous(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusAccepted)
	http.Error(w, "second", http.StatusTeapot)
}

func afterHijack(w http.ResponseWriter, r *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	conn.Close()
	w.WriteHeader(http.StatusTeapot)
}

// TestSuperfluousWriteHeader: the first status counts. The server's log has the
// line that it has without the stages: the call that was wrong is the
// handler's.
func TestSuperfluousWriteHeader(t *testing.T) {
	for _, tt := range []struct {
		name    string
		protos  []string
		h       http.HandlerFunc
		status  int
		message string
	}{
		{"superfluous", protocols, superfluous, http.StatusAccepted,
			"superfluous response.WriteHeader call from MODULE.superfluous (exchange_test.go:"},
		{"hijacked", protocols[:1], afterHijack, http.StatusNoContent,
			"response.WriteHeader on hijacked connection from MODULE.afterHijack (exchange_test.go:"},
	} {
		for _, protocol := range tt.protos {
			ask := func(h http.Handler, token string) (int, string) {
				text, returned := newLogged(), make(chan struct{})
				waited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(returned)
					h.ServeHTTP(w, r)
				})
				srv, client := listen(t, protocol, waited,
					func(srv *httptest.Server) { srv.Config.ErrorLog = log.New(text, "", 0) })
				res := do(t, client, get(t, srv, "/api/v1/x", token))
				<-returned
				return res.StatusCode, text.String()
			}
			ours := newLogged()
			api, token := oneRoute(t, tt.h, middleware.Options{Hooks: ours.hooks()})
			bareStatus, bareLog := ask(tt.h, "")
			status, got := ask(api, token)
			if status != tt.status || bareStatus != tt.status {
				t.Errorf("%s, %s: got %d, without stages %d, want %d", tt.name, protocol, status, bareStatus, tt.status)
			}
			message := "http: " + strings.Replace(tt.message, "MODULE", module+"/middleware_test", 1)
			if !strings.HasPrefix(got, message) || strings.Count(got, "\n") != 1 || ours.String() != "" {
				t.Errorf("%s, %s: got the server's log %q and ours %q", tt.name, protocol, got, ours)
			}
			if protocol == "HTTP/1.1" && got != bareLog {
				t.Errorf("%s: got %q, want net/http's own %q", tt.name, got, bareLog)
			}
		}
	}
}

// TestUpgrade takes the connection over as the two best-known WebSocket
// libraries do: one writes its own head after the hijack, the other calls
// WriteHeader before.
func TestUpgrade(t *testing.T) {
	const head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
	ours, servers, left := newLogged(), newLogged(), make(chan struct{}, 8)
	watched := func(srv *httptest.Server) { srv.Config.ErrorLog = log.New(servers, "", 0) }
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade-Style") == "WriteHeader" {
			w.Header().Set("Upgrade", "echo")
			w.Header().Set("Connection", "Upgrade")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		if r.Header.Get("Upgrade-Style") == "own head" {
			io.WriteString(conn, head)
		}
		io.CopyN(conn, rw, 5)
		if r.Header.Get("Panic") != "" {
			panic("after hijack")
		}
		if _, err := w.Write([]byte("late")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("Write after Hijack: got %v, want %v", err, http.ErrHijacked)
		}
	}, middleware.Options{Hooks: ours.hooks()})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { left <- struct{}{} }()
		api.ServeHTTP(w, r)
	})
	for _, tt := range []struct {
		style string
		srv   *httptest.Server
		ids   int
	}{
		{"WriteHeader", start(t, h, watched), 1},
		{"WriteHeader", start(t, h, watched, withRequestIDs), 1},
		{"own head", start(t, h, watched), 0}, // nobody sees these bytes
		{"own head", start(t, h, watched, withRequestIDs), 1},
	} {
		for _, extra := range []string{"", "\r\nPanic: 1"} {
			c := dial(t, tt.srv)
			c.send(upgrade("echo\r\nUpgrade-Style: "+tt.style+extra, token))
			res := c.head("GET")
			if ids := res.Header.Values(idHeader); res.StatusCode != 101 || len(ids) != tt.ids {
				t.Errorf("%s: got %d with ids %q, want 101 with %d", tt.style, res.StatusCode, ids, tt.ids)
			}
			c.send("hello")
			if got := c.rest(); got != "hello" {
				t.Errorf("%s: got %q, want the echo alone", tt.style, got)
			}
		}
	}
	for range 8 {
		<-left
	}
	if got := ours.String(); strings.Contains(got, "superfluous") || strings.Count(got, `panic="after hijack"`) != 4 {
		t.Errorf("got the log %s", got)
	}
	if got := servers.String(); strings.Contains(got, "WriteHeader") { // of a 500 on a connection that is not ours
		t.Errorf("got the server's log %s", got)
	}
}

// TestProxiedUpgrade: httputil.ReverseProxy writes the upstream's head on the
// connection it has taken over, and that head has our id alone.
func TestProxiedUpgrade(t *testing.T) {
	upstream := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n"+
			idHeader+": upstream\r\n\r\n")
		io.CopyN(conn, rw, 5)
	}))
	target, _ := url.Parse(upstream.URL)
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	api, token := oneRoute(t, proxy.ServeHTTP, middleware.Options{Hooks: quiet()})
	for _, configure := range []func(*httptest.Server){func(*httptest.Server) {}, withRequestIDs} {
		c := dial(t, start(t, api, configure))
		c.send(upgrade("echo", token))
		if res := c.head("GET"); res.StatusCode != 101 || wantID(t, res) == "" {
			t.Errorf("got %d %v", res.StatusCode, res.Header)
		}
		c.send("hello")
		if got := c.rest(); got != "hello" {
			t.Errorf("got %q", got)
		}
	}
}

// TestSwitchingProtocols: over HTTP/1.1, 101 is final. Over HTTP/2 it is
// informational, and a final status follows.
func TestSwitchingProtocols(t *testing.T) {
	servers := newLogged()
	api, token := oneRoute(t, steps("101", "418"), middleware.Options{Hooks: quiet()})
	c := dial(t, start(t, api, func(srv *httptest.Server) { srv.Config.ErrorLog = log.New(servers, "", 0) }))
	c.send("GET /api/v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer " + token + "\r\n\r\n")
	if res := c.head("GET"); res.StatusCode != 101 || c.rest() != "" ||
		!strings.Contains(servers.String(), "superfluous response.WriteHeader call from") {
		t.Errorf("got %d and the log %q", res.StatusCode, servers)
	}
	srv := startTLS(t, api)
	wantAnswer(t, "over HTTP/2", do(t, srv.Client(), get(t, srv, "/api/v1/x", token)), 418)
}

// TestFullDuplex: without an Idempotency-Key a handler answers before it has the
// body, and its deadlines are the connection's.
func TestFullDuplex(t *testing.T) {
	overBoth(t, func(t *testing.T, protocol string) {
		api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
			c, word := http.NewResponseController(w), make([]byte, 4)
			err := errors.Join(c.EnableFullDuplex(), c.Flush())
			for range 2 {
				_, readErr := io.ReadFull(r.Body, word)
				_, writeErr := w.Write(word)
				err = errors.Join(err, readErr, writeErr, c.Flush())
			}
			if err = errors.Join(err, c.SetReadDeadline(time.Unix(1, 0))); err != nil {
				t.Error(err)
			}
			if _, err := r.Body.Read(word); err == nil {
				t.Error("read after the deadline")
			}
		}, middleware.Options{Hooks: quiet()})
		srv, client := listen(t, protocol, api)
		in, out := io.Pipe()
		defer out.Close()
		res, err := client.Do(newRequest(t, "PUT", srv.URL+"/api/v1/x", token, in))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		for _, word := range []string{"to  ", "fro "} {
			got := make([]byte, len(word))
			_, _ = io.WriteString(out, word)
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != word {
				t.Fatalf("echo of %q: %q, %v", word, got, err)
			}
		}
		_, _ = io.Copy(io.Discard, res.Body) // until the handler has returned
	})
}

// upgrade is a request to /api/v1/x for another protocol.
func upgrade(protocol, token string) string {
	return "GET /api/v1/x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: " + protocol +
		"\r\nAuthorization: Bearer " + token + "\r\n\r\n"
}
