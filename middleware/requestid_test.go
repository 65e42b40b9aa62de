package middleware_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

// An Options.TrustRequestID that panics trusts nobody. The panic stands outside
// Recover, and net/http would log it with the key.
func TestTrustThatPanics(t *testing.T) {
	ring, token := oneKey(t)
	for _, pieces := range []bool{false, true} {
		log := newLogged()
		o := middleware.Options{Hooks: log.hooks(),
			TrustRequestID: func(r *http.Request) bool { panic(r.Header) }}
		g := middleware.New(ring.keys, o)
		h := middleware.Chain(g.RequestID, g.Recover, anyCaller(g))(http.HandlerFunc(sayOK))
		if !pieces {
			h = testAPI(ring.keys, o)
		}
		res := serve(h, request("GET", "/api/v1/any", token, "", "Svc-Request-Id: mine"))
		if res.StatusCode != 200 || wantID(t, res.Response) == "mine" {
			t.Errorf("pieces %t: got %d with %v", pieces, res.StatusCode, res.Header)
		}
		if text := log.String(); !strings.Contains(text, "panic while serving") || strings.Contains(text, token) {
			t.Errorf("pieces %t: got the log %s", pieces, text)
		}
	}
}

// TestRequestIDCannotBeChanged has a row for each way in which a handler can
// touch the header.
func TestRequestIDCannotBeChanged(t *testing.T) {
	tests := []struct {
		name   string
		change func(http.Header)
	}{
		{"nothing", func(h http.Header) {}},
		{"Del", func(h http.Header) { h.Del(idHeader) }},
		{"nil", func(h http.Header) { h[idHeader] = nil }},
		{"clear", func(h http.Header) { clear(h) }},
		{"Set", func(h http.Header) { h.Set(idHeader, "theirs") }},
		{"Add", func(h http.Header) { h.Add(idHeader, "theirs") }},
		{"lower case", func(h http.Header) { h["svc-request-id"] = []string{"theirs"} }},
		{"upper case alone", func(h http.Header) { h.Del(idHeader); h["SVC-REQUEST-ID"] = []string{"theirs"} }},
		{"line break", func(h http.Header) { h.Set(idHeader, "theirs\r\nX: y") }},
		{"empty", func(h http.Header) { h.Set(idHeader, "") }},
		{"in the slice", func(h http.Header) { h[idHeader][0] = "theirs" }},
	}
	ways := []struct {
		name  string
		write func(w http.ResponseWriter)
	}{
		{"return", func(w http.ResponseWriter) {}},
		{"WriteHeader", func(w http.ResponseWriter) { w.WriteHeader(202) }},
		{"Write", func(w http.ResponseWriter) { w.Write([]byte("x")) }},
		{"WriteString", func(w http.ResponseWriter) { io.WriteString(w, "x") }},
		{"io.Copy", func(w http.ResponseWriter) { io.Copy(w, io.LimitReader(strings.NewReader("x"), 1)) }},
		{"Flush", func(w http.ResponseWriter) { w.(http.Flusher).Flush() }},
		{"FlushError", func(w http.ResponseWriter) { http.NewResponseController(w).Flush() }},
		{"early hints", func(w http.ResponseWriter) { w.WriteHeader(103); w.Write([]byte("x")) }},
	}
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		srv := serve(stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var change, way int
			fmt.Sscanf(r.URL.Path, "/%d/%d", &change, &way)
			tests[change].change(w.Header())
			w.Header().Set("Inside", middleware.RequestIDFrom(r.Context()))
			ways[way].write(w)
		})))
		for i, tt := range tests {
			for j, way := range ways {
				res := do(t, srv.Client(), get(t, srv, fmt.Sprintf("/%d/%d", i, j), ""))
				if id := wantID(t, res.Response); id != res.Header.Get("Inside") {
					t.Errorf("%s, then %s: got id %q, want that of the context, %q", tt.name, way.name, id, res.Header.Get("Inside"))
				}
			}
		}
	})
}

// interim gathers the informational responses to a request.
type interim struct {
	mu    sync.Mutex
	heads []*http.Response
}

func (i *interim) trace(r *http.Request) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.heads = append(i.heads, &http.Response{StatusCode: code, Header: http.Header(header)})
			return nil
		},
	}))
}

