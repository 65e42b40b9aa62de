package middleware_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

// TestPanics has a row for each moment at which a handler can panic. A client
// that reads an answer to its end must have got the whole truth.
func TestPanics(t *testing.T) {
	boom := func() { panic("boom") }
	tests := []struct {
		name   string
		h      http.HandlerFunc
		status int // 0: no response
		whole  bool
		logs   int
	}{
		{"before anything", func(w http.ResponseWriter, r *http.Request) { boom() }, 500, true, 1},
		{"after headers", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "3")
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Etag", `"1"`)
			boom()
		}, 500, true, 1},
		{"after early hints", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(103); boom() }, 500, true, 1},
		{"after a copy of nothing", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, strings.NewReader("")); boom() }, 500, true, 1},
		{"after a copy that failed", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, iotest.ErrReader(io.ErrUnexpectedEOF))
			boom()
		}, 500, true, 1},
		{"while copying", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, readerFunc(func([]byte) (int, error) { panic("boom") }))
		}, 500, true, 1},
		{"after WriteHeader", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201); boom() }, 0, false, 1},
		{"after half", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "half"); boom() }, 0, false, 1},
		{"after flush", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			boom()
		}, 200, false, 1},
		{"after flush of a length", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "8")
			io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			boom()
		}, 200, false, 1},
		{"ErrAbortHandler", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, 0, false, 0},
		{"ErrAbortHandler after flush", func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, 200, false, 0},
		{"wrapped ErrAbortHandler", func(w http.ResponseWriter, r *http.Request) { panic(fmt.Errorf("wrapped: %w", http.ErrAbortHandler)) }, 500, true, 1},
		{"nil", func(w http.ResponseWriter, r *http.Request) { panic(nil) }, 500, true, 1},
		{"invalid status", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(42) }, 500, true, 1},
		{"within TimeoutHandler", http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { boom() }), hangs, "late").ServeHTTP, 500, true, 1},
	}
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for _, tt := range tests {
			log := newLogged()
			api, token := oneRoute(t, tt.h, middleware.Options{Hooks: log.hooks()})
			srv := serve(api)
			res, err := srv.Client().Do(get(t, srv, "/api/v1/x", token))
			if err != nil {
				if tt.status != 0 {
					t.Errorf("%s: %v, want %d", tt.name, err, tt.status)
				}
			} else {
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				id := wantID(t, res)
				if res.StatusCode != tt.status || (err == nil) != tt.whole {
					t.Errorf("%s: got %d %q to the end (%v), want %d, whole: %v", tt.name, res.StatusCode, body, err, tt.status, tt.whole)
				}
				if tt.whole {
					p := answer{res, string(body)}.problem(t)
					if p.Code != "internal" || p.RequestID != id || !strings.Contains(log.String(), "request_id="+id) {
						t.Errorf("%s: got %+v with id %s and the log %s", tt.name, p, id, log)
					}
					if res.Header.Get("Content-Encoding") != "" || res.Header.Get("Etag") != "" {
						t.Errorf("%s: headers of the response that was not sent are left: %v", tt.name, res.Header)
					}
				}
			}
			srv.Close() // after which all is logged
			if got := strings.Count(log.String(), "\n"); got != tt.logs {
				t.Errorf("%s: got %d log lines, want %d: %s", tt.name, got, tt.logs, log)
			}
		}
	})
}

// TestPanicKeepsTheConnection: a 500 does not cost the client its connection,
// and what stages outside had set is still there.
func TestPanicKeepsTheConnection(t *testing.T) {
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Vary", "Origin")
			next.ServeHTTP(w, r)
		})
	}
	h := middleware.Chain(stage(), outer, keyless().Recover)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Cookie")
		w.Header().Set("Inside", "1")
		panic("boom")
	}))
	c := dial(t, start(t, h))
	seen := map[string]bool{}
	for range 3 {
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		res := c.next("GET")
		id := wantID(t, res.Response)
		if res.StatusCode != 500 || res.Close || seen[id] {
			t.Errorf("got %d, close %v, id %q", res.StatusCode, res.Close, id)
		}
		if got := res.Header; got.Get("Vary") != "Origin" || got.Get("Inside") != "" || got.Get("Cache-Control") != "no-store" {
			t.Errorf("got %v, want the outer header alone", got)
		}
		seen[id] = true
	}
}

// TestPanicInAnAPIKeepsOuterHeaders: the 500 of an API has what stages outside
// had set, as they had set it, with and without a RequestID outside.
func TestPanicInAnAPIKeepsOuterHeaders(t *testing.T) {
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Vary"][0] = "changed in place"
		w.Header().Del("Strict-Transport-Security")
		w.Header().Set("Inside", "1")
		panic("boom")
	}, middleware.Options{Hooks: quiet()})
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Strict-Transport-Security", "max-age=1")
		api.ServeHTTP(w, r)
	})
	for name, h := range map[string]http.Handler{"outside": outer, "inside RequestID": stage()(outer), "behind a foreign writer": foreignWriter(outer)} {
		a := serve(h, request("GET", "/api/v1/x", token, ""))
		if got := a.Header; a.StatusCode != 500 || got.Get("Vary") != "Origin" || got.Get("Strict-Transport-Security") != "max-age=1" || got.Get("Inside") != "" {
			t.Errorf("%s: got %d with %v, want the outer header alone", name, a.StatusCode, got)
		}
		wantID(t, a.Response)
	}
}

