package rules_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/bare"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

const idHeader = "Svc-Request-Id"

// fault is one thing wrong about a server: in how it is made, or around it. All are served on the listener of net/http as it
// is, which is a fault too, for the rules about what no handler sees.
type fault struct {
	rule, name string
	edit       func(*bare.Server)
	around     func(http.Handler) http.Handler
}

// before changes requests on their way in.
func before(change func(r *http.Request)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r2 := r.Clone(r.Context())
			change(r2)
			next.ServeHTTP(w, r2)
		})
	}
}

// after changes responses on their way out.
func after(change func(r *http.Request, w *httptest.ResponseRecorder)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			held := httptest.NewRecorder()
			next.ServeHTTP(held, r)
			change(r, held)
			maps.Copy(w.Header(), held.Header())
			w.WriteHeader(held.Code)
			if r.Method != http.MethodHead {
				_, _ = w.Write(held.Body.Bytes())
			}
		})
	}
}

// instead answers some requests itself.
func instead(when func(*http.Request) bool, status int) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if when(r) {
				w.Header().Set(idHeader, rand.Text())
				bare.Refuse(w, status, "instead")
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// on changes the headers of the responses with a status.
func on(status int, change func(h http.Header)) func(http.Handler) http.Handler {
	return after(func(_ *http.Request, w *httptest.ResponseRecorder) {
		if w.Code == status {
			change(w.Header())
		}
	})
}

func without(name string) func(http.Header) { return func(h http.Header) { h.Del(name) } }

func with(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }

// token changes the credentials that a request brings.
func token(change func(string) string) func(http.Handler) http.Handler {
	return before(func(r *http.Request) {
		if v, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			r.Header["Authorization"][0] = "Bearer " + change(v)
		}
	})
}

func authorize(r *http.Request, key string) { r.Header["Authorization"] = []string{"Bearer " + key} }

func stages(s ...bare.Stage) func(*bare.Server) {
	return func(b *bare.Server) { b.Stages = s }
}

// cleaned serves a path that is not clean without a look at the key it came with.
func cleaned(r *http.Request) {
	if clean := path.Clean(r.URL.Path); clean == bare.Read && clean != r.URL.Path {
		authorize(r, bare.Full)
		r.URL.Path = clean
	}
}

// readFirst reads the body before anything is decided.
func readFirst(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r2 := r.Clone(r.Context())
		r2.Body = io.NopCloser(strings.NewReader(string(body)))
		next.ServeHTTP(w, r2)
	})
}

// constant gives every response the same id.
var constant = after(func(_ *http.Request, w *httptest.ResponseRecorder) { w.Header().Set(idHeader, "1") })

// tooSoon says a wait of one second, and then refuses for three.
func tooSoon(next http.Handler) http.Handler {
	var until atomic.Int64
	return after(func(r *http.Request, w *httptest.ResponseRecorder) {
		if now := time.Now().UnixNano(); w.Code == 429 {
			until.CompareAndSwap(0, now+int64(3*time.Second))
		} else if now < until.Load() && w.Code == 200 {
			w.Code = 429
			w.Header().Set("Retry-After", "1")
		}
	})(next)
}

func get(r *http.Request) bool  { return r.Method == http.MethodGet }
func head(r *http.Request) bool { return r.Method == http.MethodHead }