func TestRequestIDOfInterimResponses(t *testing.T) {
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		srv := serve(stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a>")
			w.WriteHeader(103)
			w.Header().Del(idHeader)
			w.WriteHeader(103)
			w.Header().Set(idHeader, "theirs")
			w.WriteHeader(201)
		})))
		var seen interim
		res := do(t, srv.Client(), seen.trace(get(t, srv, "/", "")))
		id := wantID(t, res.Response)
		if res.StatusCode != 201 || len(seen.heads) != 2 {
			t.Fatalf("got %d after %d interim responses, want 201 after 2", res.StatusCode, len(seen.heads))
		}
		for _, head := range seen.heads {
			if got := wantID(t, head); head.StatusCode != 103 || got != id {
				t.Errorf("interim %d: got id %q, want 103 with %q", head.StatusCode, got, id)
			}
		}
	})
}

// TestRequestIDBehindReverseProxy: the upstream's id, and its interim
// responses, which make httputil.ReverseProxy clear the header map, change
// nothing.
func TestRequestIDBehindReverseProxy(t *testing.T) {
	upstream := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(idHeader, "upstream")
		if r.URL.Path == "/hints" {
			w.WriteHeader(103)
		}
		if r.URL.Path == "/trailer" {
			w.Header().Set("Trailer", "Sum")
			defer w.Header().Set("Sum", "1")
		}
		io.WriteString(w, "from upstream")
	}))
	target, _ := url.Parse(upstream.URL)
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		srv := serve(middleware.Chain(stage(), keyless().Recover)(proxy))
		for path, interims := range map[string]int{"/": 0, "/hints": 1, "/trailer": 0} {
			var seen interim
			res := do(t, srv.Client(), seen.trace(get(t, srv, path, "")))
			id := wantID(t, res.Response)
			if res.body != "from upstream" || len(seen.heads) != interims {
				t.Errorf("%s: got %q after %d interim responses", path, res.body, len(seen.heads))
			}
			for _, head := range seen.heads {
				if got := wantID(t, head); got != id {
					t.Errorf("%s: interim id %q, final id %q", path, got, id)
				}
			}
			if path == "/trailer" && res.Trailer.Get("Sum") != "1" {
				t.Errorf("trailer lost: got %q", res.Trailer)
			}
		}
	})
}

var acceptable = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// hostileIDs are values that a request can bring along; net/http lets all of
// them through.
var hostileIDs = []struct {
	name   string
	values []string
	kept   bool // when trusted
}{
	{"good", []string{"Req_1.a-b"}, true},
	{"longest", []string{strings.Repeat("a", 64)}, true},
	{"too long", []string{strings.Repeat("a", 65)}, false},
	{"100 KB", []string{strings.Repeat("a", 100<<10)}, false},
	{"not ASCII", []string{"é"}, false},
	{"not UTF-8", []string{"\xff\xfe"}, false},
	{"script", []string{"<script>"}, false},
	{"tab", []string{"a\tb"}, false},
	{"comma", []string{"a,b"}, false},
	{"other characters of a token", []string{"a!#$%&'*+^`|~b"}, false},
	{"one of them", []string{"a!b"}, false},
	{"space", []string{"a b"}, false},
	{"two", []string{"a", "a"}, false},
	{"empty", []string{""}, false},
}

func TestRequestIDFromOutside(t *testing.T) {
	trusting := middleware.New(nil, middleware.Options{
		TrustRequestID: func(r *http.Request) bool { return r.Header.Get("Proxy") != "" },
	})
	h := trusting.RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, middleware.RequestIDFrom(r.Context()))
	}))
	plain := stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, middleware.RequestIDFrom(r.Context()))
	}))
	servers := []struct {
		name    string
		srv     *httptest.Server
		trusted bool
	}{
		{"nobody trusted", start(t, plain), false},
		{"peer not trusted", start(t, h), false},
		{"peer trusted", start(t, h), true},
	}
	for _, s := range servers {
		for _, tt := range hostileIDs {
			c := dial(t, s.srv)
			lines := ""
			for _, v := range tt.values {
				lines += "svc-request-id: " + v + "\r\n"
			}
			if s.trusted {
				lines += "Proxy: 1\r\n"
			}
			c.send("GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n")
			res := c.next("GET")
			if s.trusted && tt.kept {
				if got := res.Header.Values(idHeader); len(got) != 1 || got[0] != tt.values[0] || res.body != tt.values[0] {
					t.Errorf("%s, %s: got %q and %q in the context, want it kept", s.name, tt.name, got, res.body)
				}
				continue
			}
			if id := wantID(t, res.Response); id != res.body {
				t.Errorf("%s, %s: got %q, in the context %q", s.name, tt.name, id, res.body)
			}
		}
	}
}

