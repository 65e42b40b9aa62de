package middleware_test

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// The page .github/GUIDES.md shows parts of these examples.

func account(w http.ResponseWriter, r *http.Request) {
	caller := middleware.CallerFrom(r.Context())
	_, _ = io.WriteString(w, caller.Organization())
}

func healthy(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func notFound(w http.ResponseWriter, r *http.Request) {
	middleware.WriteProblem(w, r, middleware.Problem{Status: 404, Code: "not_found"})
}

// carrierSecret is what the sender of webhooks signs them with.
const carrierSecret = "whsec_1"

func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 413, Code: "body_too_large"})
		return
	}
	sum := hmac.New(sha256.New, []byte(carrierSecret))
	sum.Write(body)
	if sent, _ := hex.DecodeString(r.Header.Get("X-Signature")); !hmac.Equal(sent, sum.Sum(nil)) {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 401, Code: "signature_invalid"})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// Public, health and webhook routes beside an API: one mux, and ids, panics and
// events of all of them.
func ExampleAPI_beside() {
	keys := issuing.NewMemory()
	counters := &ratelimit.Memory{}
	hooks := &middleware.Hooks{Observe: func(_ context.Context, e middleware.Event) {
		fmt.Println(e.Status, e.Pattern, e.Outcome, len(e.RequestID))
	}}

	limits := middleware.PerOrganization("100-S")
	limits.Store = counters
	api := middleware.NewAPI(keys, middleware.Options{RateLimit: limits, Hooks: hooks})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), account)
	public := middleware.New(nil, middleware.Options{RateLimit: middleware.RateLimitOptions{
		Store:  counters,
		Client: &ratelimit.Policy{Name: "webhooks", Limit: ratelimit.MustParse("100-S")}, // a carrier has few addresses
	}})

	mux := http.NewServeMux()
	mux.Handle("/api/v1/", api)
	mux.HandleFunc("GET /healthz", healthy)
	mux.Handle("POST /webhooks/carrier", public.RateLimit(http.HandlerFunc(receive)))
	mux.HandleFunc("/", notFound) // in the form of the other refusals
	server := middleware.Chain(api.Guard().RequestID, api.Guard().Recover)(mux)

	key := issue(issuing.New(keys, issuing.Options{}), "org_1", scope.AccountRead)
	send(server, "GET", "/api/v1/account", key, "")
	send(server, "GET", "/api/v1/none", "", "")
	send(server, "GET", "/healthz", "", "")
	send(server, "GET", "/none", "", "")
	sum := hmac.New(sha256.New, []byte(carrierSecret))
	sum.Write([]byte("{}"))
	send(server, "POST", "/webhooks/carrier", "", "{}", "X-Signature", hex.EncodeToString(sum.Sum(nil)))
	send(server, "POST", "/webhooks/carrier", "", "{}")
	// Output:
	// 200 GET /api/v1/account handled 20
	// 401 /api/v1/ api_key_missing 20
	// 200 GET /healthz handled 20
	// 404 / handled 20
	// 204 POST /webhooks/carrier handled 20
	// 401 POST /webhooks/carrier handled 20
}

// cors stands for a middleware such as rs/cors.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://shop.example")
		w.Header().Set("Access-Control-Expose-Headers", "Svc-Request-Id, Retry-After")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			w.Header().Set("Access-Control-Allow-Headers", "X-Publishable-Key, Content-Type")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A page in a browser calls with a publishable key. It says for whom the page
// is, and proves nothing: anybody can read it, so it may do little.
func ExampleOptions_publishableKey() {
	pages := map[string]string{"pub_shop": "org_1"}
	publishable := func(r *http.Request) (*keystore.Caller, error) {
		organization, ok := pages[r.Header.Get("X-Publishable-Key")]
		if !ok {
			return nil, middleware.ErrNoCredentials
		}
		return keystore.NewCaller(nil, keystore.Identity{
			Organization: organization, Subject: "browser", Scopes: []scope.Name{scope.ChatRead},
		})
	}
	keys := issuing.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{
		RejectBrowsers: true, // a secret key in a page is a leaked key
		Authenticate:   publishable,
		RateLimit: middleware.RateLimitOptions{
			Store:  &ratelimit.Memory{},
			Client: &ratelimit.Policy{Name: "client", Limit: ratelimit.MustParse("10-S")},
		},
	})
	api.HandleFunc("GET /api/v1/chat", middleware.Require(scope.ChatRead), account)
	server := api.Guard().RequestID(cors(api)) // ids on preflights, CORS fields on refusals

	secret := issue(issuing.New(keys, issuing.Options{}), "org_1", scope.ChatRead)
	for _, header := range [][]string{
		{"X-Publishable-Key", "pub_shop"},
		{"X-Publishable-Key", "pub_none"},
		{"Authorization", "Bearer " + secret},
	} {
		r := httptest.NewRequest("GET", "/api/v1/chat", nil)
		r.Header.Set("Origin", "https://shop.example")
		r.Header.Set(header[0], header[1])
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Access-Control-Allow-Origin"), len(w.Header().Get("Svc-Request-Id")))
	}
	w := send(server, "OPTIONS", "/api/v1/chat", "", "", "Access-Control-Request-Method", "GET")
	fmt.Println(w.Code, len(w.Header().Get("Svc-Request-Id")))
	// Output:
	// 200 https://shop.example 20
	// 401 https://shop.example 20
	// 401 https://shop.example 20
	// 204 20
}

