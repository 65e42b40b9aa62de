package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestAPIBehindTimeoutHandler: http.TimeoutHandler leaves the goroutine of a
// late handler running. What RequestID does when the response ends must not
// read what that handler may still write.
func TestAPIBehindTimeoutHandler(t *testing.T) {
	release, left := make(chan struct{}), make(chan struct{})
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) { <-release },
		middleware.Options{Hooks: quiet()})
	h := stage()(http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		api.ServeHTTP(w, r)
	}), 20*time.Millisecond, "late"))
	res := serve(h, request("GET", "/api/v1/x", token, ""))
	if wantID(t, res.Response); res.StatusCode != 503 {
		t.Errorf("got %d", res.StatusCode)
	}
	close(release)
	<-left

	// In time, the inner response is the outer one's, and the Events say so.
	var nested []middleware.Event
	o := &observed{t: t}
	hooks := quiet(func(e middleware.Event) { nested = append(nested, e) })
	api, token = oneRoute(t, sayOK, middleware.Options{Hooks: hooks})
	h = middleware.New(nil, middleware.Options{Hooks: o.hooks()}).RequestID(http.TimeoutHandler(api, hangs, "late"))
	outer, res := o.ask(h, request("GET", "/api/v1/x", token, ""))
	if res.StatusCode != 200 || outer.Nested || len(nested) != 1 || !nested[0].Nested ||
		nested[0].Pattern != "GET /api/v1/x" || nested[0].RequestID != outer.RequestID ||
		outer.RequestID != wantID(t, res.Response) {
		t.Errorf("in time: got %d with the Events %+v and %+v", res.StatusCode, outer, nested)
	}
	outer, _ = o.ask(h, request("GET", "/api/v1/x", "", ""))
	if len(nested) != 2 || nested[1].Outcome != "api_key_missing" || outer.Status != 401 || outer.Outcome != "handled" {
		t.Errorf("refused inside: got the Events %+v and %+v", outer, nested)
	}
}

// TestAPIWithinAPI: the inner one decides anew, for its own keys.
func TestAPIWithinAPI(t *testing.T) {
	ring := newKeyring()
	outer := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet()})
	outer.Handle("GET /api/v1/any", middleware.AnyCaller(), testAPI(newKeyring().keys, middleware.Options{Hooks: quiet()}))
	outer.Handle("GET /api/v1/account", middleware.AnyCaller(), testAPI(ring.keys, middleware.Options{Hooks: quiet()}))
	token := ring.issue(t, scope.AccountRead)
	ask := func(path string) answer { return serve(outer, request("GET", path, token, "")) }
	wantRefusal(t, "a key of the outer one", ask("/api/v1/any"), 401, "api_key_invalid", invalid)
	wantAnswer(t, "a key of both", ask("/api/v1/account"), 200, "ok")
}

// fault is one thing that is wrong with a request, or special about it.
type fault string

const (
	noKey          fault = "no key"
	badKey         fault = "bad key"
	revokedKey     fault = "revoked"
	expiredKey     fault = "expired"
	wrongScope     fault = "wrong scope"
	scopeInHandler fault = "wrong scope for the handler"
	overLimit      fault = "over the limit"
	overQuota      fault = "over the quota"
	keyReuse       fault = "key reuse"
	inFlight       fault = "in flight"
	replay         fault = "replay"
	handlerPanics  fault = "panic"
	unknownPath    fault = "unknown path"
	wrongMethod    fault = "wrong method"
	redirect       fault = "trailing slash"
	keyStoreDown   fault = "key store down"
	rateStoreDown  fault = "rate store down"
	replyStoreDown fault = "reply store down"
	atCommit       fault = "constraint at COMMIT"
)

