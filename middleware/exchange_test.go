package middleware_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
)

// TestOneWriter: all stages of a request share one writer.
func TestOneWriter(t *testing.T) {
	ring := newKeyring()
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet()})
	var outer http.ResponseWriter
	h := middleware.Chain(g.RequestID, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outer = w
			next.ServeHTTP(w, r)
		})
	}, g.Recover, g.Authenticate, g.AnyKey)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w != outer {
			t.Errorf("got another writer, %T in place of %T", w, outer)
		}
	}))
	if res := serve(h, request("GET", "/", ring.issue(t), "")); res.StatusCode != 200 {
		t.Errorf("got %d", res.StatusCode)
	}
}

// TestForeignWriters: a stage of somebody else may stand outside ours or
// between two of ours, and nobody flushes past the commit.
func TestForeignWriters(t *testing.T) {
	foreign := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(unwrapper{w}, r) })
	}
	recovers := keyless().Recover
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clear(w.Header())
		io.WriteString(w, "half")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		panic("after flush")
	})
	flushOnly := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clear(w.Header())
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		panic("after flush")
	})
	for name, around := range map[string]func(http.Handler) http.Handler{
		"outside": middleware.Chain(foreign, stage(), recovers),
		"between": middleware.Chain(stage(), foreign, recovers),
		"inside":  middleware.Chain(stage(), recovers, foreign),
	} {
		for _, h := range []http.Handler{handler, flushOnly} {
			srv := start(t, around(h))
			res, err := srv.Client().Do(get(t, srv, "/", ""))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			wantID(t, res)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: the client has read %d %q to its end (%v), which was cut short", name, res.StatusCode, body, err)
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
		{"superfluous", protocols, superfluous, http.StatusAccepted, "http: superfluous response.WriteHeader call from " + module + "/middleware_test.superfluous (exchange_test.go:"},
		{"hijacked", protocols[:1], afterHijack, http.StatusNoContent, "http: response.WriteHeader on hijacked connection from " + module + "/middleware_test.afterHijack (exchange_test.go:"},
	} {
		for _, protocol := range tt.protos {
			ask := func(h http.Handler, token string) (int, string) {
				text, returned := newLogged(), make(chan struct{})
				waited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(returned)
					h.ServeHTTP(w, r)
				})
				srv, client := listen(t, protocol, waited, func(srv *httptest.Server) { srv.Config.ErrorLog = log.New(text, "", 0) })
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
			if !strings.HasPrefix(got, tt.message) || strings.Count(got, "\n") != 1 || ours.String() != "" {
				t.Errorf("%s, %s: got the server's log %q and ours %q", tt.name, protocol, got, ours)
			}
			if protocol == "HTTP/1.1" && got != bareLog {
				t.Errorf("%s: got %q, want net/http's own %q", tt.name, got, bareLog)
			}
		}
	}
}

func TestInvalidStatus(t *testing.T) {
	log := newLogged()
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(42) }, middleware.Options{Hooks: log.hooks()})
	srv := start(t, api)
	res := do(t, srv.Client(), get(t, srv, "/api/v1/x", token))
	if wantID(t, res.Response); res.StatusCode != 500 || !strings.Contains(log.String(), "invalid WriteHeader code 42") {
		t.Errorf("got %d and the log %s", res.StatusCode, log)
	}
}

// The hooks of an API are told of a response, whatever hooks an outer Guard
// has.
func TestObserveBehindOuterHooks(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for name, outer := range map[string]*middleware.Hooks{"none": nil, "a logger": quiet()} {
		events := 0
		hooks := quiet()
		hooks.Observe = func(context.Context, middleware.Event) { events++ }
		api := testAPI(ring.keys, middleware.Options{Hooks: hooks})
		h := middleware.New(nil, middleware.Options{Hooks: outer}).RequestID(api)
		serve(h, request("GET", "/api/v1/any", token, ""))
		if events != 1 {
			t.Errorf("outer hooks with %s: got %d events, want 1", name, events)
		}
	}
}