// An upload of up to 32 MiB and a stream, both with an Idempotency-Key: a repeat
// of the upload stores nothing twice, a repeat of the stream gets all of it.
func ExampleRouteOptions_uploadAndStream() {
	keys := issuing.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{
		Runner: idem.NewRunner(&idem.Memory{}, idem.Options{}),
	}})

	const largest = 32 << 20
	large := middleware.RouteOptions{Idempotency: middleware.IdempotencyOptions{MaxBody: largest}}
	api.HandleFunc("POST /api/v1/deliverables", middleware.Require(scope.DeliverablesWrite),
		func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, largest)) // also without an Idempotency-Key
			if err != nil {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 413, Code: "body_too_large"})
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "%d bytes", n)
		}, large)

	api.HandleFunc("POST /api/v1/chat", middleware.Require(scope.ChatWrite),
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream") // streams from its first flush on
			for _, word := range []string{"Good", "morning"} {
				fmt.Fprintf(w, "data: %s\n\n", word)
				_ = http.NewResponseController(w).Flush()
			}
		})

	key := issue(issuing.New(keys, issuing.Options{}), "org_1", scope.DeliverablesWrite, scope.ChatWrite)
	for range 2 {
		w := send(api, "POST", "/api/v1/deliverables", key, strings.Repeat("x", 2<<20), "Idempotency-Key", "upload-1")
		fmt.Printf("%d %q %s\n", w.Code, w.Body, cmp.Or(w.Header().Get("Idempotent-Replayed"), "-"))
		w = send(api, "POST", "/api/v1/chat", key, "{}", "Idempotency-Key", "chat-1")
		fmt.Printf("%d %q %s\n", w.Code, w.Body, cmp.Or(w.Header().Get("Idempotent-Replayed"), "-"))
	}
	// Output:
	// 201 "2097152 bytes" -
	// 200 "data: Good\n\ndata: morning\n\n" -
	// 201 "2097152 bytes" true
	// 200 "data: Good\n\ndata: morning\n\n" true
}

// Limits of an organization by its plan, of each key, and of routes.
func ExampleRateLimitOptions() {
	policy := func(name, limit string) *ratelimit.Policy {
		return &ratelimit.Policy{Name: name, Limit: ratelimit.MustParse(limit)}
	}
	small, large := policy("small", "100-M"), policy("large", "50-S") // a minute, a second
	keys := issuing.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{RateLimit: middleware.RateLimitOptions{
		Store:        &ratelimit.Memory{},
		Organization: small,
		Key:          policy("key", "4-H"),
		Plan: func(_ context.Context, caller *keystore.Caller) (organization, key *ratelimit.Policy, err error) {
			if caller.Attribute("plan") == "large" {
				return large, ratelimit.Unlimited, nil
			}
			return nil, nil, nil // Organization and Key
		},
	}})
	nothing := func(http.ResponseWriter, *http.Request) {}
	api.HandleFunc("GET /api/v1/search", middleware.AnyCaller(), nothing, middleware.RouteOptions{Cost: 3})
	api.HandleFunc("GET /api/v1/export", middleware.AnyCaller(), nothing,
		middleware.RouteOptions{Policy: policy("exports", "1-H")})

	issuer := issuing.New(keys, issuing.Options{})
	for _, plan := range []string{"small", "large"} {
		secret, _, _ := issuer.Issue(context.Background(), keystore.Key{
			Organization: "org_" + plan, Environment: keystore.Production, Attributes: map[string]string{"plan": plan},
		})
		for _, path := range []string{"/api/v1/search", "/api/v1/search", "/api/v1/export", "/api/v1/export"} {
			w := send(api, "GET", path, secret.Reveal(), "")
			var problem struct{ Policy string }
			_ = json.Unmarshal(w.Body.Bytes(), &problem)
			fmt.Println(plan, path, w.Code, cmp.Or(problem.Policy, "-"))
		}
	}
	// Output:
	// small /api/v1/search 200 -
	// small /api/v1/search 429 key
	// small /api/v1/export 200 -
	// small /api/v1/export 429 exports
	// large /api/v1/search 200 -
	// large /api/v1/search 200 -
	// large /api/v1/export 200 -
	// large /api/v1/export 429 exports
}

