package middleware_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// issue makes a key for an example.
func issue(issuer *issuing.Issuer, organization string, scopes ...scope.Name) string {
	secret, _, err := issuer.Issue(context.Background(), keystore.Key{
		Organization: organization, Name: "example", Environment: keystore.Production, Scopes: scopes,
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
func Example() {
	keys, issuer := issuing.InMemory(keystore.Service{})
	api := middleware.NewAPI(keys, middleware.Options{RateLimit: middleware.PerOrganization("100-S")})

	var tasks atomic.Int64
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			caller := middleware.CallerFrom(r.Context())
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "task %d of %s", tasks.Add(1), caller.Organization())
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

// The program of the package comment is that of Example.
func TestPackageComment(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(doc), "//\n//\t")
	program, _, _ = strings.Cut("\t"+program, "\n//\n// ")
	program = strings.NewReplacer("\n//", "\n").Replace(program)
	if !strings.Contains(string(example), program) {
		t.Errorf("no Example has the program of the package comment:\n%s", program)
	}
}

// The stages as pieces, for a router of one's own: chi, gorilla/mux or, as here,
// http.ServeMux. In chi the same is
//
//	r.Use(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)
//	r.With(guard.Enforce(middleware.Require(scope.TasksWrite)), guard.Idempotent).Post("/tasks", create)
func ExampleGuard() {
	keys := issuing.NewMemory()
	guard := middleware.New(keys, middleware.Options{
		RateLimit:   middleware.PerOrganization("100-S"),
		Idempotency: middleware.IdempotencyOptions{Runner: idem.NewRunner(&idem.Memory{}, idem.Options{})},
	})
	create := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "created")
	})
	need := guard.Enforce(middleware.Require(scope.TasksWrite))
	router := http.NewServeMux()
	router.Handle("POST /tasks", middleware.Chain(need, guard.Idempotent)(create))
	server := middleware.Chain(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)(router)

	key := issue(issuing.New(keys, issuing.Options{}), "org_1", scope.TasksWrite)
	w := send(server, "POST", "/tasks", key, "{}", "Idempotency-Key", "7f1c")
	fmt.Println(w.Code, w.Body, len(w.Header().Get("Svc-Request-Id")))
	// Output: 201 created 20
}

// Idempotent outside Enforce is the commonest mistake: a replay would not pass
// through Enforce. The stage answers 500 and says so in the log.
func ExampleGuard_incorrect() {
	keys := issuing.NewMemory()
	guard := middleware.New(keys, middleware.Options{
		Idempotency: middleware.IdempotencyOptions{Runner: idem.NewRunner(&idem.Memory{}, idem.Options{})},
		Hooks:       &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)},
	})
	wrong := middleware.Chain(guard.RequestID, guard.Authenticate, guard.Enforce(middleware.AnyCaller()),
		guard.Idempotent, guard.Enforce(middleware.Require(scope.TasksWrite)))
	server := wrong(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))

	key := issue(issuing.New(keys, issuing.Options{}), "org_1", scope.TasksWrite)
	fmt.Println(send(server, "POST", "/tasks", key, "{}").Code)
	// Output: 500
}

// An access log: one Event a response, whichever stage answered.
func ExampleHooks_observe() {
	keys := issuing.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{
		Observe: func(ctx context.Context, e middleware.Event) {
			fmt.Println(e.Method, e.Pattern, e.Status, e.Stage, e.Outcome, e.Caller.Organization())
		},
	}})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead),
		func(w http.ResponseWriter, r *http.Request) {})

	issuer := issuing.New(keys, issuing.Options{})
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
		ID: "key_1", Digest: digest, Organization: "org_1", Environment: keystore.Production,
		Scopes: []scope.Name{scope.AccountRead},
	}}
	api := middleware.NewAPI(keystore.NewCached(keys, keystore.CacheOptions{}), middleware.Options{})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead),
		func(w http.ResponseWriter, r *http.Request) {
			caller := middleware.CallerFrom(r.Context())
			io.WriteString(w, caller.KeyID())
		})
	w := send(api, "GET", "/api/v1/account", secret.Reveal(), "")
	fmt.Println(w.Code, w.Body)
	// Output: 200 key_1
}

