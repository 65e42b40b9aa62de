package middleware_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// issue makes a key for an example.
func issue(issuer *keystore.Issuer, organization string, scopes ...scope.Name) string {
	secret, _, err := issuer.Issue(context.Background(), keystore.Grant{
		Organization: organization, Actor: "example", Name: "example", Environment: keystore.Production, Scopes: scopes,
	})
	if err != nil {
		panic(err)
	}
	return secret.Reveal()
}

// send sends a request with a key to a handler.
func send(h http.Handler, method, path, key, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// An API is the whole contract: the order of the stages and the routing are its
// own.
func ExampleAPI() {
	keys := keystore.NewMemory()
	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})
	replies := idem.NewRunner(idem.NewMemory(idem.MemoryOptions{}), idem.Options{})
	api := middleware.NewAPI(keys, middleware.Options{
		RateLimit:   middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("100-S")),
		Idempotency: middleware.IdempotencyOptions{Runner: replies},
	})
	tasks := 0
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), func(w http.ResponseWriter, r *http.Request) {
		tasks++
		caller, _ := middleware.PrincipalFrom(r.Context())
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "task %d of %s", tasks, caller.Organization())
	})

	key := issue(issuer, "org_1", scope.TasksWrite)
	for range 2 {
		w := send(api, "POST", "/api/v1/tasks", key, "{}", "Idempotency-Key", "7f1c")
		fmt.Printf("%d %s, replayed: %q\n", w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	fmt.Println(send(api, "POST", "/api/v1/tasks", issue(issuer, "org_1"), "{}").Code)
	fmt.Println(send(api, "GET", "/api/v1/nothing", "", "").Code)
	// Output:
	// 201 task 1 of org_1, replayed: ""
	// 201 task 1 of org_1, replayed: "true"
	// 403
	// 401
}

// The stages as pieces, for a router of one's own: chi, gorilla/mux or, as here,
// http.ServeMux. In chi the same is
//
//	r.Use(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)
//	r.With(guard.Require(scope.TasksWrite), guard.Idempotent).Post("/tasks", create)
func ExampleGuard() {
	keys := keystore.NewMemory()
	guard := middleware.New(keys, middleware.Options{
		RateLimit:   middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("100-S")),
		Idempotency: middleware.IdempotencyOptions{Runner: idem.NewRunner(idem.NewMemory(idem.MemoryOptions{}), idem.Options{})},
	})
	create := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "created")
	})
	router := http.NewServeMux()
	router.Handle("POST /tasks", middleware.Chain(guard.Require(scope.TasksWrite), guard.Idempotent)(create))
	server := middleware.Chain(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)(router)

	key := issue(keystore.NewIssuer(keys, keystore.IssuerOptions{}), "org_1", scope.TasksWrite)
	w := send(server, "POST", "/tasks", key, "{}", "Idempotency-Key", "7f1c")
	fmt.Println(w.Code, w.Body, len(w.Header().Get("Svc-Request-Id")))
	// Output: 201 created 20
}

// Idempotent outside Require is the commonest mistake: a replay would not pass
// through Require. The stage answers 500 and says so in the log.
func ExampleGuard_incorrect() {
	keys := keystore.NewMemory()
	guard := middleware.New(keys, middleware.Options{
		Idempotency: middleware.IdempotencyOptions{Runner: idem.NewRunner(idem.NewMemory(idem.MemoryOptions{}), idem.Options{})},
		Hooks:       &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)},
	})
	wrong := middleware.Chain(guard.RequestID, guard.Authenticate, guard.AnyKey, guard.Idempotent, guard.Require(scope.TasksWrite))
	server := wrong(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))

	key := issue(keystore.NewIssuer(keys, keystore.IssuerOptions{}), "org_1", scope.TasksWrite)
	fmt.Println(send(server, "POST", "/tasks", key, "{}").Code)
	// Output: 500
}

// A plan chooses the limit of each caller.
func ExampleRateLimitOptions_plan() {
	free := &ratelimit.Policy{Name: "free", Limit: ratelimit.MustParse("2-H")}
	plans := map[string]*ratelimit.Policy{"org_paying": ratelimit.Unlimited}
	keys := keystore.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{
		RateLimit: middleware.RateLimitOptions{
			Store:        ratelimit.NewMemory(),
			Organization: free, // for callers without a plan
			Plan: func(ctx context.Context, p middleware.Principal) (*ratelimit.Policy, error) {
				return plans[p.Organization()], nil
			},
		},
	})
	api.HandleFunc("GET /api/v1/account", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {})

	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})
	for _, organization := range []string{"org_paying", "org_other"} {
		key := issue(issuer, organization)
		for range 3 {
			w := send(api, "GET", "/api/v1/account", key, "")
			fmt.Println(organization, w.Code)
		}
	}
	// Output:
	// org_paying 200
	// org_paying 200
	// org_paying 200
	// org_other 200
	// org_other 200
	// org_other 429
}

// The Problem hook gives refusals the form of a team's own errors.
func ExampleHooks_problem() {
	api := middleware.NewAPI(keystore.NewMemory(), middleware.Options{Hooks: &middleware.Hooks{
		Problem: func(r *http.Request, p middleware.Problem) (string, []byte) {
			return "application/json", fmt.Appendf(nil, `{"error":{"code":%q}}`, p.Code)
		},
	}})
	w := send(api, "GET", "/api/v1/account", "no key", "")
	fmt.Println(w.Code, w.Body)
	// Output: 401 {"error":{"code":"api_key_invalid"}}
}

// An access log: one Event a response, whichever stage answered.
func ExampleHooks_observe() {
	keys := keystore.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{
		Observe: func(ctx context.Context, e middleware.Event) {
			fmt.Println(e.Method, e.Pattern, e.Status, e.Stage, e.Outcome, e.Principal.Organization())
		},
	}})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), func(w http.ResponseWriter, r *http.Request) {})

	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})
	send(api, "GET", "/api/v1/account", issue(issuer, "org_1", scope.AccountRead), "")
	send(api, "GET", "/api/v1/account", issue(issuer, "org_2"), "")
	send(api, "GET", "/api/v1/account", "no key", "")
	// Output:
	// GET GET /api/v1/account 200 handler handled org_1
	// GET GET /api/v1/account 403 scope insufficient_scope org_2
	// GET  401 authenticate api_key_invalid
}

// table is a team's own table of keys.
type table map[keystore.Digest]*keystore.Key

// Lookup implements keystore.Store.
func (t table) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	if key, ok := t[d]; ok {
		return key, nil
	}
	return nil, keystore.ErrNotFound
}

// A store of one's own needs one method. A keystore.Cached in front of it bounds
// how long it may take and how often it is asked.
func ExampleNewAPI_ownStore() {
	secret := keystore.Service{}.Generate(keystore.Production)
	digest := keystore.DigestOf(secret.Reveal())
	keys := table{digest: {
		ID: "key_1", Digest: digest, Organization: "org_1", Environment: keystore.Production, Scopes: []scope.Name{scope.AccountRead},
	}}
	api := middleware.NewAPI(keystore.NewCached(keys, keystore.CacheOptions{}), middleware.Options{})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), func(w http.ResponseWriter, r *http.Request) {
		caller, _ := middleware.PrincipalFrom(r.Context())
		io.WriteString(w, caller.KeyID())
	})
	w := send(api, "GET", "/api/v1/account", secret.Reveal(), "")
	fmt.Println(w.Code, w.Body)
	// Output: 200 key_1
}
