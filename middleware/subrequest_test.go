package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// A handler may send requests of its own through the API on its own context. Each
// is decided for itself, and none changes who the outer one is.
func TestRequestWithinRequest(t *testing.T) {
	ring := newKeyring()
	api := middleware.NewAPI(ring.keys, middleware.Options{Replies: replies()})
	service, _ := ring.grant(t, keystore.Grant{Organization: "org_service", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksWrite}})
	outer, powerless := ring.issue(t), ring.issue(t, scope.TasksRead)
	var runs atomic.Int64
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.WriteHeader(http.StatusCreated)
	})
	within := func(r *http.Request, token, key string) *httptest.ResponseRecorder {
		sub, _ := http.NewRequestWithContext(r.Context(), http.MethodPost, "/api/v1/tasks", strings.NewReader("{}"))
		sub.Header.Set("Authorization", "Bearer "+token)
		sub.Header.Set("Idempotency-Key", key)
		rec := httptest.NewRecorder()
		api.ServeHTTP(rec, sub)
		return rec
	}
	api.HandleFunc("POST /api/v1/batch", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		for i, want := range []string{"", "true"} {
			rec := within(r, service, "same")
			if got := rec.Header().Get("Idempotent-Replayed"); rec.Code != http.StatusCreated || got != want || len(rec.Header()["Svc-Request-Id"]) != 1 {
				t.Errorf("inner request %d: %d with %v, want 201 and replayed %q", i, rec.Code, rec.Header(), want)
			}
		}
		var parallel sync.WaitGroup
		for range 50 {
			parallel.Go(func() { within(r, service, "other") })
			parallel.Go(func() {
				if rec := within(r, powerless, "other"); rec.Code != http.StatusForbidden {
					t.Errorf("a key without the scope got %d", rec.Code)
				}
			})
		}
		parallel.Wait()
		who, _ := middleware.PrincipalFrom(r.Context())
		_, _ = io.WriteString(w, who.Organization())
	})
	got := serve(api, request("POST", "/api/v1/batch", outer, "{}", "Idempotency-Key: outer"))
	if got.StatusCode != 200 || got.body != "org_1" {
		t.Errorf("the outer request: %d %q, want 200 and its own organization", got.StatusCode, got.body)
	}
	if runs.Load() != 2 {
		t.Errorf("ran %d times for two keys", runs.Load())
	}
}
