package middleware_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestReplayedFields: which of a handler's header fields are part of a replay.
func TestReplayedFields(t *testing.T) {
	kept := []string{
		"Content-Type", "Content-Language", "Content-Encoding", "Content-Disposition", "Etag", "Last-Modified",
		"Location", "Link",
		"Vary", "Cache-Control", "Expires", "Retry-After", "Warning", "Www-Authenticate", "X-Custom", "Deprecation",
		"Request-Id", "Allow",
	}
	dropped := []string{
		"Set-Cookie", "Set-cookie", "Date", "Authorization", "Connection", "Keep-Alive", "Proxy-Connection",
		"Proxy-Authenticate",
		"Proxy-Authorization", "Te", "Trailer", "Upgrade", "Ratelimit", "Ratelimit-Policy", "ratelimit-remaining",
		"X-Ratelimit-Limit", "X-RateLimit-Remaining", "Access-Control-Allow-Origin", "access-control-expose-headers",
		http.TrailerPrefix + "X-Sum", "Svc-Request-Id", "svc-request-id", "Svc-Original-Request-Id",
		"SVC-ORIGINAL-REQUEST-ID", "Idempotent-Replayed",
	}
	var last []byte
	store := tapped{Store: &idem.Memory{}, settles: func(s idem.Settlement) { last = s.Payload }}
	s := newSite(t, keyedOptions{Runner: runnerOf(store)}, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range append(kept, dropped...) {
			w.Header()[name] = []string{"of the handler"}
		}
		w.WriteHeader(201)
	})
	first := s.post("a")
	again := s.post("a")
	for _, name := range kept {
		if got := again.Header[name]; !slices.Equal(got, []string{"of the handler"}) {
			t.Errorf("%s is %q in the replay, want it as it was", name, got)
		}
	}
	for _, name := range dropped {
		if got := again.Header[name]; slices.Contains(got, "of the handler") {
			t.Errorf("%s is %q in the replay, want none of the handler's", name, got)
		}
	}
	if n := bytes.Count(last, []byte("of the handler")); n != len(kept) {
		t.Errorf("the record has %d fields, want %d:\n%q", n, len(kept), last)
	}
	id := wantID(t, again.Response)
	if id == wantID(t, first.Response) ||
		again.Header.Get("Svc-Original-Request-Id") != first.Header.Get("Svc-Request-Id") {
		t.Errorf("ids: %v, then %v", first.Header, again.Header)
	}
	for name := range again.Header {
		if !slices.Contains(kept, name) &&
			!slices.Contains([]string{"Svc-Request-Id", "Svc-Original-Request-Id", "Idempotent-Replayed"}, name) {
			t.Errorf("the replay has %s", name)
		}
	}
}

// TestReplayIsOfTheHandler: what stages outside write is of the moment and
// never part of the record.
func TestReplayIsOfTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, token := oneKey(t)
		n := 0
		outside := foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			n++
			h := w.Header()
			h.Set("X-Served", fmt.Sprint(n))
			h.Set("X-Replaced", fmt.Sprint("outside ", n))
			h.Set("X-Removed", fmt.Sprint("outside ", n))
			h.Set("X-Same", "same")
			h.Set("Vary", "Origin")
			h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			if n > 1 {
				h.Set("X-New", "new")
			}
			next.ServeHTTP(w, r)
		})
		limits := middleware.PerOrganization("9-H")
		limits.Fields = middleware.FieldsDraft11
		g := middleware.New(ring.keys, middleware.Options{
			RequestIDHeader: "X-Trace-Request-Id", Hooks: quiet(),
			RateLimit: limits, Idempotency: keyedOptions{Runner: replies()},
		})
		h := middleware.Chain(outside, g.RequestID, g.Authenticate, g.RateLimit, g.Enforce(middleware.AnyCaller()),
			g.Idempotent)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("X-Replaced", "inside")
			h.Del("X-Removed")
			h.Add("Vary", "Accept")
			h.Set("X-Same", "same")
			h.Set("Etag", `"1"`)
			w.WriteHeader(201)
		}))
		ask := func(origin string) http.Header {
			return serve(h, post(token, "a", "Origin: "+origin)).Header
		}
		first, again := ask("https://one.example"), ask("https://two.example")
		for _, row := range []struct {
			name         string
			first, again []string
		}{
			{"X-Served", []string{"1"}, []string{"2"}},
			{"X-New", nil, []string{"new"}},
			{"X-Replaced", []string{"inside"}, []string{"inside"}},
			{"X-Removed", nil, []string{"outside 2"}},
			{"X-Same", []string{"same"}, []string{"same"}},
			{"Vary", []string{"Origin", "Accept"}, []string{"Origin", "Accept"}},
			{"Access-Control-Allow-Origin", []string{"https://one.example"}, []string{"https://two.example"}},
			{"Etag", []string{`"1"`}, []string{`"1"`}},
			{"Ratelimit", []string{`"organization";r=8;t=400`}, []string{`"organization";r=7;t=800`}},
			{"Ratelimit-Policy", []string{`"organization";q=9;w=3600`}, []string{`"organization";q=9;w=3600`}},
			{"Idempotent-Replayed", nil, []string{"true"}},
			{"X-Trace-Original-Request-Id", nil, first["X-Trace-Request-Id"]},
		} {
			if !slices.Equal(first[row.name], row.first) || !slices.Equal(again[row.name], row.again) {
				t.Errorf("%s: first %q, replay %q, want %q and %q", row.name, first[row.name], again[row.name],
					row.first, row.again)
			}
		}
		if len(again["X-Trace-Request-Id"]) != 1 || slices.Equal(first["X-Trace-Request-Id"], again["X-Trace-Request-Id"]) ||
			again["Svc-Original-Request-Id"] != nil {
			t.Errorf("ids: %v, then %v", first, again)
		}
	})
}