// TestOrder has one row for each fault and each pair of neighbours: the order
// in which the stages look at a request is the product.
func TestOrder(t *testing.T) {
	rows := []struct {
		faults []fault
		stage  string // that decided
		status int
		code   string
		header string // one that must be there
	}{
		{nil, "idempotency", 201, "executed", "Location"},
		{[]fault{noKey}, "authenticate", 401, "api_key_missing", "Www-Authenticate"},
		{[]fault{noKey, badKey}, "authenticate", 401, "api_key_invalid", "Www-Authenticate"},
		{[]fault{badKey}, "authenticate", 401, "api_key_invalid", "Www-Authenticate"},
		{[]fault{badKey, revokedKey}, "authenticate", 401, "api_key_invalid", "Www-Authenticate"},
		{[]fault{revokedKey}, "authenticate", 401, "api_key_invalid", "Www-Authenticate"},
		{[]fault{revokedKey, expiredKey}, "authenticate", 401, "api_key_invalid", "Www-Authenticate"},
		{[]fault{expiredKey}, "authenticate", 401, "api_key_invalid", "Www-Authenticate"},
		{[]fault{expiredKey, wrongScope}, "authenticate", 401, "api_key_invalid", "Www-Authenticate"},
		{[]fault{wrongScope}, "scope", 403, "insufficient_scope", "Www-Authenticate"},
		{[]fault{wrongScope, scopeInHandler}, "scope", 403, "insufficient_scope", "Www-Authenticate"},
		{[]fault{scopeInHandler}, "scope", 403, "insufficient_scope", "Www-Authenticate"},
		{[]fault{scopeInHandler, replay}, "idempotency", 403, "replayed", "Idempotent-Replayed"},
		{[]fault{wrongScope, overLimit}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{overLimit}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{overLimit, keyReuse}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{wrongScope, overQuota}, "scope", 403, "insufficient_scope", "Www-Authenticate"},
		{[]fault{overLimit, overQuota}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{overQuota}, "quota", 403, "quota_exceeded", "X-Should-Retry"},
		{[]fault{overQuota, keyReuse}, "idempotency", 422, "idempotency_key_reused", "Cache-Control"},
		{[]fault{overQuota, replay}, "idempotency", 201, "replayed", "Idempotent-Replayed"},
		{[]fault{overQuota, handlerPanics}, "quota", 403, "quota_exceeded", "X-Should-Retry"},
		{[]fault{keyReuse}, "idempotency", 422, "idempotency_key_reused", "Cache-Control"},
		{[]fault{keyReuse, inFlight}, "idempotency", 422, "idempotency_key_reused", "Cache-Control"},
		{[]fault{inFlight}, "idempotency", 409, "idempotency_in_progress", "Retry-After"},
		{[]fault{inFlight, replay}, "idempotency", 201, "replayed", "Idempotent-Replayed"}, // waits for it
		{[]fault{replay}, "idempotency", 201, "replayed", "Idempotent-Replayed"},
		{[]fault{replay, handlerPanics}, "idempotency", 500, "replayed", "Idempotent-Replayed"},
		{[]fault{handlerPanics}, "recover", 500, "internal", "Cache-Control"},
		{[]fault{handlerPanics, unknownPath}, "route", 404, "not_found", "Cache-Control"},
		{[]fault{unknownPath}, "route", 404, "not_found", "Cache-Control"},
		{[]fault{unknownPath, wrongMethod}, "route", 404, "not_found", "Cache-Control"},
		{[]fault{wrongMethod}, "route", 405, "method_not_allowed", "Allow"},
		{[]fault{wrongMethod, redirect}, "route", 405, "method_not_allowed", "Allow"},
		{[]fault{redirect}, "route", 307, "redirected", "Location"},
		{[]fault{redirect, keyStoreDown}, "authenticate", 503, "key_store_unavailable", "Retry-After"},
		{[]fault{redirect, rateStoreDown}, "rate_limit", 503, "rate_store_unavailable", "Retry-After"},
		{[]fault{redirect, replyStoreDown}, "route", 307, "redirected", "Location"},
		{[]fault{keyStoreDown}, "authenticate", 503, "key_store_unavailable", "Retry-After"},
		{[]fault{keyStoreDown, rateStoreDown}, "authenticate", 503, "key_store_unavailable", "Retry-After"},
		{[]fault{rateStoreDown}, "rate_limit", 503, "rate_store_unavailable", "Retry-After"},
		{[]fault{rateStoreDown, replyStoreDown}, "rate_limit", 503, "rate_store_unavailable", "Retry-After"},
		{[]fault{replyStoreDown}, "idempotency", 503, "idempotency_store_unavailable", "Retry-After"},
		{[]fault{overLimit, atCommit}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{atCommit}, "idempotency", 409, "constraint_violated", "X-Should-Retry"},
		// Beyond neighbours: the stores are asked in the order of the stages.
		{[]fault{noKey, keyStoreDown}, "authenticate", 401, "api_key_missing", "Www-Authenticate"},
		{[]fault{noKey, unknownPath}, "authenticate", 401, "api_key_missing", "Www-Authenticate"},
		{[]fault{overLimit, unknownPath}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{overLimit, redirect}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{wrongScope, replay}, "scope", 403, "insufficient_scope", "Www-Authenticate"},
		{[]fault{revokedKey, replay}, "authenticate", 401, "api_key_invalid", "Www-Authenticate"},
		{[]fault{wrongScope, replyStoreDown}, "scope", 403, "insufficient_scope", "Www-Authenticate"},
	}
	seen := map[string]string{}
	for _, row := range rows {
		name := "nothing wrong"
		if len(row.faults) > 0 {
			texts := make([]string, len(row.faults))
			for i, f := range row.faults {
				texts[i] = string(f)
			}
			name = strings.Join(texts, " + ")
		}
		t.Run(strings.ReplaceAll(name, " + ", "+"), func(t *testing.T) {
			// In a bubble the waits and dates in the responses are always the
			// same.
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *middleware.Options) {
					if len(row.faults) == 2 && row.faults[0] == inFlight && row.faults[1] == replay {
						o.Idempotency.Runner = replies() // waits
					}
					if slices.Contains(row.faults, overQuota) {
						smallQuota(o)
					}
					if slices.Contains(row.faults, atCommit) {
						notCommitted(idem.ErrConstraint)(o)
					}
				})
				a, last, runs := w.try(t, row.faults)
				if a.StatusCode != row.status || last.Stage != row.stage || last.Status != row.status {
					t.Errorf("%s: %d from %q, want %d from %q\n%s", name, a.StatusCode, last.Stage, row.status, row.stage, a.body)
				}
				if last.Outcome != row.code {
					t.Errorf("%s: outcome %q, want %q", name, last.Outcome, row.code)
				}
				if len(a.Header[row.header]) != 1 {
					t.Errorf("%s: %s is %q, want one value", name, row.header, a.Header[row.header])
				}
				if may := row.code == "executed" || row.code == "internal" || row.code == "constraint_violated" ||
					row.faults[0] == scopeInHandler && len(row.faults) == 1; runs > 0 != may {
					t.Errorf("%s: the request ran the handler %d times", name, runs)
				}
				ids := a.Header["Svc-Request-Id"]
				if len(ids) != 1 || !xids.MatchString(ids[0]) {
					t.Fatalf("%s: Svc-Request-Id is %q, want one id", name, ids)
				}
				if other, has := seen[ids[0]]; has {
					t.Errorf("%s: the id %s is that of %s", name, ids[0], other)
				}
				seen[ids[0]] = name
			})
		})
	}
}

