package middleware_test

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// The page .github/GUIDES.md shows parts of these examples.

func account(w http.ResponseWriter, r *http.Request) {
	caller, _ := middleware.PrincipalFrom(r.Context())
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
	keys := keystore.NewMemory()
	counters := ratelimit.NewMemory()
	hooks := &middleware.Hooks{Observe: func(_ context.Context, e middleware.Event) {
		fmt.Println(e.Status, e.Pattern, e.Outcome, len(e.RequestID))
	}}

	api := middleware.NewAPI(keys, middleware.Options{
		RateLimit: middleware.PerOrganization(counters, ratelimit.MustParse("100-S")),
		Hooks:     hooks,
	})
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
	server := middleware.Chain(api.RequestID, api.Recover)(mux)

	key := issue(keystore.NewIssuer(keys, keystore.IssuerOptions{}), "org_1", scope.AccountRead)
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
	publishable := func(r *http.Request) (middleware.Principal, error) {
		organization, ok := pages[r.Header.Get("X-Publishable-Key")]
		if !ok {
			return middleware.Principal{}, middleware.ErrNoCredentials
		}
		return middleware.NewPrincipal(nil, middleware.Identity{
			Organization: organization, Subject: "browser", Scopes: []scope.Name{scope.ChatRead},
		})
	}
	keys := keystore.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{
		Keys:         middleware.KeyOptions{RejectBrowsers: true}, // a secret key in a page is a leaked key
		Authenticate: publishable,
		RateLimit: middleware.RateLimitOptions{
			Store:  ratelimit.NewMemory(),
			Client: &ratelimit.Policy{Name: "client", Limit: ratelimit.MustParse("10-S")},
		},
	})
	api.HandleFunc("GET /api/v1/chat", middleware.Require(scope.ChatRead), account)
	server := api.RequestID(cors(api)) // ids on preflights, CORS fields on refusals

	secret := issue(keystore.NewIssuer(keys, keystore.IssuerOptions{}), "org_1", scope.ChatRead)
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

// issueKey answers with a new key of the caller's organization.
func issueKey(issuer *keystore.Issuer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		middleware.NotRetained(r.Context())
		caller, _ := middleware.PrincipalFrom(r.Context())
		var want struct {
			Name   string
			Scopes []scope.Name
		}
		if err := json.NewDecoder(r.Body).Decode(&want); err != nil {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 400, Code: "json_invalid"})
			return
		}
		for _, name := range want.Scopes { // the new key can do no more than the caller's
			if !caller.Has(name) {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 403, Code: "scope_not_held"})
				return
			}
		}
		own := &keystore.Key{} // the caller's, if it is not a user
		if id := caller.KeyID(); id != "" {
			var err error
			if own, err = issuer.Key(r.Context(), caller.Organization(), id); err != nil {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "keys_unavailable"})
				return
			}
		}
		ends := own.ExpiresAt
		if revoked := own.RevokedAt; ends.IsZero() || !revoked.IsZero() && revoked.Before(ends) {
			ends = revoked
		}
		by := issuer.By(cmp.Or(caller.Subject(), caller.KeyID()), "")
		secret, key, err := by.Issue(r.Context(), keystore.Grant{
			Organization: caller.Organization(), Environment: caller.Environment(),
			Name: want.Name, Scopes: want.Scopes,
			Attributes: own.Attributes, Networks: own.Networks, ExpiresAt: ends,
		})
		if invalid := new(keystore.GrantError); errors.As(err, &invalid) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 422, Code: "key_invalid", Detail: err.Error()})
			return
		} else if err != nil {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "keys_unavailable"})
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": key.ID, "secret": secret.Reveal()})
	}
}

// An endpoint that issues keys, in an API that joins the other creates to their
// transactions. The secret is in its response and nowhere else: a repeat with
// the same Idempotency-Key makes no second key and does not get the secret of
// the first.
func ExampleNotRetained() {
	ctx := context.Background()
	db, remove := openSQLite()
	defer remove()
	keyTable, replyTable := keysql.SQLite(db, keysql.Options{}), idemsql.SQLite(db, idemsql.Options{})
	if err := errors.Join(keyTable.Migrate(ctx), replyTable.Migrate(ctx)); err != nil {
		log.Fatal(err)
	}
	keys := keystore.NewCached(keyTable, keystore.CacheOptions{Service: keystore.Service{Scopes: scope.New(
		scope.Definition{Name: "keys:write"}, scope.Definition{Name: "parcels:read"},
	)}})
	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})
	api := middleware.NewAPI(keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{
		Runner: idem.NewRunner(replyTable, idem.Options{Join: true}),
	}})

	leases := idem.NewRunner(replyTable, idem.Options{})
	api.HandleFunc("POST /api/v1/keys", middleware.Require("keys:write"), issueKey(issuer),
		middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Runner: leases}})

	admin := issue(issuer, "org_1", "keys:write", "parcels:read")
	for _, body := range []string{`{"scopes":["parcels:read"]}`, `{"scopes":["parcels:read"]}`, `{"scopes":["all"]}`} {
		w := send(api, "POST", "/api/v1/keys", admin, body, "Idempotency-Key", body)
		fmt.Println(w.Code, strings.Contains(w.Body.String(), "svc_live_"))
	}
	// Output:
	// 201 true
	// 409 false
	// 403 false
}