// TestRequestIDIsKept: an id that a handler keeps holds nothing else of the
// request in memory.
func TestRequestIDIsKept(t *testing.T) {
	var id string
	gone := make(chan struct{})
	func() {
		w := httptest.NewRecorder()
		runtime.AddCleanup(w, func(struct{}) { close(gone) }, struct{}{})
		stage()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			id = middleware.RequestIDFrom(r.Context())
		})).ServeHTTP(w, request("GET", "/", "", ""))
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Errorf("the response is in memory as long as its id %s", id)
}

func FuzzRequestIDFromOutside(f *testing.F) {
	for _, tt := range hostileIDs {
		f.Add(tt.values[0])
	}
	trusting := middleware.New(nil, middleware.Options{
		TrustRequestID: func(*http.Request) bool { return true },
	})
	h := trusting.RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	f.Fuzz(func(t *testing.T, id string) {
		r := request("GET", "/", "", "")
		r.Header[idHeader] = []string{id}
		got := serve(h, r).Header.Values(idHeader)
		switch {
		case len(got) != 1 || !acceptable.MatchString(got[0]):
			t.Errorf("got %q for %q", got, id)
		case acceptable.MatchString(id) != (got[0] == id):
			t.Errorf("got %q for %q, whose form is right: %v", got, id, acceptable.MatchString(id))
		}
	})
}

func TestRequestIDHeaderOfChoice(t *testing.T) {
	for given, want := range map[string]string{"": idHeader, "x-request-id": "X-Request-Id", "Acme-Id": "Acme-Id"} {
		h := named(given).RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()[strings.ToLower(want)] = []string{"theirs"}
		}))
		res := serve(h, request("GET", "/", "", ""))
		if got := res.Header.Values(want); len(got) != 1 || len(got[0]) != 20 {
			t.Errorf("Header %q: got %q in %s", given, got, want)
		}
	}
	for _, bad := range []string{"a b", "a:", "é", "a\r\n"} {
		wantPanic(t, "not a header field name", func() { named(bad) })
	}
}

// TestRequestIDTwice: the inner one does nothing, so that an API may stand
// behind a RequestID of the whole server.
func TestRequestIDTwice(t *testing.T) {
	inner := named("Other-Id").RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, middleware.RequestIDFrom(r.Context()))
	}))
	res := serve(stage()(inner), request("GET", "/", "", ""))
	if id := wantID(t, res.Response); id != res.body || res.Header["Other-Id"] != nil {
		t.Errorf("got %q, in the context %q, Other-Id %q", id, res.body, res.Header["Other-Id"])
	}
}

// TestRequestIDOutsideEverything: what stands outside the stage answers without
// the header, which is why the stage has to be the outermost.
func TestRequestIDOutsideEverything(t *testing.T) {
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for _, tt := range []struct {
		name string
		h    http.Handler
		ids  int
	}{
		{"timeout inside", stage()(http.TimeoutHandler(slow, time.Millisecond, "late")), 1},
		{"timeout outside", http.TimeoutHandler(stage()(slow), time.Millisecond, "late"), 0},
	} {
		res := do(t, http.DefaultClient, get(t, start(t, tt.h), "/", ""))
		if got := res.Header.Values(idHeader); res.StatusCode != 503 || len(got) != tt.ids {
			t.Errorf("%s: got %d with %q, want 503 with %d", tt.name, res.StatusCode, got, tt.ids)
		}
	}
}