// try sends the request that has the faults. It returns the answer, the Event
// of the response, and how often the request ran a handler.
func (w *world) try(t *testing.T, faults []fault) (answer, middleware.Event, int64) {
	has := func(f fault) bool { return slices.Contains(faults, f) }

	// What was before the request, sent with a key of the same organization
	// that nothing is wrong with.
	release := make(chan struct{})
	if has(handlerPanics) {
		w.does(func(http.ResponseWriter, *http.Request) { panic("a bug") })
	}
	if has(scopeInHandler) {
		w.does(needs(middleware.Require(scope.TasksCancel)))
	}
	if has(inFlight) {
		create := *w.create.Load()
		w.does(func(rw http.ResponseWriter, r *http.Request) {
			<-release
			create(rw, r)
		})
		go serve(w.api, w.post(`{"title":"one"}`))
		synctest.Wait()
	} else if has(replay) || has(keyReuse) {
		serve(w.api, w.post(`{"title":"one"}`))
	}
	if has(overQuota) && !has(replay) && !has(keyReuse) { // otherwise that request has used it up
		serve(w.api, request("POST", "/api/v1/tasks", w.token, "{}"))
	}
	for has(overLimit) && serve(w.api,
		request("GET", "/api/v1/tasks", w.token, "")).StatusCode != http.StatusTooManyRequests {
	}

	// The key of the request.
	grant := keystore.Key{Organization: "org_1", Environment: keystore.Production,
		Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}}
	if has(wrongScope) {
		grant.Scopes = grant.Scopes[:1]
	}
	token, key := w.ring.grant(t, grant)
	if has(expiredKey) {
		w.ring.expire(t, key)
	}
	if has(revokedKey) {
		if _, err := w.ring.issuer.Revoke(t.Context(), key.Organization, key.ID); err != nil {
			t.Fatal(err)
		}
	}
	if has(badKey) {
		token = token[:len(token)-1] + "!"
	}
	w.outage(faults...)

	// The request.
	method, path, body := "POST", "/api/v1/tasks", `{"title":"one"}`
	if has(redirect) {
		path = "/api/v1/batches"
	}
	if has(unknownPath) {
		path = "/api/v1/nothing"
	}
	if has(wrongMethod) {
		method = "DELETE"
	}
	if has(keyReuse) {
		body = `{"title":"two"}`
	}
	r := request(method, path, token, body, "Idempotency-Key: key-1")
	if has(noKey) {
		r.Header.Del("Authorization")
		if has(badKey) { // both at once: one line without a key, one with a bad key
			r.Header["Authorization"] = []string{"", "Bearer " + token}
		}
	}
	if has(inFlight) {
		time.AfterFunc(time.Second, func() { close(release) })
	}
	before := w.runs.Load()
	a := serve(w.api, r)
	runs := w.runs.Load() - before
	if has(inFlight) {
		time.Sleep(time.Second)
	}
	return a, w.last(a.Header.Get("Svc-Request-Id")), runs
}