// A key that the endpoint makes can be used from no more networks than the
// caller's, and no longer.
func TestIssuedKeyCanDoNoMore(t *testing.T) {
	keys := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})
	api := middleware.NewAPI(keys, middleware.Options{Hooks: quiet()})
	api.HandleFunc("POST /api/v1/keys", middleware.AnyCaller(), issueKey(issuer))
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, test := range map[string]struct {
		parent  keystore.Grant
		overlap time.Duration // until the parent is revoked, which was rotated
		latest  time.Time     // end of the new key; zero: none
	}{
		"narrow": {parent: keystore.Grant{
			Networks:   []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
			Attributes: map[string]string{"plan": "free"}, ExpiresAt: soon,
		}, latest: soon},
		"without limits": {},
		"rotated":        {overlap: time.Hour, latest: time.Now().Add(time.Hour + time.Minute)},
		"expires first":  {parent: keystore.Grant{ExpiresAt: soon}, overlap: 2 * time.Hour, latest: soon},
		"revoked first": {parent: keystore.Grant{ExpiresAt: soon.Add(9 * time.Hour)}, overlap: time.Hour,
			latest: soon.Add(time.Minute)},
	} {
		g := test.parent
		g.Organization, g.Name, g.Environment = "org_1", "parent", keystore.Production
		secret, parent, err := issuer.Issue(t.Context(), g)
		if err == nil && test.overlap > 0 {
			_, _, err = issuer.Rotate(t.Context(), "org_1", parent.ID, test.overlap, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		w := send(api, "POST", "/api/v1/keys", secret.Reveal(), `{"name":"child"}`)
		var made struct{ ID string }
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code != http.StatusCreated {
			t.Fatalf("%s: got %d %s", name, w.Code, w.Body)
		}
		child, err := issuer.Key(t.Context(), "org_1", made.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(child.Networks, g.Networks) || !maps.Equal(child.Attributes, g.Attributes) {
			t.Errorf("%s: got networks %v and attributes %v, want %v and %v", name, child.Networks, child.Attributes,
				g.Networks, g.Attributes)
		}
		if child.ExpiresAt.IsZero() != test.latest.IsZero() || child.ExpiresAt.After(test.latest) {
			t.Errorf("%s: the new key expires at %v, want no later than %v", name, child.ExpiresAt, test.latest)
		}
	}
}

// An upload of up to 32 MiB and a stream, both with an Idempotency-Key: a repeat
// of the upload stores nothing twice, a repeat of the stream gets all of it.
func ExampleRouteOptions_uploadAndStream() {
	keys := keystore.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{
		Runner: idem.NewRunner(idem.NewMemory(idem.MemoryOptions{}), idem.Options{}),
	}})

	const largest = 32 << 20
	api.HandleFunc("POST /api/v1/deliverables", middleware.Require(scope.DeliverablesWrite),
		func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, largest)) // also without an Idempotency-Key
			if err != nil {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 413, Code: "body_too_large"})
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "%d bytes", n)
		},
		middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{MaxBody: largest}})

	api.HandleFunc("POST /api/v1/chat", middleware.Require(scope.ChatWrite),
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream") // streams from its first flush on
			for _, word := range []string{"Good", "morning"} {
				fmt.Fprintf(w, "data: %s\n\n", word)
				_ = http.NewResponseController(w).Flush()
			}
		})

	key := issue(keystore.NewIssuer(keys, keystore.IssuerOptions{}), "org_1", scope.DeliverablesWrite, scope.ChatWrite)
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
	keys := keystore.NewMemory()
	api := middleware.NewAPI(keys, middleware.Options{RateLimit: middleware.RateLimitOptions{
		Store:        ratelimit.NewMemory(),
		Organization: small,
		Key:          policy("key", "4-H"),
		Plan: func(_ context.Context, caller middleware.Principal) (organization, key *ratelimit.Policy, err error) {
			if caller.Attribute("plan") == "large" {
				return large, ratelimit.Unlimited, nil
			}
			return nil, nil, nil // Organization and Key
		},
	}})
	nothing := func(http.ResponseWriter, *http.Request) {}
	api.HandleFunc("GET /api/v1/search", middleware.AnyCaller(), nothing, middleware.RouteOptions{Cost: 3})
	api.HandleFunc("GET /api/v1/export", middleware.AnyCaller(), nothing,
		middleware.RouteOptions{Limit: policy("exports", "1-H")})

	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})
	for _, plan := range []string{"small", "large"} {
		secret, _, _ := issuer.Issue(context.Background(), keystore.Grant{
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

// openSQLite opens a new database, which remove deletes.
func openSQLite() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	file := filepath.Join(dir, "parcels.db")
	db, err = sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// Keys, replies and rows in one SQLite file, for a service with scopes of its
// own. With Postgres it is sql.Open("pgx", dsn), keysql.Postgres and
// idemsql.Postgres.
func ExampleNewAPI_database() {
	ctx, stop := context.WithCancel(context.Background())
	db, remove := openSQLite()
	defer remove()
	db.SetMaxOpenConns(8) // joined requests hold a connection each
	keyTable, replyTable := keysql.SQLite(db, keysql.Options{}), idemsql.SQLite(db, idemsql.Options{})
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS parcels (id INTEGER PRIMARY KEY, owner TEXT, target TEXT)")
	err = errors.Join(err, keyTable.Migrate(ctx), replyTable.Migrate(ctx))
	if err := errors.Join(err, keyTable.Check(ctx), replyTable.Check(ctx)); err != nil {
		log.Fatal(err)
	}

	keys := keystore.NewCached(keyTable, keystore.CacheOptions{Service: keystore.Service{
		Prefix: "acme", Scopes: scope.New(scope.Definition{Name: "parcels:write", Meaning: "Send parcels."}),
	}})
	uses := keystore.NewLastUsed(keys, keystore.LastUsedOptions{})
	var work sync.WaitGroup
	work.Go(func() { _ = uses.Run(ctx) })       // writes when keys were used
	work.Go(func() { _ = keys.Run(ctx) })       // hears of keys that others revoke
	work.Go(func() { _ = replyTable.Run(ctx) }) // removes replies that have expired

	api := middleware.NewAPI(keys, middleware.Options{
		Base: "/v2",
		Keys: middleware.KeyOptions{LastUsed: uses},
		Idempotency: middleware.IdempotencyOptions{
			Runner:   idem.NewRunner(replyTable, idem.Options{Join: true}),
			Required: true, // so that each create has a transaction
		},
	})
	api.HandleFunc("POST /v2/parcels", middleware.Require("parcels:write"),
		func(w http.ResponseWriter, r *http.Request) {
			caller, _ := middleware.PrincipalFrom(r.Context())
			tx, _ := idemsql.Tx(r.Context()) // committed together with the reply
			var id int
			err := tx.QueryRowContext(r.Context(), "INSERT INTO parcels (owner, target) VALUES (?, ?) RETURNING id",
				caller.Tenant(), r.FormValue("to")).Scan(&id)
			if err != nil {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 500, Code: "internal"}) // rolls back
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintln(w, "parcel", id)
		})

	key := issue(keystore.NewIssuer(keys, keystore.IssuerOptions{}), "org_1", "parcels:write")
	for range 2 {
		w := send(api, "POST", "/v2/parcels", key, "to=Lisbon", "Idempotency-Key", "7f1c",
			"Content-Type", "application/x-www-form-urlencoded")
		fmt.Print(w.Code, " ", w.Body)
	}
	stop()
	work.Wait()
	used, err := keys.List(context.Background(), "org_1", keystore.Page{NeverUsed: true, Limit: 1})
	fmt.Println(len(used), "never used", err)
	// Output:
	// 201 parcel 1
	// 201 parcel 1
	// 0 never used <nil>
}

// closeMonth is called by a handler and by a job. Both say in the context for
// whom.
func closeMonth(ctx context.Context) string {
	caller, ok := middleware.PrincipalFrom(ctx)
	if !ok || !caller.Has(scope.TasksWrite) {
		return "refused"
	}
	return "closed the month of " + caller.Organization() + " for " + caller.Subject()
}

// A job acts for an organization through the functions that handlers call.
func ExampleWithPrincipal() {
	job, err := middleware.NewPrincipal(nil, middleware.Identity{
		Organization: "org_1", Subject: "job:month", Scopes: []scope.Name{scope.TasksWrite},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(closeMonth(middleware.WithPrincipal(context.Background(), job)))
	fmt.Println(closeMonth(context.Background()))
	// Output:
	// closed the month of org_1 for job:month
	// refused
}