// TestRequestIDAllOverUnderLoad mixes what the other tests do one by one.
func TestRequestIDAllOverUnderLoad(t *testing.T) {
	log := newLogged()
	ring, token := oneKey(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: log.hooks()})
	handlers := map[string]http.HandlerFunc{
		"ok":    sayOK,
		"json":  func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(r.Header) },
		"clear": func(w http.ResponseWriter, r *http.Request) { clear(w.Header()) },
		"flush": func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); sayOK(w, r) },
		"panic": func(w http.ResponseWriter, r *http.Request) { panic("now") },
		"hints": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(103); w.WriteHeader(204) },
		"problem": func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 418})
		},
	}
	paths := []string{"/api/v1/none", "/api/v1/ok/", "/elsewhere"}
	for name, h := range handlers {
		api.HandleFunc("GET /api/v1/"+name, middleware.AnyCaller(), h)
		paths = append(paths, "/api/v1/"+name)
	}
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		srv := serve(api)
		srv.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 64
		var mu sync.Mutex
		ids := map[string]bool{}
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for j, path := range paths {
					key := token
					if (i+j)%5 == 0 {
						key = ""
					}
					r := get(t, srv, path, key)
					res, err := srv.Client().Do(r)
					if err != nil {
						t.Errorf("%s: %v", path, err)
						continue
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
					id := wantID(t, res)
					mu.Lock()
					if ids[id] {
						t.Errorf("%s: id %q came twice", path, id)
					}
					ids[id] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	})
}

func TestNoOtherIDInTrailers(t *testing.T) {
	for _, protocol := range []string{"h1", "h2"} {
		for _, line := range []string{"X-Nothing: 1", "Idempotency-Key: 1"} {
			for name, trail := range map[string]func(http.Header){
				"prefix": func(h http.Header) { h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed") },
				"another header vanished": func(h http.Header) {
					delete(h, "X-Early")
					h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed")
				},
				"another header vanished, lower case": func(h http.Header) {
					delete(h, "X-Early")
					h[http.TrailerPrefix+"svc-request-id"] = []string{"spoofed"}
				},
				"declared": func(h http.Header) { h.Set("Svc-Request-Id", "spoofed") },
				"kept, long": func(h http.Header) {
					delete(h, "X-Early")
					h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed")
				},
				"kept, flushed": func(h http.Header) {
					delete(h, "X-Early")
					h[http.TrailerPrefix+"svc-request-id"] = []string{"spoofed"}
				},
				"kept, declares another, no length": func(h http.Header) {
					h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed")
				},
				"kept, no length": func(h http.Header) { h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed") },
				"no length": func(h http.Header) {
					delete(h, "X-Early")
					h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed")
				},
				"kept, encoded": func(h http.Header) {
					delete(h, "X-Early")
					h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed")
				},
				"kept, empty length": func(h http.Header) {
					delete(h, "X-Early")
					h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed")
				},
				"kept, too large a length": func(h http.Header) {
					h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed")
				},
				"no length, long": func(h http.Header) { h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed") },
			} {
				ring := newKeyring()
				idempotency := middleware.IdempotencyOptions{Runner: replies()}
				api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: idempotency})
				api.HandleFunc("POST /api/v1/x", middleware.AnyCaller(), func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Early", "1")
					h, has := w.Header(), func(part string) bool { return strings.Contains(name, part) }
					switch {
					case has("declares another"):
						h.Set("Trailer", "Sum")
					case has("declared"):
						h.Set("Trailer", "Svc-Request-Id")
					}
					switch {
					case has("no length"):
						h.Set("Content-Length", "bad") // which net/http removes
					case has("empty length"):
						h["Content-Length"] = []string{}
					case has("too large a length"):
						h.Set("Content-Length", "9999999999999999999")
					case has("encoded"):
						h.Set("Transfer-Encoding", "chunked")
					}
					_, _ = io.WriteString(w, "body")
					if has("long") {
						_, _ = w.Write(make([]byte, 8<<10))
					}
					if has("flushed") {
						_ = http.NewResponseController(w).Flush()
					}
					if !has("kept") {
						h = w.Header()
					}
					trail(h)
				})
				srv := httptest.NewUnstartedServer(api)
				srv.EnableHTTP2 = protocol == "h2"
				srv.StartTLS()
				got := do(t, srv.Client(), request("POST", srv.URL+"/api/v1/x", ring.issue(t), "{}", line))
				srv.Close()
				ids := got.Header["Svc-Request-Id"]
				if len(ids) != 1 {
					t.Fatalf("%s, %s, %s: got ids %q", protocol, line, name, ids)
				}
				for _, id := range got.Trailer["Svc-Request-Id"] {
					if id != ids[0] {
						t.Errorf("%s, %s, %s: the trailer has id %q, the header %q", protocol, line, name, id, ids[0])
					}
				}
			}
		}
	}
}
