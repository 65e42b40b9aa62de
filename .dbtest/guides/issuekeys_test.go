package guides_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// issueKey answers with a new key of the caller's organization.
func issueKey(issuer *issuing.Issuer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		middleware.ExecutionFrom(r.Context()).DropResponse()
		caller := middleware.CallerFrom(r.Context())
		var want struct {
			Name   string
			Scopes []scope.Name
		}
		if err := json.NewDecoder(r.Body).Decode(&want); err != nil {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 400, Code: "json_invalid"})
			return
		}
		// The caller's key as it is now: the new one lives longer than what a cache
		// remembers. For a user, set in own what its organization has, such as a plan.
		own, holds := &keystore.Key{}, caller
		if id := caller.KeyID(); id != "" {
			var err error
			if own, err = issuer.Key(r.Context(), caller.Organization(), id); err != nil {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "keys_unavailable"})
				return
			}
			holds = own.Bind(issuer.Service().Scopes)
		}
		if holds.Refused() != nil {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 403, Code: "key_refused"})
			return
		}
		if own.Parent != "" { // what its ancestors forbid is not in own, nor would the new key end with them
			middleware.WriteProblem(w, r, middleware.Problem{Status: 403, Code: "key_is_child"})
			return
		}
		for _, name := range want.Scopes { // the new key can do no more than the caller's
			if !holds.Has(name) {
				middleware.WriteProblem(w, r, middleware.Problem{Status: 403, Code: "scope_not_held"})
				return
			}
		}
		caller.Use(want.Scopes...)
		ends := own.ExpiresAt
		if revoked := own.RevokedAt; ends.IsZero() || !revoked.IsZero() && revoked.Before(ends) {
			ends = revoked
		}
		by := issuer.By(cmp.Or(caller.Subject(), caller.KeyID()), "")
		secret, key, err := by.Issue(r.Context(), keystore.Key{
			Organization: caller.Organization(), Environment: caller.Environment(),
			Name: want.Name, Scopes: want.Scopes,
			Attributes: own.Attributes, Networks: own.Networks, ExpiresAt: ends,
			IssueToken: r.Header.Get("Idempotency-Key"),
		})
		answerKey(w, r, secret, key, err)
	}
}

// answerKey answers with a new key. The secret of one that an earlier request
// made, whose reply is lost, is nowhere.
func answerKey(w http.ResponseWriter, r *http.Request, secret keystore.Secret, key *keystore.Key, err error) {
	switch invalid := new(keystore.FieldsError); {
	case errors.As(err, &invalid):
		middleware.WriteProblem(w, r, middleware.Problem{Status: 422, Code: "key_invalid", Detail: err.Error()})
	case errors.Is(err, issuing.ErrExists):
		middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "key_exists",
			Detail: "This Idempotency-Key has made the key " + key.ID + ". For another one send another."})
	case err != nil:
		middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "keys_unavailable"})
	default:
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": key.ID, "secret": secret.Reveal()})
	}
}

// An endpoint that issues keys, in an API that joins the other creates to their
// transactions. The secret is in its response and nowhere else: a repeat with
// the same Idempotency-Key makes no second key and does not get the secret of
// the first.
func Example_issueKeys() {
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
	issuer := issuing.New(keys, issuing.Options{})
	api := middleware.NewAPI(keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{
		Runner: idem.NewRunner(replyTable, idem.Options{Join: true}),
	}})

	leases := idem.NewRunner(replyTable, idem.Options{})
	api.HandleFunc("POST /api/v1/keys", middleware.Require("keys:write"), issueKey(issuer),
		middleware.RouteOptions{Idempotency: middleware.IdempotencyOptions{Runner: leases}})

	admin := issue(issuer, "org_1", "keys:write", "parcels:read")
	for _, body := range []string{`{"scopes":["parcels:read"]}`, `{"scopes":["parcels:read"]}`, `{"scopes":["all"]}`} {
		w := send(api, "POST", "/api/v1/keys", admin, body, "Idempotency-Key", body)
		h := w.Header()
		fmt.Println(w.Code, strings.Contains(w.Body.String(), "svc_live_"), h.Get("Cache-Control"), h.Get("Content-Type"))
	}
	// Output:
	// 201 true no-store application/json
	// 409 false no-store application/problem+json
	// 403 false no-store application/problem+json
}