// A handler may send requests of its own through the API on its own context, also
// one beside the API, within RequestID alone: at once, or one after another. Each
// is decided for itself, and none changes who the outer one is.
func TestRequestWithinRequest(t *testing.T) {
	ring := newKeyring()
	strong := ring.plant(t, keystore.Key{Organization: "org_strong", Scopes: []scope.Name{scope.TasksWrite}})
	outer, weak := ring.issue(t), ring.issue(t, scope.TasksRead)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.PerOrganization("1000-S"),
		Idempotency: keyedOptions{Runner: replies()}})
	var runs atomic.Int64
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, middleware.CallerFrom(r.Context()).Organization())
		})
	api.HandleFunc("GET /api/v1/nothing", middleware.AnyCaller(), func(http.ResponseWriter, *http.Request) {})
	batch := func(w http.ResponseWriter, r *http.Request) {
		within := func(method, path, token, key string) answer {
			own := request(method, "/api/v1/"+path, token, "{}", "Idempotency-Key: "+key)
			return serve(api, own.WithContext(r.Context()))
		}
		if got := within("GET", "nothing", strong, ""); got.StatusCode != 200 ||
			got.Header.Get(idHeader) != middleware.RequestIDFrom(r.Context()) {
			t.Errorf("an empty response: %d with %v", got.StatusCode, got.Header)
		}
		for i, want := range []string{"", "true"} {
			got := within("POST", "tasks", strong, "same "+r.URL.Path)
			if wantID(t, got.Response); got.StatusCode != 201 || got.Header.Get("Idempotent-Replayed") != want {
				t.Errorf("inner request %d: %d with %v, want 201 and replayed %q", i, got.StatusCode, got.Header, want)
			}
		}
		var parallel sync.WaitGroup
		for range 100 {
			parallel.Go(func() {
				wantAnswer(t, "a key without the scope", within("POST", "tasks", weak, "other "+r.URL.Path), 403)
			})
			parallel.Go(func() {
				got := within("POST", "tasks", strong, "other "+r.URL.Path)
				wantAnswer(t, "a key with the scope", got, 201, "org_strong")
			})
		}
		parallel.Wait()
		_, _ = io.WriteString(w, middleware.CallerFrom(r.Context()).Organization())
	}
	api.HandleFunc("POST /api/v1/batch", middleware.AnyCaller(), batch)
	got := serve(api, request("POST", "/api/v1/batch", outer, "{}", "Idempotency-Key: outer"))
	wantAnswer(t, "the outer request", got, 200, "org_1")
	// Nobody is authenticated there, before or after.
	if got := serve(stage()(http.HandlerFunc(batch)), request("POST", "/batch", "", "")); got.body != "" {
		t.Errorf("the request outside the API has become %s", got.body)
	}
	guarded := keyless().Enforce(middleware.Require(scope.TasksWrite))(sayOK)
	after := func(w http.ResponseWriter, r *http.Request) {
		batch(httptest.NewRecorder(), r)
		guarded.ServeHTTP(w, r)
	}
	if got := serve(stage()(http.HandlerFunc(after)), request("POST", "/", "", "")); got.StatusCode != 500 {
		t.Errorf("the guarded handler outside: got %d, want 500", got.StatusCode)
	}
	if runs.Load() != 6 {
		t.Errorf("ran %d times for two keys in each of three", runs.Load())
	}
}