// A service with a name and two scopes of its own. The Issuer and the API take
// them from the Cached.
func ExampleNewAPI_ownService() {
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{Service: keystore.Service{
		Prefix: "acme",
		Scopes: scope.New(
			scope.Definition{Name: "parcels:read", Meaning: "See parcels."},
			scope.Definition{Name: "parcels:write", Meaning: "Send parcels."},
		),
	}})
	issuer := issuing.New(keys, issuing.Options{})
	api := middleware.NewAPI(keys, middleware.Options{Base: "/v2", RequestIDHeader: "Acme-Request-Id"})
	api.HandleFunc("GET /v2/parcels", middleware.Require("parcels:read"), func(http.ResponseWriter, *http.Request) {})

	key := issue(issuer, "org_1", "parcels:read")
	w := send(api, "GET", "/v2/parcels", key, "")
	fmt.Println(w.Code, key[:10], w.Header().Get("Acme-Request-Id") != "")
	// Output: 200 acme_live_ true
}

// Keys that an older system has issued, in its own table and of its own shape:
// acme_ and 40 digits, kept under their SHA-256.
func ExampleNewAPI_ownKeyShape() {
	const token = "acme_0123456789abcdef0123456789abcdef01234567"
	digest := keystore.Digest(sha256.Sum256([]byte(token)))
	rows := table{digest: {
		ID: "17", Digest: digest, Legacy: "acme", Organization: "org_1", Environment: keystore.Production,
		Scopes: []scope.Name{scope.AccountRead},
	}}
	service := keystore.Service{Prefix: "acme", Legacy: []keystore.LegacyFormat{{
		Name: "acme", Prefix: "acme_", Match: func(token string) bool { return len(token) == 45 },
	}}}
	api := middleware.NewAPI(keystore.NewCached(rows, keystore.CacheOptions{Service: service}), middleware.Options{
		KeyHeader: "X-API-Key",
	})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead),
		func(w http.ResponseWriter, r *http.Request) {
			caller := middleware.CallerFrom(r.Context())
			_, _ = io.WriteString(w, "key "+caller.KeyID())
		})
	r := httptest.NewRequest("GET", "/api/v1/account", nil)
	r.Header.Set("X-API-Key", token)
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
	fmt.Println(send(api, "GET", "/api/v1/account", token, "").Code)
	fmt.Println(send(api, "GET", "/api/v1/account", token[:20], "").Code)
	// Output:
	// 200 key 17
	// 200
	// 401
}

// verify stands for a JWT library. It returns the claims of a token with a valid
// signature.
func verify(token string) (claims struct{ Org, Sub, Scope string }, ok bool) {
	if token == "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ1c2VyXzEifQ.c2ln" {
		claims.Org, claims.Sub, claims.Scope, ok = "org_1", "user_1", "openid parcels:read", true
	}
	return claims, ok
}

// JWTs of users beside API keys. Both are Bearer tokens; a key begins with the
// prefix of the service, and everything else is left to Authenticate.
func ExampleOptions_authenticate() {
	service := keystore.Service{Prefix: "acme", Scopes: scope.New(scope.Definition{Name: "parcels:read"})}
	users := func(r *http.Request) (*keystore.Caller, error) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || strings.Count(token, ".") != 2 {
			return nil, middleware.ErrNoCredentials
		}
		claims, ok := verify(strings.TrimSpace(token))
		if !ok {
			return nil, &middleware.Problem{Status: 401, Code: "token_invalid", Challenge: `Bearer error="invalid_token"`}
		}
		var scopes []scope.Name
		for _, name := range strings.Fields(claims.Scope) {
			if service.Scopes.Known(scope.Name(name)) { // the token has others too, such as openid
				scopes = append(scopes, scope.Name(name))
			}
		}
		return keystore.NewCaller(service.Scopes, keystore.Identity{
			Organization: claims.Org, Subject: claims.Sub, Environment: keystore.Production, Scopes: scopes,
		})
	}
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{Service: service})
	api := middleware.NewAPI(keys, middleware.Options{Authenticate: users})
	api.HandleFunc("GET /api/v1/parcels", middleware.Require("parcels:read"),
		func(w http.ResponseWriter, r *http.Request) {
			caller := middleware.CallerFrom(r.Context())
			_, _ = io.WriteString(w, caller.Organization()+" "+cmp.Or(caller.Subject(), "by key"))
		})
	api.HandleFunc("POST /api/v1/members", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
		if caller := middleware.CallerFrom(r.Context()); caller.KeyID() != "" {
			middleware.ExecutionFrom(r.Context()).Free() // nothing was done
			middleware.WriteProblem(w, r, middleware.Problem{Status: 403, Code: "users_only"})
			return
		}
		w.WriteHeader(http.StatusCreated)
	})

	key := issue(issuing.New(keys, issuing.Options{}), "org_2", "parcels:read")
	const jwt = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ1c2VyXzEifQ.c2ln"
	for _, token := range []string{key, jwt, "a.forged.one"} {
		read := send(api, "GET", "/api/v1/parcels", token, "")
		fmt.Println(read.Code, send(api, "POST", "/api/v1/members", token, "").Code)
	}
	fmt.Println(send(api, "GET", "/api/v1/parcels", key, "").Body)
	fmt.Println(send(api, "GET", "/api/v1/parcels", "", "", "Authorization", "bearer "+jwt).Body)
	// Output:
	// 200 403
	// 200 201
	// 401 401
	// org_2 by key
	// org_1 user_1
}