// A key that the endpoint makes can be used from no more networks than the
// caller's, and no longer.
func TestIssuedKeyCanDoNoMore(t *testing.T) {
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	issuer := issuing.New(keys, issuing.Options{})
	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)}})
	api.HandleFunc("POST /api/v1/keys", middleware.AnyCaller(), issueKey(issuer))
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, test := range map[string]struct {
		parent  keystore.Key
		overlap time.Duration // until the parent is revoked, which was rotated
		latest  time.Time     // end of the new key; zero: none
	}{
		"narrow": {parent: keystore.Key{
			Networks:   []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
			Attributes: map[string]string{"plan": "free"}, ExpiresAt: soon,
		}, latest: soon},
		"without limits": {},
		"rotated":        {overlap: time.Hour, latest: time.Now().Add(time.Hour + time.Minute)},
		"expires first":  {parent: keystore.Key{ExpiresAt: soon}, overlap: 2 * time.Hour, latest: soon},
		"revoked first": {parent: keystore.Key{ExpiresAt: soon.Add(9 * time.Hour)}, overlap: time.Hour,
			latest: soon.Add(time.Minute)},
	} {
		g := test.parent
		g.Organization, g.Name, g.Environment = "org_1", "parent", keystore.Production
		secret, parent, err := issuer.Issue(t.Context(), g)
		if err == nil && test.overlap > 0 {
			_, _, err = issuer.Rotate(t.Context(), issuing.Rotation{Organization: "org_1", ID: parent.ID, Overlap: test.overlap})
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

// A child would get a key that its parent does not limit, and that outlives it.
func TestChildIssuesNoKey(t *testing.T) {
	keys, issuer := issuing.InMemory(keystore.Service{})
	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)}})
	api.HandleFunc("POST /api/v1/keys", middleware.AnyCaller(), issueKey(issuer))
	_, parent, err := issuer.Issue(t.Context(), keystore.Key{Organization: "org_1", Environment: keystore.Production,
		Attributes: map[string]string{"plan": "free"}})
	if err != nil {
		t.Fatal(err)
	}
	secret, _, err := issuer.Delegate(t.Context(), keystore.Key{Organization: "org_1", Parent: parent.ID,
		ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if w := send(api, "POST", "/api/v1/keys", secret.Reveal(), `{}`); w.Code != http.StatusForbidden {
		t.Errorf("a child got %d %s, want 403", w.Code, w.Body)
	}
}

// Nor does a key issue another one that was just suspended or narrowed by
// another process, of which the cache of this one does not know yet.
func TestChangedKeyIssuesNoKey(t *testing.T) {
	store := issuing.NewMemory()
	keys, elsewhere := keystore.NewCached(store, keystore.CacheOptions{}), issuing.New(store, issuing.Options{})
	issuer := issuing.New(keys, issuing.Options{})
	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)}})
	api.HandleFunc("POST /api/v1/keys", middleware.AnyCaller(), issueKey(issuer))
	for code, change := range map[string]func(*keystore.Key){
		"key_refused":    func(k *keystore.Key) { k.Suspended = true },
		"scope_not_held": func(k *keystore.Key) { k.Scopes = nil },
	} {
		secret, k, err := issuer.Issue(t.Context(), keystore.Key{Organization: "org_1",
			Environment: keystore.Production, Scopes: []scope.Name{scope.TasksRead}})
		if err != nil {
			t.Fatal(err)
		}
		body := `{"scopes":["tasks:read"]}`
		if w := send(api, "POST", "/api/v1/keys", secret.Reveal(), body); w.Code != http.StatusCreated {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		change(k)
		if _, err := elsewhere.Edit(t.Context(), *k); err != nil {
			t.Fatal(err)
		}
		w := send(api, "POST", "/api/v1/keys", secret.Reveal(), body)
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), code) {
			t.Errorf("got %d %s, want 403 %s", w.Code, w.Body, code)
		}
	}
}