// foreignWriter puts h behind a writer without any optional interface.
func foreignWriter(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	})
}

// TestTimeoutHandlerInside: http.TimeoutHandler belongs inside; its own 503 has
// the id too.
func TestTimeoutHandlerInside(t *testing.T) {
	api, token := oneRoute(t, http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}), time.Millisecond, "late").ServeHTTP, middleware.Options{Hooks: quiet()})
	srv := start(t, api)
	res := do(t, srv.Client(), get(t, srv, "/api/v1/x", token))
	if wantID(t, res.Response); res.StatusCode != 503 || res.body != "late" {
		t.Errorf("got %d %q", res.StatusCode, res.body)
	}
}

// TestPanicOnOneStream: the other streams of an HTTP/2 connection go on.
func TestPanicOnOneStream(t *testing.T) {
	var all sync.WaitGroup
	all.Add(20)
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		all.Done()
		all.Wait()
		if r.Header.Get("Panic") != "" {
			panic("boom")
		}
		sayOK(w, r)
	}, middleware.Options{Hooks: quiet()})
	srv := startTLS(t, api)
	var wg sync.WaitGroup
	for i := range 20 {
		r := get(t, srv, "/api/v1/x", token)
		want := 200
		if i%2 == 0 {
			r.Header.Set("Panic", "1")
			want = 500
		}
		wg.Go(func() {
			res, err := srv.Client().Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if wantID(t, res); res.StatusCode != want {
				t.Errorf("got %d, want %d", res.StatusCode, want)
			}
		})
	}
	wg.Wait()
}

// TestRecoverAlone: it works in any order, and without RequestID it adds one.
func TestRecoverAlone(t *testing.T) {
	log := newLogged()
	g := middleware.New(nil, middleware.Options{Hooks: log.hooks()})
	h := g.Recover(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		panic(errors.New("boom"))
	}))
	srv := start(t, h)
	res := do(t, srv.Client(), get(t, srv, "/", ""))
	if p := res.problem(t); res.StatusCode != 500 || p.Code != "internal" || p.RequestID == "" || p.RequestID != res.Header.Get("Svc-Request-Id") || strings.Contains(res.body, "boom") {
		t.Errorf("got %d %s", res.StatusCode, res.body)
	}
	if got := log.String(); !strings.Contains(got, "panic=boom") || !strings.Contains(got, "recover_test.go") {
		t.Errorf("the log has no panic with its stack: %s", got)
	}

	h = middleware.Chain(g.Recover, stage())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		panic("outside the id")
	}))
	srv = start(t, h)
	res = do(t, srv.Client(), get(t, srv, "/", ""))
	if res.StatusCode != 500 || res.problem(t).RequestID != wantID(t, res.Response) {
		t.Errorf("Recover outside RequestID: got %d %s", res.StatusCode, res.body)
	}
}

