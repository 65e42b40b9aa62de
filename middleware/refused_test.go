package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestRefusals: why a key was refused is kept beside its use, with the pattern of
// the route and never its path. A key that is not let in is noted on demand.
func TestRefusals(t *testing.T) {
	ring := newKeyring()
	for _, tt := range []struct {
		name, request string
		change        func(k *keystore.Key)
		status        int
		want, always  string // by an option, and without it
	}{
		{"accepted", "GET /api/v1/tasks", nil, 200, "[]", "[]"},
		{"without a scope", "GET /api/v1/account", nil, 403,
			"[insufficient_scope GET /api/v1/account]", "[insufficient_scope GET /api/v1/account]"},
		{"without a scope that the handler asks for", "GET /api/v1/allow/jane", nil, 403,
			"[insufficient_scope GET /api/v1/allow/{name}]", "[insufficient_scope GET /api/v1/allow/{name}]"},
		{"over a limit", "GET /api/v1/tasks", nil, 429,
			"[rate_limited GET /api/v1/tasks]", "[rate_limited GET /api/v1/tasks]"},
		{"with an Idempotency-Key that is none", "POST /api/v1/create/jane", nil, 400,
			"[idempotency_key_invalid POST /api/v1/create/{name}]", "[idempotency_key_invalid POST /api/v1/create/{name}]"},
		{"an unknown path", "GET /api/v1/jane", nil, 404, "[not_found ]", "[not_found ]"},
		{"a redirect of CONNECT over a limit", "CONNECT /api/v1/dir/jane", nil, 429, "[rate_limited ]", "[rate_limited ]"},
		{"a problem of the handler", "GET /api/v1/problem", nil, 409, "[]", "[]"},
		{"a refusal after the response", "GET /api/v1/late", nil, 200, "[]", "[]"},
		{"a failure of the service", "GET /api/v1/panic", nil, 500, "[]", "[]"},
		{"suspended", "GET /api/v1/tasks", func(k *keystore.Key) { k.Suspended = true }, 401, "[api_key_invalid ]", "[]"},
		{"from another network", "GET /api/v1/tasks", func(k *keystore.Key) { k.Networks = trust("10.9.0.0/16") }, 403,
			"[address_not_allowed ]", "[]"},
	} {
		for _, all := range []bool{true, false} {
			token, key := ring.grant(t, keystore.Key{Scopes: []scope.Name{scope.TasksRead}})
			if tt.change != nil {
				tt.change(key)
				ring.update(t, key)
			}
			uses := keystore.NewUses(ring.memory, keystore.UsesOptions{RefusedKeys: all})
			o := middleware.Options{Hooks: quiet(), Uses: uses, Idempotency: keyedOptions{Runner: replies()},
				RateLimit: rateOptions{Store: &ratelimit.Memory{}}}
			if tt.status == 429 {
				o.RateLimit.Key = policy("key", "1-H", 0)
			}
			api := middleware.NewAPI(ring.keys, o)
			api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), sayOK)
			api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), sayOK)
			api.HandleFunc("GET /api/v1/allow/{name}", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
				middleware.Allow(w, r, middleware.Require(scope.TasksWrite))
			})
			api.HandleFunc("GET /api/v1/late", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
				sayOK(w, r)
				middleware.Allow(w, r, middleware.Require(scope.TasksWrite))
			})
			api.HandleFunc("POST /api/v1/create/{name}", middleware.AnyCaller(), sayOK)
			api.HandleFunc("CONNECT /api/v1/dir/{name}/", middleware.AnyCaller(), sayOK)
			api.HandleFunc("GET /api/v1/problem", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "name_taken"})
			})
			api.HandleFunc("GET /api/v1/panic", middleware.AnyCaller(), func(http.ResponseWriter, *http.Request) { panic("no") })
			method, path, _ := strings.Cut(tt.request, " ")
			status := 0
			for range 2 { // the limit is one request
				status = serve(api, request(method, path, token, "", "Idempotency-Key: "+strings.Repeat("x", 300))).StatusCode
			}
			if err := flush(uses); err != nil {
				t.Fatal(err)
			}
			usage, err := ring.issuer.Usage(t.Context(), "org_1", key.ID)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]string, 0)
			for _, r := range usage.Refusals {
				got = append(got, r.Code+" "+r.Route)
			}
			if want := map[bool]string{true: tt.want, false: tt.always}[all]; status != tt.status || fmt.Sprint(got) != want {
				t.Errorf("%s, all %t: got %d and %v, want %d and %s", tt.name, all, status, got, tt.status, want)
			}
			if letIn := tt.change == nil; !usage.LastUsedAt.IsZero() != letIn {
				t.Errorf("%s, all %t: the key was used at %v, and let in: %t", tt.name, all, usage.LastUsedAt, letIn)
			}
		}
	}
}

// TestRefusalOfPieces: the route is what the hook of the router says.
func TestRefusalOfPieces(t *testing.T) {
	ring := newKeyring()
	token, key := ring.grant(t, keystore.Key{Scopes: []scope.Name{scope.TasksRead}})
	uses, hooks := keystore.NewUses(ring.memory, keystore.UsesOptions{}), quiet()
	hooks.Pattern = func(*http.Request) string { return "/tasks/{name}" }
	g := middleware.New(ring.keys, middleware.Options{Hooks: hooks, Uses: uses})
	chain := middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(middleware.Require(scope.TasksWrite)))
	h := chain(http.NotFoundHandler())
	serve(h, request("GET", "/tasks/jane", token, ""))
	if err := flush(uses); err != nil {
		t.Fatal(err)
	}
	usage, err := ring.issuer.Usage(t.Context(), "org_1", key.ID)
	if err != nil || len(usage.Refusals) != 1 || usage.Refusals[0].Code != "insufficient_scope" ||
		usage.Refusals[0].Route != "/tasks/{name}" {
		t.Errorf("got %+v, %v, want insufficient_scope of /tasks/{name}", usage, err)
	}
}