var faults = []fault{
	{rule: "auth/live-key", name: "no key is known", edit: func(s *bare.Server) { s.Keys = nil }},
	{rule: "auth/missing-key", name: "403", around: instead(func(r *http.Request) bool { return r.Header.Get("Authorization") == "" }, 403)},
	{rule: "auth/missing-key", name: "a scheme alone is let in", around: before(func(r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer" {
			authorize(r, bare.Full)
		}
	})},
	{rule: "auth/other-scheme", name: "any scheme", around: before(func(r *http.Request) {
		if f := strings.Fields(r.Header.Get("Authorization")); len(f) == 2 {
			authorize(r, f[1])
		}
	})},
	{rule: "auth/other-scheme", name: "no scheme", around: before(func(r *http.Request) {
		if v := r.Header.Get("Authorization"); v != "" && !strings.Contains(v, " ") {
			authorize(r, v)
		}
	})},
	{rule: "auth/key-elsewhere", name: "query", around: before(func(r *http.Request) {
		if v := r.URL.Query().Get("api_key"); v != "" {
			authorize(r, v)
		}
	})},
	{rule: "auth/key-elsewhere", name: "X-Api-Key", around: before(func(r *http.Request) {
		if v := r.Header.Get("X-Api-Key"); v != "" {
			authorize(r, v)
		}
	})},
	{rule: "auth/key-elsewhere", name: "cookie", around: before(func(r *http.Request) {
		if c, err := r.Cookie("token"); err == nil {
			authorize(r, c.Value)
		}
	})},
	{rule: "auth/altered-key", name: "the beginning is enough", around: token(func(v string) string {
		if strings.HasPrefix(v, bare.Full[:20]) {
			return bare.Full
		}
		return v
	})},
	{rule: "auth/altered-key", name: "capitals do not matter", around: token(func(v string) string {
		if strings.EqualFold(v, bare.Full) {
			return bare.Full
		}
		return v
	})},
	{rule: "auth/altered-key", name: "the shape is enough", around: token(func(v string) string {
		if strings.HasPrefix(v, "svc_live_") && len(v) == len(bare.Full) {
			return bare.Full
		}
		return v
	})},
	{rule: "auth/odd-bytes", name: "odd bytes are dropped", around: token(func(v string) string {
		return strings.Map(func(c rune) rune {
			if c != '_' && !strings.ContainsRune("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", c) {
				return -1
			}
			return c
		}, v)
	})},
	{rule: "auth/odd-bytes", name: "400", around: instead(func(r *http.Request) bool { return strings.Contains(r.Header.Get("Authorization"), `"`) }, 400)},
	{rule: "auth/oversized-key", name: "cut off", around: token(func(v string) string { return v[:min(len(v), len(bare.Full))] })},
	{rule: "auth/oversized-key", name: "500", around: instead(func(r *http.Request) bool { return len(r.Header.Get("Authorization")) > 1000 }, 500)},
	{rule: "auth/other-environment", name: "the prefix does not count", around: token(func(v string) string {
		return strings.Replace(v, "svc_test_BareServerFull", "svc_live_BareServerFull", 1)
	})},
	{rule: "auth/revoked-key", name: "403", around: instead(func(r *http.Request) bool { return strings.HasSuffix(r.Header.Get("Authorization"), bare.Revoked) }, 403)},
	{rule: "auth/revoked-key", name: "let in", edit: func(s *bare.Server) { s.Keys[bare.Revoked] = s.Keys[bare.Full] }},
	{rule: "auth/no-way-around", name: "paths that are not clean", around: before(cleaned)},
	{rule: "auth/no-way-around", name: "HEAD", around: before(func(r *http.Request) {
		if head(r) {
			authorize(r, bare.Full)
		}
	})},
	{rule: "auth/before-routing", name: "routing first", edit: stages(bare.RequestID, bare.Route, bare.Authenticate, bare.RateLimit, bare.Scope, bare.Idempotency)},
	{rule: "auth/scheme-case", name: "Bearer as written", around: before(func(r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
			r.Header.Del("Authorization")
		}
	})},
	{rule: "auth/duplicates", name: "the first counts", around: before(func(r *http.Request) {
		r.Header["Authorization"] = r.Header["Authorization"][:min(1, len(r.Header["Authorization"]))]
	})},
	{rule: "auth/duplicates", name: "the last counts", around: before(func(r *http.Request) {
		if v := r.Header["Authorization"]; len(v) > 1 {
			r.Header["Authorization"] = v[1:]
		}
	})},
	{rule: "auth/challenge", name: "none", around: on(401, without("WWW-Authenticate"))},
	{rule: "auth/challenge", name: "Basic", around: on(401, with("WWW-Authenticate", `Basic realm="bare"`))},
	{rule: "auth/challenge", name: "always an error", around: on(401, with("WWW-Authenticate", `Bearer error="invalid_token"`))},
	{rule: "auth/challenge-invalid", name: "never an error", around: on(401, with("WWW-Authenticate", `Bearer realm="bare"`))},
	{rule: "auth/key-not-repeated", name: "in the body", around: after(func(r *http.Request, w *httptest.ResponseRecorder) {
		fmt.Fprint(w.Body, r.Header.Get("Authorization"))
	})},
	{rule: "auth/key-not-repeated", name: "in the header", around: after(func(r *http.Request, w *httptest.ResponseRecorder) {
		w.Header().Set("Was", r.Header.Get("Authorization"))
	})},
	{rule: "auth/not-cached", name: "cached", around: on(401, with("Cache-Control", "max-age=60"))},

	{rule: "request-id/success", name: "missing", around: on(200, without(idHeader))},
	{rule: "request-id/success", name: "twice", around: on(200, func(h http.Header) { h.Add(idHeader, "2") })},
	{rule: "request-id/success", name: "missing for HEAD", around: after(func(r *http.Request, w *httptest.ResponseRecorder) {
		if head(r) {
			w.Header().Del(idHeader)
		}
	})},
	{rule: "request-id/created", name: "missing", around: on(201, without(idHeader))},
	{rule: "request-id/unauthorized", name: "missing", around: on(401, without(idHeader))},
	{rule: "request-id/forbidden", name: "missing", around: on(403, without(idHeader))},
	{rule: "request-id/unmatched", name: "missing for 404", around: on(404, without(idHeader))},
	{rule: "request-id/unmatched", name: "missing for 405", around: on(405, without(idHeader))},
	{rule: "request-id/unreadable", name: "missing", around: on(400, without(idHeader))},
	{rule: "request-id/unique", name: "constant", around: constant},
	{rule: "request-id/not-from-strangers", name: "taken over", around: after(func(r *http.Request, w *httptest.ResponseRecorder) {
		if id := r.Header.Get(idHeader); id != "" {
			w.Header().Set(idHeader, id)
		}
	})},
	{rule: "request-id/in-problem", name: "another", around: on(401, with(idHeader, "2"))},
	{rule: "request-id/in-problem", name: "text", around: on(401, with("Content-Type", "text/plain"))},

	{rule: "scopes/read", name: "no scopes", edit: stages(bare.RequestID, bare.Authenticate, bare.RateLimit, bare.Route, bare.Idempotency)},
	{rule: "scopes/read", name: "401", around: after(func(_ *http.Request, w *httptest.ResponseRecorder) {
		if w.Code == 403 {
			w.Code = 401
		}
	})},
	{rule: "scopes/create", name: "no scopes for POST", edit: stages(bare.RequestID, bare.Authenticate, bare.RateLimit, bare.Route, func(s *bare.Server, next http.Handler) http.Handler {
		scoped := bare.Scope(s, next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if get(r) {
				scoped.ServeHTTP(w, r)
			} else {
				next.ServeHTTP(w, r)
			}
		})
	}, bare.Idempotency)},
	{rule: "scopes/no-way-around", name: "paths that are not clean", around: before(cleaned)},
	{rule: "scopes/replay", name: "replays first", edit: stages(bare.RequestID, bare.Authenticate, bare.RateLimit, bare.Route, bare.Idempotency, bare.Scope)},
	{rule: "scopes/challenge", name: "none", around: on(403, without("WWW-Authenticate"))},
	{rule: "scopes/challenge", name: "another error", around: on(403, with("WWW-Authenticate", `Bearer error="invalid_token"`))},

	{rule: "idempotency/replay", name: "no idempotency", edit: stages(bare.RequestID, bare.Authenticate, bare.RateLimit, bare.Route, bare.Scope)},
	{rule: "idempotency/replay", name: "another status", around: after(func(_ *http.Request, w *httptest.ResponseRecorder) {
		if w.Header().Get("Idempotent-Replayed") != "" {
			w.Code = 200
		}
	})},
	{rule: "idempotency/replay", name: "another Location", around: after(func(_ *http.Request, w *httptest.ResponseRecorder) {
		if w.Header().Get("Idempotent-Replayed") != "" {
			w.Header().Del("Location")
		}
	})},
	{rule: "idempotency/two-keys", name: "all keys are one", edit: func(s *bare.Server) {
		s.IdemKey = func(r *http.Request, _ []byte) (string, bool) { return r.Header.Get("Idempotency-Key")[:1], true }
	}},
	{rule: "idempotency/no-key", name: "the body is the key", edit: func(s *bare.Server) {
		s.IdemKey = func(r *http.Request, body []byte) (string, bool) { return string(body), true }
	}},
	{rule: "idempotency/at-once", name: "look, then claim", edit: func(s *bare.Server) { s.Race = true }},
	{rule: "idempotency/at-once", name: "500", edit: func(s *bare.Server) { s.Conflict, s.Delay = true, 500*time.Millisecond }, around: after(func(_ *http.Request, w *httptest.ResponseRecorder) {
		if w.Code == 409 {
			w.Code = 500
		}
	})},
	{rule: "idempotency/at-once", name: "nobody succeeds", around: instead(func(r *http.Request) bool { return r.Header.Get("Idempotency-Key") != "" }, 409)},
	{rule: "idempotency/at-once-waits", name: "409", edit: func(s *bare.Server) { s.Conflict, s.Delay = true, 500*time.Millisecond }},
	{rule: "idempotency/needs-a-key", name: "replays first", edit: func(s *bare.Server) {
		s.Stages = []bare.Stage{bare.RequestID, bare.Idempotency, bare.Authenticate, bare.RateLimit, bare.Route, bare.Scope}
		s.Partition = func(*http.Request, bare.Key) string { return "" }
	}},
	{rule: "idempotency/other-organization", name: "all share", edit: func(s *bare.Server) {
		s.Partition = func(_ *http.Request, k bare.Key) string { return k.Environment }
	}},
	{rule: "idempotency/other-environment", name: "both share", edit: func(s *bare.Server) {
		s.Partition = func(_ *http.Request, k bare.Key) string { return k.Organization }
	}},
	{rule: "idempotency/other-body", name: "not compared", edit: func(s *bare.Server) {
		s.Fingerprint = func(r *http.Request, _ []byte) string { return r.URL.Path }
	}},
	{rule: "idempotency/other-path", name: "not compared", edit: func(s *bare.Server) {
		s.Stages = []bare.Stage{bare.RequestID, bare.Authenticate, bare.RateLimit, bare.Scope, bare.Idempotency, bare.Route}
		s.Fingerprint = func(_ *http.Request, body []byte) string { return string(body) }
	}},
	{rule: "idempotency/bad-keys", name: "empty", around: keys(func(v []string) []string { return slices.DeleteFunc(v, func(s string) bool { return s == "" }) })},
	{rule: "idempotency/bad-keys", name: "long", around: keys(func(v []string) []string { return []string{v[0][:min(len(v[0]), 255)]} })},
	{rule: "idempotency/bad-keys", name: "not ASCII", around: keys(func(v []string) []string { return []string{strings.ReplaceAll(v[0], "é", "e")} })},
	{rule: "idempotency/bad-keys", name: "two", around: keys(func(v []string) []string { return v[:1] })},
	{rule: "idempotency/reads", name: "stored", edit: func(s *bare.Server) {
		s.IdemKey = func(r *http.Request, _ []byte) (string, bool) { return r.Header.Get("Idempotency-Key"), true }
		s.Fingerprint = func(*http.Request, []byte) string { return "" }
	}},
	{rule: "idempotency/reads", name: "claimed", edit: func(s *bare.Server) {
		s.IdemKey = func(r *http.Request, _ []byte) (string, bool) { return r.Header.Get("Idempotency-Key"), true }
	}},
	{rule: "idempotency/refusals", name: "remembered", edit: func(s *bare.Server) {
		s.Stages = []bare.Stage{bare.RequestID, bare.Authenticate, bare.RateLimit, bare.Route, bare.Idempotency, bare.Scope}
		s.Keep = func(int) bool { return true }
	}},
	{rule: "idempotency/request-id", name: "the first one's", around: after(func(_ *http.Request, w *httptest.ResponseRecorder) {
		if id := w.Header().Get("Svc-Original-Request-Id"); id != "" {
			w.Header().Set(idHeader, id)
		}
	})},
	{rule: "idempotency/request-id", name: "both", around: after(func(_ *http.Request, w *httptest.ResponseRecorder) {
		if id := w.Header().Get("Svc-Original-Request-Id"); id != "" {
			w.Header().Add(idHeader, id)
		}
	})},
	{rule: "idempotency/marked", name: "not marked", around: on(201, without("Idempotent-Replayed"))},
	{rule: "idempotency/marked", name: "always marked", around: on(201, with("Idempotent-Replayed", "true"))},
	{rule: "idempotency/marked", name: "the first is not named", around: on(201, without("Svc-Original-Request-Id"))},

	{rule: "wire/request-line", name: "net/http as it is"},
	{rule: "wire/header", name: "net/http as it is"},
	{rule: "wire/host", name: "net/http as it is"},
	{rule: "wire/large-header", name: "net/http as it is"},
	{rule: "wire/transfer-coding", name: "net/http as it is"},
	{rule: "wire/version", name: "net/http as it is"},
	{rule: "wire/expectation", name: "net/http as it is"},
	{rule: "wire/asterisk", name: "net/http as it is"},
	{rule: "wire/http-1.0", name: "missing", around: after(func(r *http.Request, w *httptest.ResponseRecorder) {
		if r.ProtoMinor == 0 {
			w.Header().Del(idHeader)
		}
	})},
	{rule: "wire/pipelining", name: "an id a connection", around: after(func(r *http.Request, w *httptest.ResponseRecorder) { w.Header().Set(idHeader, r.RemoteAddr) })},
	{rule: "wire/early-close", name: "the claim stays", edit: func(s *bare.Server) {
		s.Interrupt, s.Conflict, s.Delay = true, true, time.Second
	}},
	{rule: "wire/cut-body", name: "taken for whole", edit: func(s *bare.Server) { s.IgnoreErrors = true }},
	{rule: "wire/bad-chunk", name: "taken for whole", edit: func(s *bare.Server) { s.IgnoreErrors = true }},
	{rule: "wire/stalled-body", name: "read first", around: readFirst},
	{rule: "wire/expect-refused", name: "read first", around: readFirst},
	{rule: "wire/expect-continue", name: "417", around: instead(func(r *http.Request) bool { return r.Header.Get("Expect") != "" }, 417)},

	{rule: "http2/request-id", name: "missing", around: after(func(r *http.Request, w *httptest.ResponseRecorder) {
		if r.ProtoMajor == 2 {
			w.Header().Del(idHeader)
		}
	})},
	{rule: "http2/request-id", name: "constant", around: after(func(r *http.Request, w *httptest.ResponseRecorder) {
		if r.ProtoMajor == 2 {
			w.Header().Set(idHeader, "1")
		}
	})},
	{rule: "http2/missing-key", name: "an empty token is nobody's", around: before(func(r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer " {
			authorize(r, bare.Full)
		}
	})},
	{rule: "http2/replay", name: "a key belongs to a version", around: before(func(r *http.Request) {
		if r.ProtoMajor == 2 {
			r.Header.Set("Idempotency-Key", r.Header.Get("Idempotency-Key")+"2")
		}
	})},

	{rule: "ratelimit/retry-after", name: "none", around: on(429, without("Retry-After"))},
	{rule: "ratelimit/request-id", name: "none", around: on(429, without(idHeader))},
	{rule: "ratelimit/wait-helps", name: "too soon", around: tooSoon},
	{rule: "ratelimit/whole-seconds", name: "fraction", around: on(429, with("Retry-After", "0.5"))},
	{rule: "ratelimit/whole-seconds", name: "zero", around: on(429, with("Retry-After", "0"))},
	{rule: "ratelimit/whole-seconds", name: "date", around: on(429, with("Retry-After", "Fri, 20 Nov 2026 23:59:59 GMT"))},
	{rule: "ratelimit/only-then", name: "always", around: on(200, with("Retry-After", "1"))},
	{rule: "ratelimit/not-remembered", name: "remembered", edit: func(s *bare.Server) {
		s.Stages = []bare.Stage{bare.RequestID, bare.Authenticate, bare.Idempotency, bare.RateLimit, bare.Route, bare.Scope}
		s.Keep = func(int) bool { return true }
	}},
}