// Sessions beside keys. A page of another site can make a browser send a cookie,
// but no key: the check of the origin concerns the cookie alone.
func ExampleOptions_session() {
	sessions := map[string]string{"1f6e": "ada"}
	origins := http.NewCrossOriginProtection()
	users := func(r *http.Request) (*keystore.Caller, error) {
		cookie, err := r.Cookie("session")
		if err != nil || r.Header.Get("Authorization") != "" { // of two kinds the key wins
			return nil, middleware.ErrNoCredentials
		}
		user, ok := sessions[cookie.Value]
		if !ok {
			return nil, middleware.ErrNoCredentials
		}
		if err := origins.Check(r); err != nil {
			return nil, &middleware.Problem{Status: 403, Code: "cross_origin", Detail: err.Error()}
		}
		return keystore.NewCaller(nil, keystore.Identity{
			Organization: "org_1", Subject: user, Scopes: []scope.Name{scope.TasksWrite},
		})
	}
	keys, issuer := issuing.InMemory(keystore.Service{})
	api := middleware.NewAPI(keys, middleware.Options{Authenticate: users})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, cmp.Or(middleware.CallerFrom(r.Context()).Subject(), "by key"))
		})

	key := issue(issuer, "org_1", scope.TasksWrite)
	for _, site := range []string{"same-origin", "cross-site"} {
		from := []string{"Cookie", "session=1f6e", "Sec-Fetch-Site", site}
		user := send(api, "POST", "/api/v1/tasks", "", "", append(from, "Authorization", "")...)
		program := send(api, "POST", "/api/v1/tasks", key, "", from...)
		fmt.Println(user.Code, program.Code, program.Body)
	}
	// Output:
	// 201 201 by key
	// 403 201 by key
}

// Refusals in an envelope of one's own.
func ExampleHooks_envelope() {
	type object = map[string]any
	api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{Hooks: &middleware.Hooks{
		ProblemBody: func(r *http.Request, p middleware.Problem) (string, []byte) {
			body, err := json.Marshal(object{"error": object{"code": p.Code, "status": p.Status}, "ok": false})
			if err != nil {
				return "", nil // the default
			}
			return "application/json", body
		},
	}})
	w := send(api, "GET", "/api/v1/account", "svc_pub_0123456789", "")
	fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Header().Get("WWW-Authenticate"))
	fmt.Println(w.Body)
	// Output:
	// 401 application/json Bearer realm="api", error="invalid_token"
	// {"error":{"code":"api_key_invalid","status":401},"ok":false}
}

// One line in the log for each response.
func ExampleAccessLog() {
	log := slog.New(slog.NewTextHandler(os.Stdout,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case "status", "organization", "environment", "stage", "outcome":
				return a
			}
			return slog.Attr{} // there is more, such as the path and the client's address
		}}))
	keys := issuing.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{Observe: middleware.AccessLog(log)}})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead),
		func(http.ResponseWriter, *http.Request) {})
	send(api, "GET", "/api/v1/account", issue(issuing.New(keys, issuing.Options{}), "org_1"), "")
	// Output:
	// status=403 caller.organization=org_1 caller.environment=production stage=scope outcome=insufficient_scope
}