// TestPathValuesOfALargerMux: the API's mux leaves the path values alone that
// one outside has found, and tells it the inner pattern at the end.
func TestPathValuesOfALargerMux(t *testing.T) {
	ring, token := oneKey(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Base: "/t"})
	api.HandleFunc("GET /t/{x}/y", middleware.AnyCaller(), func(http.ResponseWriter, *http.Request) {})
	for path, pattern := range map[string]string{"/t/acme/y": "GET /t/{x}/y", "/t/acme/none": "/t/{tenant}/"} {
		mux := http.NewServeMux()
		mux.HandleFunc("/t/{tenant}/", func(w http.ResponseWriter, r *http.Request) {
			api.ServeHTTP(w, r)
			if tenant := r.PathValue("tenant"); tenant != "acme" || r.Pattern != pattern {
				t.Errorf("%s: tenant %q and pattern %q afterwards", path, tenant, r.Pattern)
			}
		})
		serve(mux, request("GET", path, token, ""))
	}
}

// TestMaxBytesReaderThroughTheWriter: a client that declares a large body and
// stalls gets its 413 without waiting, although no wrapper can forward what
// http.MaxBytesReader asks the server's own writer for.
func TestMaxBytesReaderThroughTheWriter(t *testing.T) {
	refuse := map[string]func(w http.ResponseWriter, r *http.Request){
		"http.Error": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		},
		"WriteProblem": func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large"})
		},
	}
	for name, refuse := range refuse {
		api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4))
			if tooLarge := (*http.MaxBytesError)(nil); !errors.As(err, &tooLarge) {
				t.Errorf("got %v, want an *http.MaxBytesError", err)
			}
			refuse(w, r)
		}, middleware.Options{Hooks: quiet()})
		srv := start(t, api)
		for _, length := range []string{"Content-Length: 200000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3e8\r\n"} {
			c := dial(t, srv)
			c.send("PUT /api/v1/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\n" +
				length + strings.Repeat("x", 1000))
			res := c.next("PUT")
			if wantID(t, res.Response); res.StatusCode != 413 || !res.Close {
				t.Errorf("%s, %s: got %d, close %v", name, length, res.StatusCode, res.Close)
			}
		}
	}
}

// TestSmuggledTail: net/http takes a request with both a length and chunks for
// chunked (and, up to Go 1.26, keeps the connection). Whatever it makes of the
// rest, that has to bring its own key.
func TestSmuggledTail(t *testing.T) {
	served := 0
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) { served++ },
		middleware.Options{Hooks: quiet()})
	c := dial(t, start(t, api, withRequestIDs))
	c.send("PUT /api/v1/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token +
		"\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
		"PUT /api/v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	first := c.next("PUT")
	if wantID(t, first.Response); first.StatusCode != 200 && first.StatusCode != 400 {
		t.Errorf("got %d first", first.StatusCode)
	}
	if !first.Close {
		second := c.next("PUT")
		if wantID(t, second.Response); second.StatusCode != 401 {
			t.Errorf("the tail: got %d", second.StatusCode)
		}
	}
	if io.Copy(io.Discard, c); served > 1 {
		t.Errorf("the handler ran %d times", served)
	}
}

