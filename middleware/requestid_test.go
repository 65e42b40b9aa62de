package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

// An Options.TrustRequestID that panics trusts nobody. The panic stands outside
// Recover, and net/http would log it with the key.
func TestTrustThatPanics(t *testing.T) {
	ring, token := oneKey(t)
	for _, form := range []string{"API", "pieces"} {
		log := newLogged()
		o := middleware.Options{Hooks: log.hooks(), TrustRequestID: func(r *http.Request) bool { panic(r.Header) }}
		h := bothForms(ring.keys, o, middleware.AnyCaller(), sayOK)[form]
		res := serve(h, request("GET", "/api/v1/x", token, "", "Svc-Request-Id: mine"))
		if res.StatusCode != 200 || wantID(t, res.Response) == "mine" {
			t.Errorf("%s: got %d with %v", form, res.StatusCode, res.Header)
		}
		if text := log.String(); !strings.Contains(text, "panic while serving") || strings.Contains(text, token) {
			t.Errorf("%s: got the log %s", form, text)
		}
	}
}

func TestRequestIDOfInterimResponses(t *testing.T) {
	overBoth(t, func(t *testing.T, protocol string) {
		srv, client := listen(t, protocol, stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a>")
			w.WriteHeader(103)
			w.Header().Del(idHeader)
			w.WriteHeader(103)
			w.Header().Set(idHeader, "theirs")
			w.WriteHeader(201)
		})))
		res, interim := doInformed(t, client, get(t, srv, "/", ""))
		id := wantID(t, res.Response)
		if res.StatusCode != 201 || len(interim) != 2 {
			t.Fatalf("got %d after %d interim responses, want 201 after 2", res.StatusCode, len(interim))
		}
		for _, head := range interim {
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
	overBoth(t, func(t *testing.T, protocol string) {
		srv, client := listen(t, protocol, middleware.Chain(stage(), keyless().Recover)(proxy))
		for path, interims := range map[string]int{"/": 0, "/hints": 1, "/trailer": 0} {
			res, seen := doInformed(t, client, get(t, srv, path, ""))
			id := wantID(t, res.Response)
			if res.body != "from upstream" || len(seen) != interims {
				t.Errorf("%s: got %q after %d interim responses", path, res.body, len(seen))
			}
			for _, head := range seen {
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
	srv := start(t, trusting.RequestID(sayID))
	for _, trusted := range []bool{false, true} {
		for _, tt := range hostileIDs {
			c, lines := dial(t, srv), ""
			for _, v := range tt.values {
				lines += "svc-request-id: " + v + "\r\n"
			}
			if trusted {
				lines += "Proxy: 1\r\n"
			}
			c.send("GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n")
			res := c.next("GET")
			id := res.Header.Get(idHeader)
			if kept := trusted && tt.kept; id != res.body || kept && id != tt.values[0] ||
				!kept && wantID(t, res.Response) == "" {
				t.Errorf("%s, trusted %t: got %q and %q in the context", tt.name, trusted, id, res.body)
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
	for begun := time.Now(); time.Since(begun) < hangs; {
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
	trusting := middleware.New(nil, middleware.Options{TrustRequestID: func(*http.Request) bool { return true }})
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
	res := serve(stage()(named("Other-Id").RequestID(sayID)), request("GET", "/", "", ""))
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

// TestNoOtherIDInTrailers: a handler cannot send another id in a trailer, however
// it names the trailer and whatever net/http makes of its length. It sets one in
// the map that it has kept from before the response, or in the present one.
func TestNoOtherIDInTrailers(t *testing.T) {
	overBoth(t, func(t *testing.T, protocol string) {
		for _, name := range []string{
			"prefix", "another header vanished", "another header vanished, lower case", "declared",
			"kept, long, another header vanished", "kept, flushed, another header vanished, lower case",
			"kept, declares another, no length", "kept, no length", "no length, another header vanished",
			"kept, encoded, another header vanished", "kept, empty length, another header vanished",
			"kept, too large a length", "no length, long",
		} {
			has := func(part string) bool { return strings.Contains(name, part) }
			ring, token := oneKey(t)
			srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Early", "1")
				h := w.Header()
				switch {
				case has("declares another"):
					h.Set("Trailer", "Sum")
				case has("declared"):
					h.Set("Trailer", idHeader)
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
				if has("another header vanished") {
					delete(h, "X-Early")
				}
				switch {
				case has("declared"):
					h.Set(idHeader, "spoofed")
				case has("lower case"):
					h[http.TrailerPrefix+"svc-request-id"] = []string{"spoofed"}
				default:
					h.Set(http.TrailerPrefix+idHeader, "spoofed")
				}
			}))
			for _, line := range []string{"X-Nothing: 1", "Idempotency-Key: 1"} {
				got := do(t, client, request("POST", srv.URL+"/api/v1/x", token, "{}", line))
				id := wantID(t, got.Response)
				for _, other := range got.Trailer[idHeader] {
					if other != id {
						t.Errorf("%s, %s: the trailer has id %q, the header %q", line, name, other, id)
					}
				}
			}
		}
	})
}