// TestPanicShowsNoKey: the log of a panic has no part of the request's key, in
// whatever form the handler had it.
func TestPanicShowsNoKey(t *testing.T) {
	inJSON := func(v any) string {
		text, _ := json.Marshal(v)
		return string(text)
	}
	tests := map[string]func(token string) any{
		"text":                   func(s string) any { return "bad token " + s },
		"quoted":                 func(s string) any { return fmt.Sprintf("%q", s) },
		"error":                  func(s string) any { return fmt.Errorf("parse %q", s) },
		"capitals":               func(s string) any { return strings.ToUpper(s) },
		"lower case":             func(s string) any { return strings.ToLower(s) },
		"without prefix":         func(s string) any { return s[len("svc_live_"):] },
		"without prefix, bytes":  func(s string) any { return []byte(s[len("svc_live_"):]) },
		"bytes":                  func(s string) any { return []byte(s) },
		"bytes in a struct":      func(s string) any { return struct{ B []byte }{[]byte(s + " and more")} },
		"bytes, %#v":             func(s string) any { return fmt.Sprintf("%#v", []byte(s)) },
		"longer, %#v":            func(s string) any { return fmt.Sprintf("%#v", []byte("Bearer "+s+" and more")) },
		"bytes, %x":              func(s string) any { return fmt.Sprintf("%x", s) },
		"bytes, %X":              func(s string) any { return fmt.Sprintf("%X", s) },
		"bytes, % x":             func(s string) any { return fmt.Sprintf("% x", s) },
		"JSON":                   func(s string) any { return inJSON(s) },
		"JSON, bytes":            func(s string) any { return inJSON([]byte(s)) },
		"JSON, the header":       func(s string) any { return inJSON([]byte("Bearer " + s)) },
		"JSON, a longer text":    func(s string) any { return inJSON([]byte("token=" + s + "&more")) },
		"JSON, without prefix":   func(s string) any { return inJSON([]byte(s[len("svc_live_"):])) },
		"base64 of URLs":         func(s string) any { return base64.URLEncoding.EncodeToString([]byte("1234" + s + "?>")) },
		"cut off":                func(s string) any { return fmt.Sprintf("%.40s", s) },
		"cut off, bytes":         func(s string) any { return fmt.Sprintf("% x", s[:17]) },
		"cut off at the front":   func(s string) any { return s[len(s)-8:] },
		"a wrapped bytes.Buffer": func(s string) any { return *bytes.NewBufferString(s) },
	}
	var value any
	boom := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic(value) })
	log := newLogged()
	ring := newKeyring()
	token := ring.issue(t)
	o := middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}}
	api := middleware.NewAPI(ring.keys, o)
	api.Handle("POST /api/v1/x", middleware.AnyKey(), boom)
	g := middleware.New(ring.keys, o)
	chains := map[string]http.Handler{
		"API": api, "pieces": middleware.Chain(g.RequestID, g.Recover, g.Authenticate)(boom), "Recover alone": g.Recover(boom),
		"Recover inside a foreign writer": middleware.Chain(g.RequestID, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
			})
		}, g.Recover, g.Authenticate)(boom),
	}
	random := token[len("svc_live_"):]
	for name, secret := range tests {
		value = secret(token)
		for chain, h := range chains {
			for _, key := range []string{"", name} {
				if key != "" && chain != "API" {
					continue
				}
				before := len(log.String())
				r := request("POST", "/api/v1/x", token, "{}")
				if key != "" {
					r.Header.Set("Idempotency-Key", key)
				}
				if res := serve(h, r); res.StatusCode != 500 {
					t.Fatalf("%s, %s: got %d %s", name, chain, res.StatusCode, res.body)
				}
				line := strings.ToLower(log.String()[before:])
				if !strings.Contains(line, "[secret]") || !strings.Contains(line, "recover_test.go") {
					t.Errorf("%s, %s: nothing was left out of the log: %s", name, chain, line)
				}
				for i := range len(random) - 8 {
					part := []byte(random[i : i+8])
					decimal := strings.Trim(fmt.Sprint(part), "[]")
					source := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", part), "[]byte{"), "}")
					for _, form := range []string{string(part), decimal, source, fmt.Sprintf("%x", part), fmt.Sprintf("% x", part), base64.RawStdEncoding.EncodeToString(part)[:10]} {
						if strings.Contains(line, strings.ToLower(form)) {
							t.Fatalf("%s, %s: the log has %q of the key: %s", name, chain, form, line)
						}
					}
				}
			}
		}
	}
}

// TestPanicShowsNoCookie: the values of cookies are secrets, their names are
// not.
func TestPanicShowsNoCookie(t *testing.T) {
	const session = "c2Vzc2lvbi1vZi1hZGE"
	for name, value := range map[string]func(*http.Request) any{
		"the request": func(r *http.Request) any { return r.Header },
		"a cookie":    func(r *http.Request) any { c, _ := r.Cookie("session"); return c },
		"its value":   func(r *http.Request) any { c, _ := r.Cookie("session"); return c.Value },
		"a part":      func(r *http.Request) any { c, _ := r.Cookie("session"); return c.Value[:12] },
		"its bytes":   func(r *http.Request) any { c, _ := r.Cookie("session"); return []byte(c.Value) },
	} {
		log := newLogged()
		h := middleware.New(nil, middleware.Options{Hooks: log.hooks()}).Recover(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			panic(fmt.Sprintf("no session= for %+v", value(r)))
		}))
		serve(h, request("GET", "/", "", "", "Cookie: theme=dark; session="+session))
		if got := log.String(); strings.Contains(got, session[:8]) || strings.Contains(got, fmt.Sprint([]byte(session[:8]))[1:20]) || !strings.Contains(got, "[secret]") || !strings.Contains(got, "no session= for") {
			t.Errorf("%s: got the log %s", name, got)
		}
	}
}

// TestPanicStack: the stack has no arguments, which may be bytes of a secret,
// and no client can have it left out.
func TestPanicStack(t *testing.T) {
	log := newLogged()
	h := middleware.New(nil, middleware.Options{Hooks: log.hooks()}).Recover(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed([16]byte([]byte(r.Header.Get("Authorization")[7:])))
	}))
	for _, cookie := range []string{"a=b", "a=recover_test.go; b=goroutine", "a=" + strings.Repeat("x", 1<<20)} {
		before := len(log.String())
		serve(h, request("GET", "/", "0123456789abcdef", "", "Cookie: "+cookie))
		got := log.String()[before:]
		if !strings.Contains(got, "middleware_test.passed(...)") || !strings.Contains(got, "recover_test.go:") || strings.Contains(got, "0x31, 0x32") || strings.Contains(got, "boom of 48") {
			t.Errorf("Cookie of %d bytes: got %s", len(cookie), got)
		}
		if long := len(cookie) > 1<<20; strings.Contains(got, "string: [left out") != long || strings.Contains(got, "boom") == long {
			t.Errorf("Cookie of %d bytes: got %s", len(cookie), got)
		}
	}
}

//go:noinline
func passed(b [16]byte) { panic("boom of " + fmt.Sprint(b[:8])) }