// closeMonth is called by a handler and by a job. Both say in the context for
// whom.
func closeMonth(ctx context.Context) string {
	caller := middleware.CallerFrom(ctx)
	caller.Use(scope.TasksWrite)
	if !caller.Has(scope.TasksWrite) {
		return "refused"
	}
	return "closed the month of " + caller.Organization() + " for " + caller.Subject()
}

// A job acts for an organization through the functions that handlers call.
func ExampleWithCaller() {
	job, err := keystore.NewCaller(nil, keystore.Identity{
		Organization: "org_1", Subject: "job:month", Scopes: []scope.Name{scope.TasksWrite},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(closeMonth(middleware.WithCaller(context.Background(), job)))
	fmt.Println(closeMonth(context.Background()))
	// Output:
	// closed the month of org_1 for job:month
	// refused
}

// An API that has callers without keys gets stages around all of its routes that
// refuse nothing, and then, route by route, those that do.
func ExampleGuard_adopt() {
	keys := issuing.NewMemory()
	hooks := &middleware.Hooks{Observe: func(_ context.Context, e middleware.Event) {
		fmt.Println(e.Pattern, e.Status, cmp.Or(e.ReportedCode, "-"))
	}}
	list, create, remove := http.HandlerFunc(healthy), http.HandlerFunc(healthy), http.HandlerFunc(healthy)

	watching := middleware.New(keys, middleware.Options{ReportOnly: true, Hooks: hooks})
	refusing := middleware.New(keys, middleware.Options{Hooks: hooks})
	need := middleware.Require(scope.TasksWrite)

	mux := http.NewServeMux()
	mux.Handle("GET /tasks", list)                                           // as it was
	mux.Handle("DELETE /tasks", watching.Enforce(need.ReportOnly())(remove)) // says who lacks the scope
	enforced := middleware.Chain(refusing.Authenticate, refusing.Enforce(need), refusing.Idempotent)
	mux.Handle("POST /tasks", enforced(create))
	server := middleware.Chain(watching.RequestID, watching.Recover, watching.Authenticate)(mux)

	secret, _, _ := issuing.New(keys, issuing.Options{}).Issue(context.Background(), keystore.Key{
		Organization: "org_1", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksRead},
	})
	for _, key := range []string{"", secret.Reveal()} {
		for _, method := range []string{"GET", "DELETE", "POST"} {
			send(server, method, "/tasks", key, "")
		}
	}
	// Output:
	// GET /tasks 200 api_key_missing
	// DELETE /tasks 200 api_key_missing
	// POST /tasks 401 api_key_missing
	// GET /tasks 200 no_requirement
	// DELETE /tasks 200 insufficient_scope
	// POST /tasks 403 -
}

// A proxy asks the Gateway about each request. The service behind it needs no
// key store.
func ExampleGuard_Gateway() {
	keys, issuer := issuing.InMemory(keystore.Service{})
	secret := make([]byte, 32) // random bytes, which the services have too
	guard := middleware.New(keys, middleware.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, // the gateway is there
	})
	verify := guard.Gateway(middleware.GatewayOptions{
		Secrets: [][]byte{secret},
		Requirements: map[string]middleware.Requirement{
			"tasks-read":  middleware.Require(scope.TasksRead),
			"tasks-write": middleware.Require(scope.TasksWrite),
		},
	})

	api := middleware.NewAPI(nil, middleware.Options{
		Authenticate:   middleware.FromGateway(nil, secret),
		TrustRequestID: func(r *http.Request) bool { return r.Header.Get("Svc-Caller-Signature") != "" },
	})
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead),
		func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "tasks of", middleware.CallerFrom(r.Context()).Organization())
		})

	// What the proxy does:
	ask := httptest.NewRequest("GET", "/verify/tasks-read", nil)
	ask.RemoteAddr = "10.0.0.1:1234"
	ask.Header.Set("Authorization", "Bearer "+issue(issuer, "org_1", scope.TasksRead))
	ask.Header.Set("X-Forwarded-For", "192.0.2.1")
	ask.Header.Set("X-Forwarded-Method", "GET")
	ask.Header.Set("X-Forwarded-Uri", "/api/v1/tasks")
	verdict := httptest.NewRecorder()
	verify.ServeHTTP(verdict, ask)

	r := httptest.NewRequest("GET", "/api/v1/tasks", nil)
	r.Header = verdict.Header()
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	fmt.Print(verdict.Code, " ", w.Body)
	// Output:
	// 200 tasks of org_1
}