// TestReplayBytes: the body of a replay is the first one's, byte for byte, also
// where it tells the first request's id.
func TestReplayBytes(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"a problem": func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 422, Code: "bad_title", Detail: "é"})
		},
		"a panic": steps("panic"),
	} {
		s := newSite(t, keyedOptions{}, handle)
		first, again := s.post("a"), s.post("a")
		if again.body != first.body || again.StatusCode != first.StatusCode || !again.replayed() ||
			again.problem(t).RequestID != first.Header.Get("Svc-Request-Id") {
			t.Errorf("%s: %d %.100q, then %d %.100q", name, first.StatusCode, first.body, again.StatusCode, again.body)
		}
	}
}

// TestReplayWithoutRequestID: the stage does without RequestID, and leaves out
// the first one's id where it has no name for it.
func TestReplayWithoutRequestID(t *testing.T) {
	ring, token := oneKey(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Custom", "mine") })
	o := middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}}
	g := middleware.New(ring.keys, o)
	h := middleware.Chain(g.Authenticate, g.Enforce(middleware.AnyCaller()), g.Idempotent)(handler)
	serve(h, post(token, "without"))
	serve(keyed(ring, o, handler), post(token, "with"))
	for _, key := range []string{"without", "with"} {
		again := serve(h, post(token, key))
		want := http.Header{"Idempotent-Replayed": {"true"}, "X-Custom": {"mine"}}
		if again.StatusCode != 200 || !reflect.DeepEqual(again.Header, want) {
			t.Errorf("recorded %s: %d %v, want %v", key, again.StatusCode, again.Header, want)
		}
	}
}

// TestCompressionOutside: the record is what the handler wrote, so each client
// gets the coding that it asked for.
func TestCompressionOutside(t *testing.T) {
	ring, token := oneKey(t)
	text := strings.Repeat("compressible ", 100)
	compressed := foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get("Accept-Encoding") == "gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			w = compressor{w, z}
		}
		next.ServeHTTP(w, r)
	})
	h := compressed(keyed(ring, middleware.Options{}, steps("Content-Type: text/plain", text)))
	for _, coding := range []string{"gzip", "", "gzip"} {
		a := serve(h, post(token, "a", "Accept-Encoding: "+coding))
		body := a.body
		if z, err := gzip.NewReader(strings.NewReader(body)); err == nil {
			b, _ := io.ReadAll(z)
			body = string(b)
		}
		if got := a.Header.Get("Content-Encoding"); got != coding || body != text || (a.body == text) != (coding == "") {
			t.Errorf("accepts %q: got %q with %d bytes", coding, got, len(a.body))
		}
	}
}

type compressor struct {
	http.ResponseWriter
	body io.Writer
}

func (c compressor) Write(p []byte) (int, error) { return c.body.Write(p) }

