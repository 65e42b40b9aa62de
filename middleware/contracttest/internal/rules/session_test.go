package rules_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/bare"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

func TestMistakesInTheTarget(t *testing.T) {
	for _, tt := range []struct {
		target rules.Target
		want   []string // parts of the error
	}{
		{rules.Target{}, []string{"not the URL"}},
		{rules.Target{URL: "ftp://127.0.0.1"}, []string{"not the URL"}},
		{rules.Target{URL: "http://127.0.0.1:1"}, []string{"cannot be reached"}},
		{rules.Target{URL: "127.0.0.1", Create: "api", Full: "svc"}, []string{"not the URL", `"api"`, "too short"}},
	} {
		_, err := rules.Open(t.Context(), tt.target)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got the error %v, want one with %q", tt.target, err, want)
			}
		}
	}
}

// Without keys the rules that need none are checked, and the others say what they need.
func TestWithoutKeys(t *testing.T) {
	target := serve(t, bare.New(bare.DemoKeys()).Handler(), true)
	s := open(t, rules.Target{URL: target.URL})
	if plan := s.Plan(); !strings.Contains(plan, "a key with all scopes") || !strings.Contains(plan, "a route that creates") || !strings.Contains(plan, "HTTP/2") {
		t.Errorf("the plan does not say what is missing:\n%s", plan)
	}
	statuses := make(map[rules.Status]int)
	for _, r := range rules.All() {
		result := s.Check(t.Context(), r)
		statuses[result.Status]++
		if result.Status == rules.Skipped && !strings.HasPrefix(result.Detail, "it needs ") {
			t.Errorf("%s was skipped because %q", r.Name, result.Detail)
		}
	}
	if statuses[rules.Held] < 10 || statuses[rules.Skipped] < 30 || len(statuses) != 2 {
		t.Errorf("got %v", statuses)
	}
}

// A rule is not broken because the server limits rates, and not held because it could not be seen.
func TestRateLimits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rule   string
		limit  int
		around func(http.Handler) http.Handler
		want   rules.Status
	}{
		{"waits for a low limit", "idempotency/at-once", 2, nil, rules.Held},
		{"waits where Retry-After is missing", "idempotency/marked", 1, on(429, without("Retry-After")), rules.Held},
		{"does not wait for ever", "auth/scheme-case", 1, on(429, with("Retry-After", "3600")), rules.Unclear},
		{"sees no 429", "ratelimit/retry-after", 0, nil, rules.Skipped},
		{"cannot read the wait", "ratelimit/wait-helps", 100, on(429, with("Retry-After", "0.5")), rules.Skipped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := bare.New(bare.DemoKeys())
			s.Limit = tt.limit
			h := s.Handler()
			if tt.around != nil {
				h = tt.around(h)
			}
			if result := check(t, tt.rule, h, true); result.Status != tt.want {
				t.Errorf("got %s %q, want %s", result.Status, result.Detail, tt.want)
			}
		})
	}
}

// What a check sees when its time is over says nothing about the server.
func TestTimeRunsOut(t *testing.T) {
	ended := make(chan struct{})
	silent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "PRI" && r.Header.Get("User-Agent") == "" || r.Header.Get("Authorization") != "" {
			<-ended
		}
	})
	target := serve(t, silent, true)
	t.Cleanup(func() { close(ended) }) // before the server waits for its handlers
	target.HTTP2URL = target.URL
	s := open(t, target)
	for _, name := range []string{"auth/live-key", "auth/no-way-around", "wire/asterisk", "wire/http-1.0", "wire/pipelining", "wire/early-close", "wire/cut-body", "wire/stalled-body", "wire/expect-refused", "ratelimit/retry-after"} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if strings.HasPrefix(name, "wire/e") {
			cancel() // net/http answers the first of these by itself, in time
		}
		if result := s.Check(ctx, rule(t, name)); result.Status != rules.Unclear || !strings.Contains(result.Detail, "no time left") {
			t.Errorf("%s: got %s %q", name, result.Status, result.Detail)
		}
		cancel()
	}
}

// Whether a repeat has the first one's id is a rule of its own, and an optional one.
func TestRepeatsDoNotCountAsTwice(t *testing.T) {
	first := after(func(_ *http.Request, w *httptest.ResponseRecorder) {
		if id := w.Header().Get("Svc-Original-Request-Id"); id != "" {
			w.Header().Set(idHeader, id)
		}
	})
	s := open(t, serve(t, first(bare.New(bare.DemoKeys()).Handler()), false))
	for _, tt := range []struct {
		name string
		want rules.Status
	}{{"idempotency/replay", rules.Held}, {"idempotency/request-id", rules.Broken}, {"request-id/unique", rules.Held}} {
		if result := s.Check(t.Context(), rule(t, tt.name)); result.Status != tt.want {
			t.Errorf("%s: got %s %q, want %s", tt.name, result.Status, result.Detail, tt.want)
		}
	}
}

// Over HTTPS, bare connections speak HTTP/1.1 and clients both versions.
func TestHTTPS(t *testing.T) {
	target := serve(t, bare.New(bare.DemoKeys()).Handler(), false)
	target.URL, target.HTTP2URL, target.Server = target.HTTP2URL, "", false
	s := open(t, target)
	held := 0
	for _, r := range rules.All() {
		if r.Group() == "ratelimit" {
			continue
		}
		switch result := s.Check(t.Context(), r); {
		case result.Status == rules.Held:
			held++
		case result.Status != rules.Skipped || r.Group() != "wire":
			t.Errorf("%s: got %s %s", r.Name, result.Status, result.Detail)
		}
	}
	if held < 50 {
		t.Errorf("%d rules were held", held)
	}
}

// Nothing but the target is talked to: a redirect is an answer.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("somebody else was asked") }), true)
	away := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		})
	}
	for _, name := range []string{"auth/live-key", "auth/missing-key", "http2/missing-key"} {
		if result := check(t, name, away(nil), true); result.Status != rules.Broken {
			t.Errorf("%s: got %s, want it broken by a 307", name, result.Status)
		}
	}
}

// What is found is shown to people, and no key is.
func TestKeysAreNotShown(t *testing.T) {
	for _, around := range []func(http.Handler) http.Handler{
		after(func(_ *http.Request, w *httptest.ResponseRecorder) { w.Code = 500 }),
		func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "" || r.URL.RawQuery != "" {
					panic(http.ErrAbortHandler)
				}
			})
		},
	} {
		target := serve(t, around(bare.New(bare.DemoKeys()).Handler()), true)
		s := open(t, target)
		for _, r := range rules.All() {
			if r.Group() == "ratelimit" || r.Group() == "wire" {
				continue
			}
			if result := s.Check(t.Context(), r); strings.Contains(result.Detail, "BareServer") {
				t.Errorf("%s shows a key: %s", r.Name, result.Detail)
			}
		}
	}
}