// TestStalledBodyWithoutKey: whoever has no key cannot hold its 401 back by not
// sending the body it has declared, nor the 500 of a panic.
func TestStalledBodyWithoutKey(t *testing.T) {
	g := middleware.New(nil, middleware.Options{Hooks: quiet()})
	for want, h := range map[int]http.Handler{
		401: testAPI(newKeyring().keys, middleware.Options{Hooks: quiet()}),
		500: middleware.Chain(g.RequestID, g.Recover)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic("boom")
		})),
	} {
		srv := start(t, h)
		for _, length := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked", "Content-Length: 1000000"} {
			for _, auth := range []string{"", "Authorization: Bearer nonsense\r\n"} {
				c := dial(t, srv)
				c.send("POST /api/v1/tasks HTTP/1.1\r\nHost: a\r\n" + auth + length + "\r\n\r\n")
				if res := c.next("POST"); res.StatusCode != want || !res.Close {
					t.Errorf("%s: got %d, close %v, want %d", length, res.StatusCode, res.Close, want)
				}
			}
		}
	}
}

// TestExpectContinue: a client is asked for its body when its request is let
// pass, and refused without it.
func TestExpectContinue(t *testing.T) {
	ring, token := oneKey(t, scope.TasksWrite)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet()})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	api.HandleFunc("POST /api/v1/account", middleware.Require(scope.AccountRead), sayOK)
	srv := start(t, api)
	for _, tt := range []struct {
		path, token, line string
		first             int
	}{
		{"tasks", "", "A: b", 401}, {"account", token, "A: b", 403}, {"none", token, "A: b", 404},
		{"tasks", token, "Idempotency-Key: ", 400},
		{"tasks", token, "A: b", 100}, {"tasks", token, "Idempotency-Key: a", 100},
	} {
		c := dial(t, srv)
		c.send("POST /api/v1/" + tt.path + " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n" +
			"Authorization: Bearer " + tt.token + "\r\n" + tt.line + "\r\n\r\n")
		if res := c.head("POST"); res.StatusCode != tt.first {
			t.Errorf("%+v: got %d first", tt, res.StatusCode)
		}
		if tt.first != 100 {
			continue
		}
		c.send("body")
		wantAnswer(t, fmt.Sprintf("%+v", tt), c.next("POST"), 200, "body")
	}
}

func TestSharedRequest(t *testing.T) {
	ring, token := oneKey(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet()})
	h := middleware.Chain(g.RequestID, g.Recover, anyCaller(g))(sayOK)
	r := request("GET", "/", token, "")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { serve(h, r) })
	}
	wg.Wait()
}

// TestMirroredRequest: middleware between RequestID and an API sends a copy of
// the request elsewhere, at the same time. The race detector watches.
func TestMirroredRequest(t *testing.T) {
	ring, token := oneKey(t)
	api := apiOf(ring.keys, middleware.Options{Hooks: quiet()}, middleware.AnyCaller(), sayOK)
	elsewhere := middleware.New(ring.keys, middleware.Options{}).Authenticate(sayOK)
	var mirrored sync.WaitGroup
	h := keyless().RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		again := r.Clone(r.Context())
		mirrored.Go(func() { elsewhere.ServeHTTP(httptest.NewRecorder(), again) })
		api.ServeHTTP(w, r)
	}))
	for range 20 {
		serve(h, request("GET", "/api/v1/x", token, ""))
	}
	mirrored.Wait()
}

// TestFactsDoNotChange fails under the race detector, which the gate uses.
func TestFactsDoNotChange(t *testing.T) {
	var wg sync.WaitGroup
	plan := func(ctx context.Context, p *keystore.Caller) (_, _ *ratelimit.Policy, _ error) {
		wg.Go(func() { // refreshes a cache in the background
			for range 100 {
				middleware.WithCaller(ctx, p)
			}
		})
		return ratelimit.Unlimited, nil, nil
	}
	api, token := oneRoute(t, sayOK, middleware.Options{Hooks: quiet(),
		RateLimit: rateOptions{Store: &ratelimit.Memory{}, Plan: plan}})
	for range 20 {
		serve(api, request("GET", "/api/v1/x", token, ""))
	}
	wg.Wait()
}