// TestReplyGivenUp: when the store has given up the response for want of room,
// a repeat is told what it was and does not run.
func TestReplyGivenUp(t *testing.T) {
	var runs atomic.Int64
	s := newSite(t, keyedOptions{Runner: runnerOf(&idem.Memory{Budget: 40_000,
		Logger: quiet().Logger})}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", fmt.Sprintf("/tasks/%d", runs.Add(1)))
		w.WriteHeader(201)
		_, _ = w.Write(make([]byte, 15_000))
	})
	for key := range 4 {
		if a := serve(s, request("POST", "/", s.token, "{}", fmt.Sprint("Idempotency-Key: ", key))); a.StatusCode != 201 {
			t.Fatalf("key %d: %d %s", key, a.StatusCode, a.body)
		}
	}
	a := s.post("0")
	if p := a.problem(t); a.StatusCode != 409 || p.Code != "idempotency_response_not_retained" ||
		p.OriginalStatus != 201 || p.OriginalLocation != "/tasks/1" || a.Header.Get("Svc-Original-Request-Id") == "" ||
		runs.Load() != 4 {
		t.Errorf("%d %s with %d runs, want 409 that says 201 and /tasks/1", a.StatusCode, a.body, runs.Load())
	}
	if a := s.post("3"); a.StatusCode != 201 || len(a.body) != 15_000 {
		t.Errorf("the last one: %d with %d bytes, want its replay", a.StatusCode, len(a.body))
	}
}

// A reply that the store has damaged is not given, and the log says why.
func TestReplyDamaged(t *testing.T) {
	for name, row := range map[string]struct {
		record idem.Record
		lines  int
	}{
		"damaged":           {idem.Record{State: idem.Done, Payload: []byte("damaged"), Retained: true}, 1},
		"empty":             {idem.Record{State: idem.Done, Retained: true}, 1},
		"without a summary": {idem.Record{State: idem.Done}, 0},
	} {
		s := newSite(t, keyedOptions{Runner: runnerOf(answering{&idem.Memory{}, row.record})},
			func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the handler ran", name) })
		a := s.post("a")
		if p := a.problem(t); a.StatusCode != 409 || p.Code != "idempotency_response_not_retained" {
			t.Errorf("%s: got %d %s, want 409", name, a.StatusCode, a.body)
		}
		if n := strings.Count(s.log.String(), "cannot be read; its repeats get none"); n != row.lines {
			t.Errorf("%s: %d lines, want %d: %s", name, n, row.lines, s.log)
		}
	}
}

// answering answers each claim with a record, with the claim's fingerprint.
type answering struct {
	idem.Store
	record idem.Record
}

func (a answering) Begin(_ context.Context, c idem.Claim) (idem.Record, error) {
	a.record.Fingerprint = c.Fingerprint
	return a.record, nil
}

// What one response's values are changed into is not what the next one gets.
func TestValuesOfTheirOwn(t *testing.T) {
	ring, token := oneKey(t)
	h := keyed(ring, middleware.Options{}, steps("body"))
	for range 3 {
		for _, token := range []string{token, ""} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, keyedRequest(t, "/x", token, "a"))
			if h := w.Header(); token == "" && h.Get("Cache-Control")+" "+h.Get("Content-Type")+" "+h.Get("Connection") !=
				"no-store application/problem+json close" {
				t.Errorf("a refusal has %v", w.Header())
			}
			if replayed := w.Header().Get("Idempotent-Replayed"); replayed != "" && replayed != "true" {
				t.Errorf("a replay has %v", w.Header())
			}
			for _, values := range w.Header() {
				for i := range values {
					values[i] = strings.ToUpper(values[i])
				}
			}
		}
	}
}

// advice is X-Should-Retry, "-" for none.
func advice(a answer) string {
	if v := a.Header["X-Should-Retry"]; len(v) > 0 {
		return strings.Join(v, ", ")
	}
	return "-"
}