// A task of more than 1,000 runs needs one scope more, which the route cannot
// know.
func ExampleAllow() {
	keys, issuer := issuing.InMemory(keystore.Service{})
	api := middleware.NewAPI(keys, middleware.Options{})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			var task struct{ Runs int }
			if err := json.NewDecoder(r.Body).Decode(&task); err != nil {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 400, Code: "bad_request"})
				return
			}
			if task.Runs > 1000 && !middleware.Allow(w, r, middleware.Require(scope.ApprovalsWrite)) {
				return
			}
			w.WriteHeader(http.StatusCreated)
		})

	key := issue(issuer, "org_1", scope.TasksWrite)
	for _, body := range []string{`{"runs":10}`, `{"runs":5000}`} {
		res := send(api, "POST", "/api/v1/tasks", key, body)
		fmt.Println(res.Code, res.Header()["Www-Authenticate"])
	}
	// Output:
	// 201 []
	// 403 [Bearer realm="api", error="insufficient_scope", scope="approvals:write"]
}

// Before a limit and a scope are enforced, the log tells whom they would refuse.
func ExampleRequirement_ReportOnly() {
	keys := issuing.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{
		RateLimit: middleware.RateLimitOptions{Store: &ratelimit.Memory{}, Organization: &ratelimit.Policy{
			Name: "organization", Limit: ratelimit.MustParse("2-H"), ReportOnly: true,
		}},
		Hooks: &middleware.Hooks{Observe: func(_ context.Context, e middleware.Event) {
			fmt.Printf("%d %q\n", e.Status, e.ReportedCode)
		}},
	})
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	api.Handle("GET /api/v1/account", middleware.Require(scope.AccountRead).ReportOnly(), handler)

	issuer := issuing.New(keys, issuing.Options{})
	with, without := issue(issuer, "org_1", scope.AccountRead), issue(issuer, "org_1")
	for _, key := range []string{with, without, with} {
		send(api, "GET", "/api/v1/account", key, "")
	}
	// Output:
	// 200 ""
	// 200 "insufficient_scope"
	// 200 "rate_limited"
}

// A tenant has bought ten units. A summary costs one, and one for each word that
// it has: a retry costs nothing, also when the quota is used up.
func ExampleAddUnits() {
	keys, issuer := issuing.InMemory(keystore.Service{})
	replies := idem.NewRunner(&idem.Memory{}, idem.Options{})
	api := middleware.NewAPI(keys, middleware.Options{
		Idempotency: middleware.IdempotencyOptions{Runner: replies},
		Quota: middleware.QuotaOptions{
			Organization: &idem.Quota{Name: "bought", Units: 10, Period: idem.Lifetime},
		},
	})
	var caller *keystore.Caller
	api.HandleFunc("POST /api/v1/summaries", middleware.Require(scope.TasksRead),
		func(w http.ResponseWriter, r *http.Request) {
			caller = middleware.CallerFrom(r.Context())
			summary := "nine words that a model has made of it"
			if err := middleware.AddUnits(r.Context(), int64(len(strings.Fields(summary)))); err != nil {
				fmt.Println(err)
			}
			fmt.Fprint(w, summary)
		}, middleware.RouteOptions{Units: 1})

	key := issue(issuer, "org_1", scope.TasksRead)
	for _, operation := range []string{"1", "2", "1"} {
		res := send(api, "POST", "/api/v1/summaries", key, "a long text", "Idempotency-Key", operation)
		var problem struct{ Code string }
		_ = json.Unmarshal(res.Body.Bytes(), &problem)
		fmt.Printf("%d %q\n", res.Code, problem.Code)
	}
	tenant := middleware.AccountOf(caller).Within()[2]
	used, _, err := replies.Store().(idem.Counter).Used(context.Background(), tenant, time.Time{})
	fmt.Println(used, err)
	// Output:
	// 200 ""
	// 403 "quota_exceeded"
	// 200 ""
	// 10 <nil>
}

// The stages of a Guard, for a router of your own.
func ExampleGuard_Quota() {
	keys, issuer := issuing.InMemory(keystore.Service{})
	guard := middleware.New(keys, middleware.Options{Quota: middleware.QuotaOptions{
		Key: &idem.Quota{Name: "budget", Units: 9, Period: idem.Lifetime},
	}})
	stages := middleware.Chain(guard.RequestID, guard.Recover, guard.Authenticate,
		guard.Enforce(middleware.Require(scope.TasksWrite)), guard.Quota(5))
	mux := http.NewServeMux()
	mux.Handle("POST /tasks", stages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})))

	key := issue(issuer, "org_1", scope.TasksWrite)
	for _, operation := range []string{"1", "1", "2"} {
		fmt.Println(send(mux, "POST", "/tasks", key, "{}", "Idempotency-Key", operation).Code)
	}
	// Output:
	// 201
	// 201
	// 403
}