// TestFreeOfWhom: Free speaks for the operation whose claim the handler
// runs under, through whatever stages stand in between, and for no other.
func TestFreeOfWhom(t *testing.T) {
	ring, token := oneKey(t)
	free := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		middleware.ExecutionFrom(r.Context()).Free()
	})
	o := func() middleware.Options {
		return middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}}
	}
	once := rateOptions{Store: &ratelimit.Memory{}, Client: policy("client", "1-H", 0)}
	forms := claiming(ring, o)
	post := func(ctx context.Context, h http.Handler, query, line string) int {
		return serve(h, request("POST", "/api/v1/x"+query, token, "{}", line).WithContext(ctx)).StatusCode
	}
	const keyed, plain = "Idempotency-Key: inner", "X-None: 1"
	for form, build := range forms {
		once.Store = &ratelimit.Memory{}
		limit := middleware.New(nil, middleware.Options{Hooks: quiet(), RateLimit: once}).RateLimit(sayOK)
		freed := 0
		inner := build(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { freed++; free.ServeHTTP(w, r) }))
		within := func(h http.Handler, line string) http.HandlerFunc {
			return func(_ http.ResponseWriter, r *http.Request) { post(r.Context(), h, "?inner", line) }
		}
		for name, row := range map[string]struct {
			do    http.HandlerFunc
			freed bool
		}{
			"its own":                  {free.ServeHTTP, true},
			"behind a stage":           {foreignWriter(keyless().RateLimit(free)).ServeHTTP, true},
			"as another caller":        {as(by(t, "other"))(free).ServeHTTP, false},
			"a request within":         {within(inner, plain), false},
			"a keyed request within":   {within(inner, keyed), false},
			"a refused request within": {within(limit, plain), false},
		} {
			runs := 0
			h := build(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { runs++; row.do(w, r) }))
			for range 2 {
				if got := post(t.Context(), h, "", "Idempotency-Key: a"); got != 200 {
					t.Errorf("%s, %s: got %d", form, name, got)
				}
			}
			if freed := runs == 2; freed != row.freed {
				t.Errorf("%s, %s: ran %d times for one key, want the key freed: %t", form, name, runs, row.freed)
			}
		}
		if post(t.Context(), inner, "?inner", keyed); freed != 3 {
			t.Errorf("%s: the inner handler ran %d times, want 3: it has freed its own key", form, freed)
		}
		if got := post(t.Context(), limit, "?inner", plain); got != 429 {
			t.Errorf("%s: the limit within answers %d", form, got)
		}
	}
}

// ofOneConnection is a response beside that of a connection, which it tells.
type ofOneConnection struct {
	*httptest.ResponseRecorder
	beneath http.ResponseWriter
}

func (o ofOneConnection) Unwrap() http.ResponseWriter { return o.beneath }

// TestResponsesOfOneConnection: a handler may make other responses of its
// connection, at once or in turn. Each has one id and an Event of its own.
func TestResponsesOfOneConnection(t *testing.T) {
	ring := newKeyring()
	one := ring.plant(t, keystore.Key{Organization: "org_one"})
	two := ring.plant(t, keystore.Key{Organization: "org_two"})
	var mu sync.Mutex
	var got []string
	hooks := quiet()
	hooks.Observe = func(_ context.Context, e middleware.Event) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(e.Caller.Organization(), e.Status))
	}
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: hooks})
	api.HandleFunc("GET /api/v1/x", middleware.AnyCaller(), sayOK)
	api.HandleFunc("POST /api/v1/batch", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
		var wg sync.WaitGroup
		for _, token := range []string{two, "svc_live_bad"} {
			wg.Go(func() {
				s := ofOneConnection{httptest.NewRecorder(), w}
				api.ServeHTTP(s, request("GET", "/api/v1/x", token, "").WithContext(r.Context()))
				if n := len(s.Header()[idHeader]); n != 1 {
					t.Errorf("the inner response %d has %d request ids", s.Code, n)
				}
			})
			if !r.URL.Query().Has("parallel") {
				wg.Wait()
			}
		}
		wg.Wait()
		w.WriteHeader(201)
	})
	for _, query := range []string{"", "?parallel"} {
		got = nil
		serve(api, request("POST", "/api/v1/batch"+query, one, "{}"))
		if len(got) != 3 || got[2] != "org_one201" || !slices.Contains(got, "org_two200") || !slices.Contains(got, "401") {
			t.Errorf("%q: got the Events %q, want three, the last of org_one", query, got)
		}
	}
}
