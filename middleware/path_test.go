package middleware_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// fault is one thing that is wrong with a request, or special about it.
type fault string

const (
	noKey          fault = "no key"
	badKey         fault = "bad key"
	revokedKey     fault = "revoked"
	expiredKey     fault = "expired"
	wrongScope     fault = "wrong scope"
	overLimit      fault = "over the limit"
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
)

// TestOrder has one row for each fault and each pair of neighbours: the order
// in which the stages look at a request is the product. The golden file has the
// responses.
func TestOrder(t *testing.T) {
	rows := []struct {
		faults []fault
		stage  middleware.Stage // that decided
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
		{[]fault{wrongScope, overLimit}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{overLimit}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{overLimit, keyReuse}, "rate_limit", 429, "rate_limited", "Retry-After"},
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
		// Beyond neighbours: the stores are asked in the order of the stages.
		{[]fault{noKey, keyStoreDown}, "authenticate", 401, "api_key_missing", "Www-Authenticate"},
		{[]fault{noKey, unknownPath}, "authenticate", 401, "api_key_missing", "Www-Authenticate"},
		{[]fault{overLimit, unknownPath}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{overLimit, redirect}, "rate_limit", 429, "rate_limited", "Retry-After"},
		{[]fault{wrongScope, replay}, "scope", 403, "insufficient_scope", "Www-Authenticate"},
		{[]fault{revokedKey, replay}, "authenticate", 401, "api_key_invalid", "Www-Authenticate"},
		{[]fault{wrongScope, replyStoreDown}, "scope", 403, "insufficient_scope", "Www-Authenticate"},
	}
	page := openGolden(t, "order")
	seen := map[string]string{}
	var titles []string
	for _, row := range rows {
		name := "nothing wrong"
		if len(row.faults) > 0 {
			texts := make([]string, len(row.faults))
			for i, f := range row.faults {
				texts[i] = string(f)
			}
			name = strings.Join(texts, " + ")
		}
		titles = append(titles, name)
		t.Run(strings.ReplaceAll(name, " + ", "+"), func(t *testing.T) {
			// In a bubble the waits and dates in the responses are always the
			// same.
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *middleware.Options) {
					if len(row.faults) == 2 && row.faults[0] == inFlight && row.faults[1] == replay {
						o.Idempotency.Runner = replies() // waits
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
				if may := row.code == "executed" || row.code == "internal"; runs > 0 != may {
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
				page.check(t, name, dump(a))
			})
		})
	}
	page.only(t, titles)
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
	for has(overLimit) && serve(w.api, request("GET", "/api/v1/tasks", w.token, "")).StatusCode != http.StatusTooManyRequests {
	}

	// The key of the request.
	grant := keystore.Grant{Organization: "org_1", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}}
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
	w.keys.down.Store(has(keyStoreDown))
	w.rates.down.Store(has(rateStoreDown))
	w.replies.down.Store(has(replyStoreDown))

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
