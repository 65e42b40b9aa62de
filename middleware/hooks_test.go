package middleware_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestObserve: Hooks.Observe is told what each stage on the path decided, in
// order.
func TestObserve(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t, scope.TasksRead, scope.TasksWrite)
	spent, spentKey := ring.grant(t, keystore.Grant{Organization: "org_2", Environment: keystore.Sandbox})
	var events []middleware.Event
	hooks := quiet()
	hooks.Observe = func(ctx context.Context, e middleware.Event) {
		if e.RequestID == "" || e.RequestID != middleware.RequestIDFrom(ctx) {
			t.Errorf("%+v: not the id of the context, %q", e, middleware.RequestIDFrom(ctx))
		}
		if p, ok := middleware.PrincipalFrom(ctx); ok != (e.KeyID != "") || ok && p.KeyID() != e.KeyID {
			t.Errorf("%+v: not the principal of the context", e)
		}
		events = append(events, e)
	}
	once := &ratelimit.Policy{Name: "once", Limit: ratelimit.MustParse("1-H")}
	api := testAPI(ring.keys, middleware.Options{Hooks: hooks, Replies: replies(), Limits: middleware.Limits{
		Store:        ratelimit.NewMemory(),
		Organization: &ratelimit.Policy{Name: "plenty", Limit: ratelimit.MustParse("1000-S")},
		Sandbox:      once,
	}})
	api.HandleFunc("GET /api/v1/panic", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) { panic("boom") })
	tests := []struct {
		method, path, token, header string
		want                        string
	}{
		{"GET", "/api/v1/tasks", "", "", "authenticate:api_key_missing"},
		{"GET", "/api/v1/tasks", "x", "", "authenticate:api_key_invalid"},
		{"GET", "/api/v1/tasks", token, "", "authenticate:passed rate_limit:passed scope:passed"},
		{"GET", "/api/v1/account", token, "", "authenticate:passed rate_limit:passed scope:insufficient_scope"},
		{"GET", "/api/v1/none", token, "", "authenticate:passed rate_limit:passed route:not_found"},
		{"PUT", "/api/v1/tasks", token, "", "authenticate:passed rate_limit:passed route:method_not_allowed"},
		{"GET", "//api/v1/tasks", token, "", "authenticate:passed rate_limit:passed"},
		{"POST", "/api/v1/tasks", token, "", "authenticate:passed rate_limit:passed scope:passed"},
		{"POST", "/api/v1/tasks", token, "Idempotency-Key: 1", "authenticate:passed rate_limit:passed scope:passed idempotency:executed"},
		{"POST", "/api/v1/tasks", token, "Idempotency-Key: 1", "authenticate:passed rate_limit:passed scope:passed idempotency:replayed"},
		{"GET", "/api/v1/panic", token, "", "authenticate:passed rate_limit:passed scope:passed recover:internal"},
		{"GET", "/api/v1/any", spent, "", "authenticate:passed rate_limit:passed scope:passed"},
		{"GET", "/api/v1/none", spent, "", "authenticate:passed rate_limit:rate_limited"},
		{"GET", "/api/v1/any", spent, "", "authenticate:passed rate_limit:rate_limited"},
	}
	for _, tt := range tests {
		events = nil
		var lines []string
		if tt.header != "" {
			lines = append(lines, tt.header)
		}
		serve(api, request(tt.method, tt.path, tt.token, "", lines...))
		var got []string
		for _, e := range events {
			got = append(got, string(e.Stage)+":"+e.Outcome)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s %s %s: got %s, want %s", tt.method, tt.path, tt.header, strings.Join(got, " "), tt.want)
		}
	}

	last := events[len(events)-1]
	if last.Wait < 59*time.Minute || last.Wait > time.Hour {
		t.Errorf("got wait %v, want about an hour", last.Wait)
	}
	last.RequestID, last.Wait = "", 0
	want := middleware.Event{
		Stage: middleware.StageRateLimit, Outcome: "rate_limited", Pattern: "GET /api/v1/any", Policy: "once",
		KeyID: spentKey.ID, Organization: "org_2", Environment: keystore.Sandbox,
	}
	if last != want {
		t.Errorf("got %+v, want %+v", last, want)
	}
}

// TestHooksOfTheOutermost: a stage without hooks uses those of the stage outside
// it, and one with hooks of its own uses these.
func TestHooksOfTheOutermost(t *testing.T) {
	outer, inner := newLogged(), newLogged()
	misplaced := func(o *middleware.Hooks) http.Handler {
		return middleware.RequireScope(middleware.AnyKey(), middleware.ScopeOptions{Hooks: o})(http.HandlerFunc(sayOK))
	}
	id := middleware.RequestID(middleware.RequestIDOptions{Hooks: outer.hooks()})
	serve(id(misplaced(nil)), request("GET", "/", "", ""))
	if !strings.Contains(outer.String(), "no Authenticate") {
		t.Errorf("got the outer log %q", outer)
	}
	serve(id(misplaced(inner.hooks())), request("GET", "/", "", ""))
	if !strings.Contains(inner.String(), "no Authenticate") || strings.Count(outer.String(), "\n") != 1 {
		t.Errorf("got the inner log %q, the outer %q", inner, outer)
	}
}