// TestFinalResponses: a failure of a handler that is stored says that a repeat
// is in vain, and one that frees the key does not.
func TestFinalResponses(t *testing.T) {
	fails := func(status int) http.HandlerFunc { return steps(strconv.Itoa(status), "failed") }
	streams := steps("Content-Type: text/event-stream", "502", "flush", "failed")
	limit := middleware.New(nil, middleware.Options{Hooks: quiet(),
		RateLimit: rateOptions{Store: failing, Client: policy("x", "1-H", 1)}}).RateLimit
	for name, tt := range map[string]struct {
		handle  http.HandlerFunc
		options keyedOptions
		leased  string // of the first response and of a repeat
		joined  string
	}{
		"500":                    {fails(500), keyedOptions{}, "false false", "- -"},
		"409":                    {fails(409), keyedOptions{}, "false false", "false false"},
		"408":                    {fails(408), keyedOptions{}, "false false", "false false"},
		"429":                    {fails(429), keyedOptions{}, "false false", "- -"},
		"404":                    {fails(404), keyedOptions{}, "- -", "- -"},
		"success":                {sayOK, keyedOptions{}, "- -", "- -"},
		"panic":                  {steps("panic"), keyedOptions{}, "false false", "- -"},
		"the key is freed":       {steps("free", "503"), keyedOptions{}, "- -", "- -"},
		"a status in FreeOn":     {fails(503), keyedOptions{FreeOn: []int{503}}, "- -", "- -"},
		"another status":         {fails(500), keyedOptions{FreeOn: []int{503}}, "false false", "- -"},
		"streamed":               {streams, keyedOptions{}, "false false", "- -"},
		"streamed and freed":     {streams, keyedOptions{FreeOn: []int{502}}, "- -", "- -"},
		"too large to be stored": {fails(500), keyedOptions{MaxResponse: 1}, "false false", "- -"},
		"the handler's own":      {steps("X-Should-Retry: true", "500", "failed"), keyedOptions{}, "true true", "true true"},
		"a refusal inside": {func(w http.ResponseWriter, r *http.Request) {
			r.Body.Read(make([]byte, 1)) // so the key is not freed
			limit(sayOK).ServeHTTP(w, r)
		}, keyedOptions{}, "false false", "- -"},
	} {
		for mode, want := range map[string]string{"leased": tt.leased, "joined": tt.joined} {
			o := tt.options
			o.Runner = replies()
			if mode == "joined" {
				o.Runner = joining(newJoiner())
			}
			s := newSite(t, o, tt.handle)
			first, again := s.post("a"), s.post("a")
			if got := advice(first) + " " + advice(again); got != want {
				t.Errorf("%s, %s: got %s of %d and %d, want %s", name, mode, got, first.StatusCode, again.StatusCode, want)
			}
		}
	}
}

// A record of a version that gave no advice, and one of an option that was off,
// are replayed with it: it is never stored.
func TestAdviceIsNotStored(t *testing.T) {
	var last []byte
	store := tapped{Store: &idem.Memory{}, settles: func(s idem.Settlement) { last = s.Payload }}
	ring, token := oneKey(t)
	server := func(off bool) *site {
		o := middleware.Options{Hooks: quiet(), NoShouldRetry: off, Idempotency: keyedOptions{Runner: runnerOf(store)}}
		return &site{keyed(ring, o, steps("500", "failed")), token, nil}
	}
	for _, first := range []bool{true, false} {
		key := map[bool]string{true: "a", false: "b"}[first]
		off, on := server(true), server(false)
		writer := map[bool]*site{true: off, false: on}[first]
		writer.post(key)
		if strings.Contains(string(last), "Should") {
			t.Errorf("the record has the advice: %q", last)
		}
		if got := advice(off.post(key)) + " " + advice(on.post(key)); got != "- false" {
			t.Errorf("replayed without and with advice: %s", got)
		}
		other := func() *http.Request { return request("POST", "/", token, "other", "Idempotency-Key: "+key) }
		if got := advice(serve(off, other())) + " " + advice(serve(on, other())); got != "- false" {
			t.Errorf("refused without and with advice: %s", got)
		}
	}
}

// With Reexecute a repeat of an interrupted request runs, so nothing says that
// it is in vain; and a request that was let pass as nobody's has no key.
func TestNoAdvice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for reexecute, want := range map[bool]string{false: "false false", true: "- -"} {
			runner := replies(idem.Options{Reexecute: reexecute, Lease: 3 * time.Second})
			n := 0
			s := newSite(t, keyedOptions{Runner: runner}, func(w http.ResponseWriter, r *http.Request) {
				if n++; n == 1 {
					<-r.Context().Done()
				}
			})
			first := s.post("a")
			if got := advice(first) + " " + advice(s.post("a")); got != want {
				t.Errorf("reexecute %t: got %s of %d, want %s", reexecute, got, first.StatusCode, want)
			}
		}
		h := testAPI(newKeyring().keys, middleware.Options{Hooks: quiet(), ReportOnly: true})
		h.HandleFunc("POST /api/v1/failing", middleware.AnyCaller(), steps("500"))
		if got := advice(serve(h, request("POST", "/api/v1/failing", "", "", "Idempotency-Key: a"))); got != "-" {
			t.Errorf("in report-only mode: got %s", got)
		}
	})
	s := newSite(t, keyedOptions{}, func(w http.ResponseWriter, r *http.Request) {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 429, Code: "rate_limited"})
	})
	if got := advice(serve(s, request("POST", "/", s.token, ""))); got != "-" {
		t.Errorf("a handler's own problem: got %s", got)
	}
}
