package middleware_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

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
	boom := func(http.ResponseWriter, *http.Request) { panic("boom") }
	fails := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Error(w, "failed", status) }
	}
	streams := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(502)
		http.NewResponseController(w).Flush()
		w.Write([]byte("failed"))
	}
	frees := func(w http.ResponseWriter, r *http.Request) {
		middleware.ExecutionFrom(r.Context()).Free()
		http.Error(w, "failed", http.StatusServiceUnavailable)
	}
	limit := middleware.New(nil, middleware.Options{Hooks: quiet(),
		RateLimit: middleware.RateLimitOptions{Store: failing, Client: policy("x", "1-H", 1)}}).RateLimit
	for name, tt := range map[string]struct {
		handle  http.HandlerFunc
		options keyedOptions
		leased  string // of the first response and of a repeat
		joined  string
	}{
		"500":                {handle: fails(500), leased: "false false", joined: "- -"},
		"409":                {handle: fails(409), leased: "false false", joined: "false false"},
		"408":                {handle: fails(408), leased: "false false", joined: "false false"},
		"429":                {handle: fails(429), leased: "false false", joined: "- -"},
		"404":                {handle: fails(404), leased: "- -", joined: "- -"},
		"success":            {handle: sayOK, leased: "- -", joined: "- -"},
		"panic":              {handle: boom, leased: "false false", joined: "- -"},
		"the key is freed":   {handle: frees, leased: "- -", joined: "- -"},
		"a status in FreeOn": {handle: fails(503), options: keyedOptions{FreeOn: []int{503}}, leased: "- -", joined: "- -"},
		"another status": {handle: fails(500), options: keyedOptions{FreeOn: []int{503}},
			leased: "false false", joined: "- -"},
		"streamed":           {handle: streams, leased: "false false", joined: "- -"},
		"streamed and freed": {handle: streams, options: keyedOptions{FreeOn: []int{502}}, leased: "- -", joined: "- -"},
		"too large to be stored": {handle: fails(500), options: keyedOptions{MaxResponse: 1},
			leased: "false false", joined: "- -"},
		"the handler's own": {handle: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Should-Retry", "true")
			http.Error(w, "failed", 500)
		}, leased: "true true", joined: "true true"},
		"a refusal inside": {handle: func(w http.ResponseWriter, r *http.Request) {
			r.Body.Read(make([]byte, 1)) // so the key is not freed
			limit(http.HandlerFunc(sayOK)).ServeHTTP(w, r)
		}, leased: "false false", joined: "- -"},
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
	fail := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "failed", 500) })
	server := func(off bool) *site {
		o := middleware.Options{Hooks: quiet(), NoShouldRetry: off, Idempotency: keyedOptions{Runner: runnerOf(store)}}
		return &site{keyed(ring, o, fail), token, nil}
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
		h.HandleFunc("POST /api/v1/failing", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
		})
		if got := advice(serve(h, request("POST", "/api/v1/failing", "", "", "Idempotency-Key: a"))); got != "-" {
			t.Errorf("in report-only mode: got %s", got)
		}
	})
	problem := middleware.Problem{Status: 429, Code: "rate_limited"}
	s := newSite(t, keyedOptions{}, func(w http.ResponseWriter, r *http.Request) {
		middleware.WriteProblem(w, r, problem)
	})
	if got := advice(serve(s, request("POST", "/", s.token, ""))); got != "-" {
		t.Errorf("a handler's own problem: got %s", got)
	}
}