// keys changes the idempotency keys that a request brings.
func keys(change func([]string) []string) func(http.Handler) http.Handler {
	return before(func(r *http.Request) {
		if v := r.Header["Idempotency-Key"]; len(v) > 0 {
			r.Header["Idempotency-Key"] = change(v)
		}
	})
}

// Each fault breaks the rule that it is here for.
func TestBrokenServers(t *testing.T) {
	for _, f := range faults {
		t.Run(f.rule+" "+f.name, func(t *testing.T) {
			t.Parallel()
			s := bare.New(bare.DemoKeys())
			s.Limit = 100
			if f.edit != nil {
				f.edit(s)
			}
			h := s.Handler()
			if f.around != nil {
				h = f.around(h)
			}
			result := check(t, f.rule, h, false)
			if result.Status != rules.Broken {
				t.Errorf("got %s %q, want the rule broken", result.Status, result.Detail)
			}
			t.Log(result.Detail)
		})
	}
}

// The same rules hold on the server without a fault, one by one.
func TestCorrectServer(t *testing.T) {
	for _, r := range rules.All() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			s := bare.New(bare.DemoKeys())
			s.Limit = 100
			if result := check(t, r.Name, s.Handler(), true); result.Status != rules.Held {
				t.Errorf("got %s: %s", result.Status, result.Detail)
			}
		})
	}
}

// A rule that no server breaks proves nothing.
func TestEveryRuleCanBeBroken(t *testing.T) {
	names := make(map[string]bool)
	for _, r := range rules.All() {
		if names[r.Name] {
			t.Errorf("two rules are named %s", r.Name)
		}
		names[r.Name] = true
		if r.Text == "" || r.Source == "" || !strings.Contains(r.Name, "/") {
			t.Errorf("%s lacks a text, a source or a group", r.Name)
		}
		if !slices.ContainsFunc(faults, func(f fault) bool { return f.rule == r.Name }) {
			t.Errorf("no fault breaks %s", r.Name)
		}
	}
}
