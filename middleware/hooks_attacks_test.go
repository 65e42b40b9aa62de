package middleware_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
)

// TestProblemHookThatAsksForTheDefault: the hook may write the default to a
// recorder and change it. It is not called again for that.
func TestProblemHookThatAsksForTheDefault(t *testing.T) {
	ring := newKeyring()
	calls := 0
	hooks := quiet()
	hooks.Problem = func(r *http.Request, p middleware.Problem) (string, []byte) {
		if calls++; calls > 1 {
			runtime.Goexit() // an overflow of the stack would end the process
		}
		rec := httptest.NewRecorder()
		middleware.WriteProblem(struct{ http.ResponseWriter }{rec}, r, p)
		return "application/json", bytes.ReplaceAll(rec.Body.Bytes(), []byte("credentials were"), []byte("token was"))
	}
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: hooks})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res := serve(api, request("GET", "/api/v1/x", "", "")); res.StatusCode != 401 || !strings.Contains(res.body, "No token was sent") {
			t.Errorf("got %d %s", res.StatusCode, res.body)
		}
	}()
	<-done
	if calls != 1 {
		t.Errorf("the hook was called %d times", calls)
	}
}

// TestProblemHookKnowsTheCaller: it may choose the language or form by caller.
func TestProblemHookKnowsTheCaller(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	hooks := quiet()
	hooks.Problem = func(r *http.Request, p middleware.Problem) (string, []byte) {
		who, known := middleware.PrincipalFrom(r.Context())
		return "text/plain", fmt.Appendf(nil, "%t %t %t", known, who.KeyID() != "", middleware.RequestIDFrom(r.Context()) == p.RequestID)
	}
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: hooks})
	for token, want := range map[string]string{"": "false false true", token: "true true true"} {
		if res := serve(api, request("GET", "/api/v1/x", token, "")); res.body != want {
			t.Errorf("%d: got %q, want %q", res.StatusCode, res.body, want)
		}
	}
}

func TestSecretsOfOtherSchemes(t *testing.T) {
	ring := newKeyring()
	who := callerOf(t, ring)
	for name, tt := range map[string]struct {
		header, value, secret string
		panics                func(r *http.Request) any
	}{
		"basic": {"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:correct horse battery")), "correct horse battery", func(r *http.Request) any {
			u, p, _ := r.BasicAuth()
			return "cannot log in " + u + " with " + p
		}},
		"cookie":    {"Cookie", "session=5e55104f0000ffff5e55104f", "5e55104f0000ffff5e55104f", func(r *http.Request) any { return r }},
		"x-api-key": {"X-Api-Key", "5e55104f0000ffff5e55104f", "5e55104f0000ffff5e55104f", func(r *http.Request) any { return fmt.Errorf("bad: %v", r.Header) }},
	} {
		log := newLogged()
		api := middleware.NewAPI(nil, middleware.Options{Hooks: log.hooks(), Authenticator: authenticatorFunc(func(*http.Request) (middleware.Principal, error) { return who, nil })})
		api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) { panic(tt.panics(r)) })
		serve(api, request("GET", "/api/v1/x", "", "", tt.header+": "+tt.value))
		if strings.Contains(log.String(), tt.secret) {
			t.Errorf("%s: the log has the secret", name)
		}
	}
}

// A RequestIDOptions.Trust that panics trusts nobody. The panic stands outside
// Recover, and net/http would log it with the key.
func TestTrustThatPanics(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, pieces := range []bool{false, true} {
		log := newLogged()
		o := middleware.Options{Hooks: log.hooks(), RequestID: middleware.RequestIDOptions{Trust: func(r *http.Request) bool { panic(r.Header) }}}
		g := middleware.New(ring.keys, o)
		h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate)(http.HandlerFunc(sayOK))
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

func TestInnerKeyInOuterLog(t *testing.T) {
	ring := newKeyring()
	token, inner := ring.issue(t), ring.issue(t)
	log := newLogged()
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: log.hooks()})
	api.HandleFunc("GET /api/v1/y", middleware.AnyKey(), sayOK)
	api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		sub := request("GET", "/api/v1/y", inner, "").WithContext(r.Context())
		serve(api, sub)
		panic(sub) // the request that it sent
	})
	serve(api, request("GET", "/api/v1/x", token, ""))
	if strings.Contains(log.String(), inner) {
		t.Error("the key of the inner request is in the log")
	}
}

func TestEventOfGoexit(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var got middleware.Event
	hooks := quiet()
	hooks.Observe = func(ctx context.Context, e middleware.Event) { got = e }
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: hooks})
	api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half")
		runtime.Goexit()
	})
	var wg sync.WaitGroup
	wg.Go(func() { serve(api, request("GET", "/api/v1/x", token, "")) })
	wg.Wait()
	t.Logf("%+v", got)
	if !got.Aborted {
		t.Error("not aborted")
	}
}
