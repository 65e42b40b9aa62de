package middleware_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestRefusalsHelp: the detail says which mistake was made, and nothing about
// keys that the client does not hold.
func TestRefusalsHelp(t *testing.T) {
	ring := newKeyring()
	past := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	live := ring.issue(t)
	tests := []struct{ name, token, detail string }{
		{"cut off", live[:20], "wrong length"},
		{"mistyped", swapLast(live), "mistyped"},
		{"other prefix", "sk_live_0123456789", "prefix of this service"},
		{"publishable", "svc_pub_0123456789", "publishable key"},
		{"unknown environment", "svc_prod_0123456789", "names no environment of this service"},
		{"quoted", `"` + live + `"`, "quote"},
		{"too long", strings.Repeat("a", 300), "longer than any key"},
		{"unknown", keystore.Service{}.Generate(keystore.Production).Reveal(), "The API key is not valid."},
		{"expired", ring.plant(t, keystore.Key{ExpiresAt: past}), "expired on 2020-02-03 04:05:06 UTC"},
		{"revoked", ring.plant(t, keystore.Key{RevokedAt: past}), "revoked on 2020-02-03 04:05:06 UTC"},
		{"suspended", ring.plant(t, keystore.Key{Suspended: true}), "suspended"},
		{"revoked and without the scope", ring.plant(t, keystore.Key{RevokedAt: past}), "revoked"},
	}
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
	for _, tt := range tests {
		res := serve(api, request("GET", "/api/v1/account", tt.token, ""))
		wantRefusal(t, tt.name, res, 401, "api_key_invalid", invalid)
		if got := res.problem(t).Detail; !strings.Contains(got, tt.detail) || strings.Contains(got, tt.token) {
			t.Errorf("%s: got detail %q, want one about %q", tt.name, got, tt.detail)
		}
	}
}

func TestEnvironmentOfHost(t *testing.T) {
	ring := newKeyring()
	live := ring.issue(t)
	test, _ := ring.grant(t, keystore.Key{Environment: keystore.Sandbox})
	store := &countedStore{Store: ring.memory}
	api := testAPI(store, middleware.Options{Hooks: quiet(), Environment: keystore.Production})
	res := serve(api, request("GET", "/api/v1/any", test, ""))
	wantRefusal(t, "test key", res, 401, "api_key_invalid", invalid)
	if got := res.problem(t).Detail; got != "This host takes production keys, and the API key is a sandbox one." ||
		store.lookups.Load() != 0 {
		t.Errorf("got %q after %d lookups", got, store.lookups.Load())
	}
	wantAnswer(t, "active key", serve(api, request("GET", "/api/v1/any", live, "")), 200)
}

// TestStoreAnswers: only "no such key" is 401. A store that fails, gives back
// nothing or a record that does not fit is an error of ours: 503, and the cause
// is in the log. A cache in front of the store changes nothing.
func TestStoreAnswers(t *testing.T) {
	ring := newKeyring()
	token, key := ring.grant(t, keystore.Key{})
	wrongDigest, wrongEnvironment := key.Clone(), key.Clone()
	wrongDigest.Digest[0]++
	wrongEnvironment.Environment = keystore.Sandbox
	const secretText = "password=hunter2"
	tests := []struct {
		name   string
		key    *keystore.Key
		err    error
		status int
		logs   string
	}{
		{"found", key, nil, 200, ""},
		{"not found", nil, keystore.ErrNotFound, 401, ""},
		{"not found, wrapped", nil, fmt.Errorf("in table keys: %w", keystore.ErrNotFound), 401, ""},
		{"nothing", nil, nil, 503, "keystore: record is corrupt"},
		{"other digest", wrongDigest, nil, 503, "keystore: record is corrupt"},
		{"other environment", wrongEnvironment, nil, 503, "keystore: record is corrupt"},
		{"corrupt", nil, fmt.Errorf("row 7: %w", keystore.ErrCorrupt), 503, "row 7"},
		{"down", nil, errors.New("dial tcp: " + secretText), 503, secretText},
		{"overloaded", nil, keystore.ErrOverloaded, 503, "too many lookups"},
		{"timed out", nil, context.DeadlineExceeded, 503, "deadline exceeded"},
	}
	for _, tt := range tests {
		store := lookupFunc(func(context.Context, keystore.Digest) (*keystore.Key, error) { return tt.key, tt.err })
		for name, keys := range map[string]keystore.Store{tt.name: store,
			tt.name + ", cached": keystore.NewCached(store, keystore.CacheOptions{})} {
			log := newLogged()
			res := serve(testAPI(keys, middleware.Options{Hooks: log.hooks()}), request("GET", "/api/v1/any", token, ""))
			switch tt.status {
			case 200:
				wantAnswer(t, name, res, 200)
			case 401:
				wantRefusal(t, name, res, 401, "api_key_invalid", invalid)
			case 503:
				wantRefusal(t, name, res, 503, "key_store_unavailable", "")
			}
			if strings.Contains(res.body, secretText) || strings.Contains(res.body, "row 7") {
				t.Errorf("%s: the cause is in the body: %s", name, res.body)
			}
			got := log.String()
			if tt.logs == "" && got != "" || tt.logs != "" && (!strings.Contains(got, tt.logs) ||
				!strings.Contains(got, "level=ERROR") || !strings.Contains(got, "could not be checked")) {
				t.Errorf("%s: got the log %q, want an error about %q", name, got, tt.logs)
			}
		}
	}
}

// TestKeyExpiresWhileCached: the instant counts, not the lookup.
func TestKeyExpiresWhileCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		token, _ := ring.grant(t, keystore.Key{ExpiresAt: time.Now().Add(10 * time.Second)})
		api := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
		for i, after := range []time.Duration{0, 10*time.Second - 1, 1} {
			time.Sleep(after)
			want := []int{200, 200, 401}[i]
			wantAnswer(t, fmt.Sprintf("%v later", after), serve(api, request("GET", "/api/v1/any", token, "")), want)
		}
	})
}

func TestRejectBrowsers(t *testing.T) {
	ring, token := oneKey(t)
	store := &countedStore{Store: ring.memory}
	rejecting := testAPI(store, middleware.Options{Hooks: quiet(), RejectBrowsers: true})
	open := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
	tests := []struct {
		header string
		want   int
	}{
		{"Sec-Fetch-Site: cross-site", 401},
		{"Sec-Fetch-Site: same-site", 401},
		{"Sec-Fetch-Site: same-origin", 401},
		{"Sec-Fetch-Site: none", 200}, // typed into the address bar, as some tools do
		{"Sec-Fetch-Mode: cors", 200}, // what fetch of Node.js sends
		{"Origin: https://shop.example", 401},
		{"Origin: null", 401},
		{"User-Agent: Mozilla/5.0", 200},
	}
	for _, tt := range tests {
		before := store.lookups.Load()
		res := serve(rejecting, request("GET", "/api/v1/any", token, "", tt.header))
		wantAnswer(t, tt.header, res, tt.want)
		if tt.want == 401 {
			wantRefusal(t, tt.header, res, 401, "api_key_invalid", invalid)
			if !strings.Contains(res.problem(t).Detail, "browser") || store.lookups.Load() != before {
				t.Errorf("%s: got %s", tt.header, res.body)
			}
		}
		if res := serve(open, request("GET", "/api/v1/any", token, "", tt.header)); res.StatusCode != 200 {
			t.Errorf("%s without the option: got %d", tt.header, res.StatusCode)
		}
	}
}

// TestLastUsed: accepted keys are noted, refused ones are not.
func TestLastUsed(t *testing.T) {
	ring := newKeyring()
	last := keystore.NewUses(ring.memory, keystore.UsesOptions{})
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), Uses: last})
	live := ring.plant(t, keystore.Key{ID: "live"})
	past := ring.plant(t, keystore.Key{ID: "past", ExpiresAt: time.Unix(1e9, 0)})
	away := ring.plant(t, keystore.Key{ID: "away", Networks: trust("10.9.0.0/16")})
	if got := statusesOf(api, live, past, away); got != "200 401 403" {
		t.Errorf("got %s", got)
	}
	if err := flush(last); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"live": true, "past": false, "away": false} {
		found, err := ring.memory.Find(t.Context(), "org_1", id)
		if err != nil || !found.LastUsedAt.IsZero() != want {
			t.Errorf("%s: got %v, %v; used: %v", id, found.LastUsedAt, err, want)
		}
	}
}

// TestUsage: who needs which scope, from where, and how often. Whether by an API
// or by pieces makes no difference.
func TestUsage(t *testing.T) {
	ring := newKeyring()
	both := []scope.Name{scope.TasksRead, scope.TasksWrite}
	needs := map[string]middleware.Requirement{
		"all":    middleware.Require(scope.TasksRead, scope.TasksWrite),
		"one":    middleware.Require(scope.TasksRead),
		"any":    middleware.RequireAny(scope.ChatRead, scope.TasksWrite, scope.TasksRead),
		"lacks":  middleware.Require(scope.TasksRead, scope.ChatRead),
		"none":   middleware.AnyCaller(),
		"asks":   middleware.AnyCaller(),
		"needs":  middleware.AnyCaller(),
		"report": middleware.Require(scope.TasksRead, scope.ChatRead).ReportOnly(),
		"spent":  middleware.Require(scope.TasksRead),
		"allow":  middleware.AnyCaller(),
	}
	for _, tt := range []struct {
		path   string
		held   []scope.Name
		status int
		want   []scope.Name
	}{
		{"all", both, 200, both},
		{"all", both[:1], 403, nil},
		{"one", both, 200, both[:1]},
		{"any", both, 200, both},
		{"any", both[1:], 200, both[1:]},
		{"any", []scope.Name{scope.WorkersRead}, 403, nil},
		{"lacks", both, 403, nil},
		{"none", both, 200, nil},
		{"asks", both, 200, nil},
		{"needs", both, 200, both[1:]},
		{"report", both, 200, both[:1]},
		{"spent", both, 429, nil},
		{"unknown", both, 404, nil},
		{"allow", both, 200, both[1:]},
		{"allow", both[:1], 403, nil},
	} {
		for _, pieces := range []bool{false, true} {
			if pieces && (tt.path == "unknown" || tt.path == "spent") {
				continue
			}
			last := keystore.NewUses(ring.memory, keystore.UsesOptions{})
			o := middleware.Options{Hooks: quiet(), Uses: last, TrustedProxies: trust("192.0.2.0/24")}
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				p := middleware.CallerFrom(r.Context())
				p.Has(scope.ChatRead) // asks, and records nothing
				switch tt.path {
				case "needs":
					p.Use(scope.ChatRead, scope.TasksWrite)
				case "allow":
					middleware.Allow(w, r, middleware.Require(scope.TasksWrite))
				}
			})
			o.RateLimit.Store = &ratelimit.Memory{}
			api := middleware.NewAPI(ring.keys, o)
			for path, need := range needs {
				var limits []middleware.RouteOptions
				if path == "spent" {
					limits = append(limits, middleware.RouteOptions{Policy: policy("spent", "1-H", 0)})
				}
				api.Handle("GET /api/v1/"+path, need, handler, limits...)
			}
			h := http.Handler(api)
			if pieces {
				o.RateLimit = rateOptions{}
				g := middleware.New(ring.keys, o)
				h = middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(needs[tt.path]))(handler)
			}
			token, key := ring.grant(t, keystore.Key{Scopes: tt.held})
			if tt.path == "spent" {
				other := ring.issue(t, scope.TasksRead)
				serve(h, request("GET", "/api/v1/spent", other, ""))
			}
			r := request("GET", "/api/v1/"+tt.path, token, "")
			r.Header.Set("X-Forwarded-For", "2001:db8::7")
			wantAnswer(t, fmt.Sprintf("%s with %v", tt.path, tt.held), serve(h, r), tt.status)
			if err := flush(last); err != nil {
				t.Fatal(err)
			}
			u, err := ring.memory.Usage(t.Context(), "org_1", key.ID)
			if err != nil || len(u.Days) != 1 || u.Days[0].Requests != 1 ||
				u.LastUsedFrom != netip.MustParseAddr("2001:db8::7") {
				t.Errorf("%s with %v, pieces %t: got %+v, %v, want one request", tt.path, tt.held, pieces, u, err)
				continue
			}
			if got := slices.Sorted(maps.Keys(u.Scopes)); !slices.Equal(got, tt.want) {
				t.Errorf("%s with %v, pieces %t: the request needed %v, want %v", tt.path, tt.held, pieces, got, tt.want)
			}
		}
	}
}

// TestAuthenticateAlone: it needs nothing before it, and what reaches a RequestID
// inside it has the id.
func TestAuthenticateAlone(t *testing.T) {
	ring, token := oneKey(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet()})
	h := middleware.Chain(anyCaller(g), stage())(http.HandlerFunc(sayWho))
	if res := serve(h, request("GET", "/", token, "")); res.body != "somebody of org_1" || wantID(t, res.Response) == "" {
		t.Errorf("got %d %q", res.StatusCode, res.body)
	}
	res := serve(h, request("GET", "/", "", ""))
	if p := res.problem(t); res.StatusCode != 401 || p.Code != "api_key_missing" || p.RequestID != "" ||
		res.Header.Get(idHeader) != "" || res.Header.Get("Www-Authenticate") != missing {
		t.Errorf("got %d %v %s", res.StatusCode, res.Header, res.body)
	}
}

// confined returns a caller with an end and a network.
func confined(t *testing.T, ends time.Duration, network string) *keystore.Caller {
	c, err := keystore.NewCaller(nil, keystore.Identity{Organization: "org_1", ExpiresAt: time.Now().Add(ends),
		Networks: trust(network)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAuthenticate: each of the answers that Options.Authenticate may give, and
// those that it may not.
func TestAuthenticate(t *testing.T) {
	caller := callerOf(t, newKeyring())
	byHand, err := keystore.NewCaller(nil, keystore.Identity{Organization: "org_1", Subject: "user_1"})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := keystore.NewCaller(scope.New(), keystore.Identity{Organization: "org_1"})
	if err != nil {
		t.Fatal(err)
	}
	teapot := &middleware.Problem{Status: 418, Code: "teapot", Detail: "No."}
	for _, tt := range []struct {
		name   string
		caller *keystore.Caller
		err    error
		status int
		code   string
		logged string
	}{
		{"a caller", caller, nil, 200, "", ""},
		{"no credentials", nil, middleware.ErrNoCredentials, 401, "api_key_missing", ""},
		{"no credentials, wrapped", nil, fmt.Errorf("cookie: %w", middleware.ErrNoCredentials), 401, "api_key_missing", ""},
		{"refused", nil, teapot, 418, "teapot", ""},
		{"refused, wrapped", nil, fmt.Errorf("who is it: %w", teapot), 418, "teapot", ""},
		{"the least refusal", nil, &middleware.Problem{Status: 400, Code: "mine"}, 400, "mine", ""},
		{"the last refusal", nil, &middleware.Problem{Status: 599, Code: "mine"}, 599, "mine", ""},
		{"less than one", nil, &middleware.Problem{Status: 399}, 500, "internal", "status 399"},
		{"more than one", nil, &middleware.Problem{Status: 600}, 500, "internal", "status 600"},
		{"broken", nil, errors.New("no answer"), 503, "key_store_unavailable", "no answer"},
		{"broken, and yet a caller", caller, errors.New("no answer"), 503, "key_store_unavailable", "no answer"},
		{"neither", nil, nil, 500, "internal", "neither a caller nor an error"},
		{"the zero Caller", new(keystore.Caller), nil, 500, "internal", "neither a caller nor an error"},
		{"a nil problem", nil, (*middleware.Problem)(nil), 500, "internal", "a nil *Problem"},
		{"a caller of other scopes", foreign, nil, 500, "internal", "another scope registry"},
		{"a caller made by hand", byHand, nil, 200, "", ""},
		{"one with limits", confined(t, time.Hour, "192.0.2.0/24"), nil, 200, "", ""},
		{"one that has ended", confined(t, -time.Hour, "192.0.2.0/24"), nil, 401, "api_key_invalid", ""},
		{"one from elsewhere", confined(t, time.Hour, "198.51.100.0/24"), nil, 403, "address_not_allowed", ""},
		{"one that has ended, and yet broken", confined(t, -time.Hour, "192.0.2.0/24"), errors.New("no answer"), 503,
			"key_store_unavailable", "no answer"},
	} {
		log := newLogged()
		o := middleware.Options{Hooks: log.hooks(), Authenticate: always(tt.caller, tt.err)}
		res := serve(testAPI(nil, o), request("GET", "/api/v1/any", "", ""))
		if res.StatusCode != tt.status || tt.code != "" && res.problem(t).Code != tt.code {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, res.StatusCode, res.body, tt.status, tt.code)
		}
		if got := log.String(); (got != "") != (tt.logged != "") || !strings.Contains(got, tt.logged) {
			t.Errorf("%s: got the log %q, want one about %q", tt.name, got, tt.logged)
		}
	}
}

// TestHalfClosedClient: a client that closes its sending half after the request
// still waits for the response. net/http cancels the request's context then.
func TestHalfClosedClient(t *testing.T) {
	ring, token := oneKey(t)
	left := make(chan (<-chan struct{}), 1)
	store := lookupFunc(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
		<-<-left // net/http has noticed
		if _, bounded := ctx.Deadline(); !bounded || ctx.Err() != nil {
			t.Errorf("the look-up has a deadline: %t, and has ended: %v", bounded, ctx.Err())
		}
		return ring.memory.Lookup(ctx, d)
	})
	heedful := takeFunc(func(ctx context.Context, _ []ratelimit.Charge) (ratelimit.Decision, error) {
		return ratelimit.Decision{Allowed: true}, ctx.Err()
	})
	log := newLogged()
	for name, keys := range map[string]keystore.Store{"bare": store,
		"cached": keystore.NewCached(store, keystore.CacheOptions{})} {
		o := middleware.Options{
			Hooks: log.hooks(), RateLimit: perOrganization(heedful, ratelimit.MustParse("100-S")),
			Idempotency: keyedOptions{Runner: replies()},
		}
		api := apiOf(keys, o, middleware.AnyCaller(), sayOK)
		srv := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case left <- r.Context().Done():
			default:
			}
			api.ServeHTTP(w, r)
		}))
		for _, head := range []string{"GET /api/v1/x HTTP/1.1\r\n", "POST /api/v1/x HTTP/1.1\r\nContent-Length: 0\r\n",
			"POST /api/v1/x HTTP/1.1\r\nContent-Length: 0\r\nIdempotency-Key: 1\r\n"} {
			if cached, ok := keys.(*keystore.Cached); ok {
				cached.Invalidate(keystore.DigestOf(token))
			}
			c := dial(t, srv)
			c.send(head + "Host: a\r\nAuthorization: Bearer " + token + "\r\n\r\n")
			if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			wantAnswer(t, name+head, c.next("GET"), 200, "ok")
		}
	}
	if got := log.String(); got != "" {
		t.Errorf("got the log %s", got)
	}
}

// TestKeysBesideOthers: which answer a request gets that carries credentials of
// no kind, of one or of two.
func TestKeysBesideOthers(t *testing.T) {
	ring := newKeyring()
	live, suspended := ring.issue(t), ring.plant(t, keystore.Key{Suspended: true})
	user, service := session(by(t, "user")), bearerJWT(by(t, "service"))
	const cookie, bearer = "Cookie: session=", "Authorization: Bearer "
	for _, tt := range []struct {
		name   string
		lines  []string
		status int
		who    string // of 200, or else the code
	}{
		{"nothing", nil, 401, "api_key_missing"},
		{"a key", []string{bearer + live}, 200, "key"},
		{"a key in its header", []string{"X-API-Key: " + live}, 200, "key"},
		{"a JWT", []string{bearer + jwt}, 200, "service"},
		{"a session", []string{cookie + "1"}, 200, "user"},
		{"a key that is suspended", []string{bearer + suspended}, 401, "api_key_invalid"},
		{"a session that has ended", []string{cookie + "ended"}, 401, "session_ended"},
		{"a token that nobody knows", []string{bearer + "opaque"}, 401, "api_key_invalid"},
		{"another scheme", []string{"Authorization: Basic YTpi"}, 401, "api_key_missing"},
		{"no key in its header", []string{"X-API-Key: " + jwt}, 401, "api_key_invalid"},

		{"a key and a session", []string{bearer + live, cookie + "1"}, 400, "several_credentials"},
		{"a key in its header and a JWT", []string{"X-API-Key: " + live, bearer + jwt}, 401, "api_key_invalid"},
		{"no key in its header and a session", []string{"X-API-Key: opaque", cookie + "1"}, 401, "api_key_invalid"},
		{"a suspended key and a session", []string{bearer + suspended, cookie + "1"}, 401, "api_key_invalid"},
		{"an unknown key and a session", []string{bearer + wellFormed(), cookie + "1"}, 401, "api_key_invalid"},
		{"a mistyped key and a session", []string{bearer + swapLast(live), cookie + "1"}, 401, "api_key_invalid"},
		{"an opaque token and a session", []string{bearer + "opaque", cookie + "1"}, 200, "user"},
		{"a key and a session that has ended", []string{bearer + live, cookie + "ended"}, 400, "several_credentials"},
		{"a key and a session, which is down", []string{bearer + live, cookie + "down"}, 400, "several_credentials"},
		{"a key and an answer that is none", []string{bearer + live, cookie + "nobody"}, 500, "internal"},
		{"a key and a nil problem", []string{bearer + live, cookie + "nil"}, 400, "several_credentials"},
	} {
		api := middleware.NewAPI(ring.keys, middleware.Options{
			Hooks: quiet(), KeyHeader: "X-API-Key",
			Authenticate: func(r *http.Request) (*keystore.Caller, error) {
				if p, err := user(r); !errors.Is(err, middleware.ErrNoCredentials) {
					return p, err
				}
				return service(r)
			},
		})
		api.HandleFunc("GET /api/v1/who", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Who", cmp.Or(middleware.CallerFrom(r.Context()).Subject(), "key"))
		})
		res := serve(api, request("GET", "/api/v1/who", "", "", tt.lines...))
		who := res.Header.Get("X-Who")
		if res.StatusCode != 200 {
			who = res.problem(t).Code
		}
		if res.StatusCode != tt.status || who != tt.who {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, res.StatusCode, who, tt.status, tt.who)
		}
		want := map[string]string{"api_key_invalid": invalid, "api_key_missing": missing}[who]
		if want != "" && res.Header.Get("Www-Authenticate") != want {
			t.Errorf("%s: got the challenge %q", tt.name, res.Header.Get("Www-Authenticate"))
		}
	}
}

// TestTokensThatBeginLikeKeys: they are taken for keys, complete or not, and
// others are left to Authenticate.
func TestTokensThatBeginLikeKeys(t *testing.T) {
	legacy := []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"},
		{Name: "v0", Match: func(string) bool { return false }}}
	for _, tt := range []struct {
		legacy []keystore.LegacyFormat
		token  string
		want   int
	}{
		{legacy, "svc_live_x", 401}, {legacy, "svc_", 401}, {legacy, "acme_x", 401}, {legacy, "acme_", 401},
		{legacy, "svc", 200}, {legacy, "svcx_live_x", 200}, {legacy, "acme", 200}, {legacy, jwt, 200}, {nil, "acme_x", 200},
	} {
		api := testAPI(newKeyring().memory, middleware.Options{Hooks: quiet(), Service: keystore.Service{Legacy: tt.legacy},
			Authenticate: always(by(t, "user"), nil)})
		wantAnswer(t, tt.token, serve(api, request("GET", "/api/v1/any", tt.token, "")), tt.want)
	}
}

// TestThrottleBesideOthers: tokens of others do not count as failures. One that
// nobody takes counts as a wrong key.
func TestThrottleBesideOthers(t *testing.T) {
	type step struct {
		token string
		want  int
	}
	unknown := wellFormed()
	for name, steps := range map[string][]step{
		"an unknown key": {{jwt, 200}, {jwt, 200}, {unknown, 401}, {unknown, 429}, {swapLast(unknown), 429},
			{"opaque", 429}, {jwt, 200}},
		"no key": {{jwt, 200}, {"", 401}, {"", 401}, {"opaque", 401}, {"opaque", 429}, {unknown, 429}, {"", 401}, {jwt, 200}},
	} {
		api := testAPI(newKeyring().keys, middleware.Options{Hooks: quiet(), Failures: ratelimit.MustParse("1-H"),
			Authenticate: bearerJWT(by(t, "service"))})
		for i, step := range steps {
			res := serve(api, request("GET", "/api/v1/any", step.token, ""))
			wantAnswer(t, fmt.Sprintf("%s, request %d", name, i+1), res, step.want)
		}
	}
}

// TestNils: nothing that would panic at the first request gets past a
// constructor.
func TestNils(t *testing.T) {
	wantPanic(t, "Options.RateLimit: the store is a nil *ratelimit.Failover", func() {
		middleware.New(nil, middleware.Options{RateLimit: rateOptions{Store: (*ratelimit.Failover)(nil)}})
	})
	wantPanic(t, "the key store is a nil *keystore.Cached",
		func() { middleware.New((*keystore.Cached)(nil), middleware.Options{}) })
	wantPanic(t, "without a key store", func() { keyless().Authenticate(http.NotFoundHandler()) })
	wantPanic(t, "neither a key store nor", func() { middleware.NewAPI(nil, middleware.Options{}) })
	for _, o := range []middleware.Options{
		{Authenticate: nobody, Failures: ratelimit.MustParse("1-S")},
		{Authenticate: nobody, RejectBrowsers: true},
	} {
		wantPanic(t, "are for API keys, and there is no key store", func() { middleware.NewAPI(nil, o) })
	}
	wantPanic(t, "the header Svc-Request-Id is that of the request id", func() {
		middleware.New(nil, middleware.Options{KeyHeader: "svc-request-id"})
	})
}

// TestCallerNotAccepted: what a token of another kind says is no fault of a
// store. Whoever has such a token cannot have lines about outages written, nor
// keep them back.
func TestCallerNotAccepted(t *testing.T) {
	ring := newKeyring()
	for name, i := range map[string]keystore.Identity{
		"no organization": {Subject: "user_1"},
		"unknown scope":   {Organization: "org_1", Scopes: []scope.Name{"profile"}},
		"long subject":    {Organization: "org_1", Subject: strings.Repeat("a", 256)},
	} {
		for _, wrapping := range []string{"%w", "claims: %w"} {
			log, down := newLogged(), false
			user := func(r *http.Request) (*keystore.Caller, error) {
				if down {
					return nil, errors.New("issuer is down")
				}
				p, err := keystore.NewCaller(nil, i)
				return p, fmt.Errorf(wrapping+" of "+r.Header.Get("Authorization"), err)
			}
			for _, keys := range []keystore.Store{nil, ring.keys} {
				down = false
				o := &observed{t: t}
				api, before := testAPI(keys, middleware.Options{Hooks: log.hooks(o.note), Authenticate: user}), len(log.String())
				for range 3 {
					e, got := o.ask(api, request("GET", "/api/v1/any", jwt, ""))
					wantRefusal(t, name, got, 403, "caller_not_accepted", "")
					if got.Header["Retry-After"] != nil || e.Stage != middleware.StageAuthenticate ||
						e.Outcome != "caller_not_accepted" || e.Caller != nil {
						t.Errorf("%s: got %v and the Event %+v", name, got.Header, e)
					}
				}
				down = true
				wantRefusal(t, name, serve(api, request("GET", "/api/v1/any", jwt, "")), 503, "key_store_unavailable", "")
				got := log.String()[before:]
				if strings.Count(got, "level=INFO") != 1 || strings.Count(got, "level=ERROR") != 1 ||
					!strings.Contains(got, "issuer is down") || !strings.Contains(got, "fields are not valid") ||
					strings.Contains(got, jwt) {
					t.Errorf("%s: got the log %s", name, got)
				}
			}
		}
	}
}

// TestTextsForOtherCredentials: nobody who has no API key reads about one.
func TestTextsForOtherCredentials(t *testing.T) {
	o := middleware.Options{Hooks: quiet(), Authenticate: bearerJWT(by(t, "service"))}
	api, beside := testAPI(nil, o), testAPI(newKeyring().keys, middleware.Options{Hooks: quiet(), Authenticate: nobody})
	by := func(c *keystore.Caller) http.Handler {
		return testAPI(nil, middleware.Options{Hooks: quiet(), Authenticate: always(c, nil)})
	}
	ended, elsewhere := by(confined(t, -time.Hour, "192.0.2.0/24")), by(confined(t, time.Hour, "198.51.100.0/24"))
	for _, got := range []answer{serve(api, request("GET", "/api/v1/account", "", "")),
		serve(ended, request("GET", "/api/v1/any", "", "")), serve(elsewhere, request("GET", "/api/v1/any", "", "")),
		serve(api, request("GET", "/api/v1/account", jwt, "")), serve(beside, request("GET", "/api/v1/account", jwt, ""))} {
		detail := strings.ReplaceAll(got.problem(t).Detail, "_", " ")
		if got.StatusCode != 401 && got.StatusCode != 403 || strings.Contains(strings.ToLower(detail), "api key") {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
	}
}

// TestReportOnlyAuthentication: who would be refused goes on as nobody, and the
// Event says why. Other callers are served as they are without the option, and
// so are those who could not be checked.
func TestReportOnlyAuthentication(t *testing.T) {
	ring := newKeyring()
	live, poor := ring.issue(t, scope.TasksRead), ring.issue(t)
	far := ring.plant(t, keystore.Key{ID: "far", Networks: trust("10.9.0.0/16")})
	gone := ring.plant(t, keystore.Key{ID: "gone", Suspended: true})
	store := &countedStore{Store: ring.memory}
	requests := map[string]*http.Request{
		"good": request("GET", "/api/v1/x", live, ""), "no scope": request("GET", "/api/v1/x", poor, ""),
		"nothing":   request("GET", "/api/v1/x", "", ""),
		"suspended": request("GET", "/api/v1/x", gone, ""), "a network": request("GET", "/api/v1/x", far, ""),
		"a typo": request("GET", "/api/v1/x", swapLast(live), ""),
		"two":    request("GET", "/api/v1/x", live, "", "Cookie: session=1"),
		"ended":  request("GET", "/api/v1/x", "", "", "Cookie: session=ended"),
		"nil":    request("GET", "/api/v1/x", "", "", "Cookie: session=nil"),
		"down":   request("GET", "/api/v1/x", live, ""), "guesses": request("GET", "/api/v1/x", wellFormed(), ""),
	}
	for _, form := range []string{"API", "pieces"} {
		for name, r := range requests {
			ask := func(reportOnly bool) (middleware.Event, answer) {
				o, log := &observed{t: t}, newLogged()
				hooks := log.hooks(o.note)
				options := middleware.Options{Hooks: hooks, Authenticate: session(by(t, "user_1")), ReportOnly: reportOnly,
					RateLimit: middleware.PerOrganization("1-H")}
				options.RateLimit.Concurrent = 1
				if name == "guesses" {
					options.Failures = ratelimit.MustParse("1-H")
				}
				h := bothForms(store, options, middleware.Require(scope.TasksRead), sayWho)[form]
				if strings.Contains(log.String(), "Options.ReportOnly is on") != reportOnly {
					t.Errorf("got the log %s", log)
				}
				store.down.Store(name == "down")
				if name == "guesses" {
					o.ask(h, r.Clone(t.Context()))
				}
				return o.ask(h, r.Clone(t.Context()))
			}
			want, refused := ask(false)
			got, answered := ask(true)
			switch refusedByAuth := want.Stage == middleware.StageAuthenticate; {
			case !refusedByAuth:
				if got.Status != want.Status || got.ReportedCode != "" || answered.body[:9] != refused.body[:9] {
					t.Errorf("%s, %s: got %+v %s, want %+v", form, name, got, answered.body, want)
				}
			case want.Status >= 500:
				if got.Status != want.Status || got.Outcome != want.Outcome || got.ReportedCode != "" {
					t.Errorf("%s, %s: got %+v %s, want %+v", form, name, got, answered.body, want)
				}
			case refused.StatusCode < 400 || answered.StatusCode != 200 || answered.body != "nobody" ||
				got.ReportedCode != want.Outcome || got.RefusedKey != want.RefusedKey || got.Outcome != "handled" ||
				got.Caller != nil || len(answered.Header) > 2:
				t.Errorf("%s, %s: got %s and the Event %+v, want what %+v has", form, name, answered.body, got, want)
			}
		}
	}
	wantPanic(t, "there is none", func() { middleware.New(nil, middleware.Options{ReportOnly: true}) })
}

// sayWho is a handler that says who calls.
func sayWho(w http.ResponseWriter, r *http.Request) {
	who := "nobody"
	if p := middleware.CallerFrom(r.Context()); p != nil {
		who = "somebody of " + p.Organization()
	}
	_, _ = io.WriteString(w, who)
}

// TestReportOnlyWithoutACaller: who is nobody is limited by the address alone, and may
// repeat an Idempotency-Key, which is logged once.
func TestReportOnlyWithoutACaller(t *testing.T) {
	for _, form := range []string{"API", "pieces"} {
		log, store := newLogged(), &lists{Store: &ratelimit.Memory{}}
		o := middleware.Options{Hooks: log.hooks(), ReportOnly: true,
			RateLimit:   perOrganization(store, ratelimit.MustParse("9-H")),
			Idempotency: keyedOptions{Runner: replies(), Required: true}}
		o.RateLimit.Client = policy("client", "3-H", 3)
		h := bothForms(newKeyring().keys, o, middleware.Require(scope.TasksRead), sayWho)[form]
		for i := range 4 {
			got := serve(h, request("POST", "/api/v1/x", "", strconv.Itoa(i), "Idempotency-Key: 1"))
			if i < 3 && (got.body != "nobody" || got.Header["Idempotent-Replayed"] != nil) || i == 3 && got.StatusCode != 429 {
				t.Errorf("%s, request %d: got %d %s", form, i, got.StatusCode, got.body)
			}
		}
		if strings.Join(store.first, ",") != "client,client,client,client" ||
			strings.Count(log.String(), "an Idempotency-Key was ignored") != 1 {
			t.Errorf("%s: got the charges %q and the log %s", form, store.first, log)
		}
	}
}

// TestReportOnlyRetries: while the key store or the other authentication is
// away, or others have used up Failures for the address, the retry of a create
// does not run as that of nobody.
func TestReportOnlyRetries(t *testing.T) {
	for _, form := range []string{"API", "pieces"} {
		ring, token := oneKey(t, scope.TasksWrite, scope.TasksRead)
		var away, otherAway error
		store := lookupFunc(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			if away != nil {
				return nil, away
			}
			return ring.memory.Lookup(ctx, d)
		})
		var reported string
		hooks := quiet(func(e middleware.Event) { reported = e.ReportedCode })
		o := middleware.Options{Hooks: hooks, ReportOnly: true, Failures: ratelimit.MustParse("1-H"),
			Idempotency: keyedOptions{Runner: replies()},
			Authenticate: func(*http.Request) (*keystore.Caller, error) {
				return nil, cmp.Or(otherAway, middleware.ErrNoCredentials)
			}}
		var runs atomic.Int64
		h := bothForms(store, o, middleware.Require(scope.TasksWrite), numbered(&runs, nil))[form]
		send := func(token string) answer {
			return serve(h, request("POST", "/api/v1/x", token, "{}", "Idempotency-Key: a"))
		}
		if a := send(token); a.StatusCode != 201 {
			t.Fatalf("%s: got %d %s", form, a.StatusCode, a.body)
		}
		down := errors.New("down")
		for name, set := range map[string]func(error){
			"the key store":          func(err error) { away = err },
			"Options.Authenticate":   func(err error) { otherAway = err },
			"Options.Authenticate 5": func(err error) { otherAway = err },
		} {
			err := down
			if strings.HasSuffix(name, "5") {
				err = &middleware.Problem{Status: 503, Code: "sessions_unavailable"}
			}
			set(err)
			if a := send(token); a.StatusCode != 503 || a.replayed() {
				t.Errorf("%s, %s is away: got %d %s, want 503", form, name, a.StatusCode, a.body)
			}
			set(nil)
		}
		for i, want := range []string{"api_key_invalid", "too_many_failures"} { // of others at this address
			if a := send(wellFormed()); a.StatusCode != 201 || reported != want {
				t.Errorf("%s, wrong key %d: got %d, reported %q, want 201 and %q", form, i+1, a.StatusCode, reported, want)
			}
		}
		if a := send(token); a.StatusCode != 201 || !a.replayed() || reported != "" {
			t.Errorf("%s, Failures are used up: got %d %s, reported %q, want the replay", form, a.StatusCode, a.body, reported)
		}
		if runs.Load() != 3 { // one of the key, and one of each that nobody sent
			t.Errorf("%s: ran %d times, want 3", form, runs.Load())
		}
	}
}

// TestReportOnlyStaysOutside: what a report-only Guard let pass is refused by
// stages of another one, and one found later is a caller like any.
func TestReportOnlyStaysOutside(t *testing.T) {
	ring := newKeyring()
	idempotency := keyedOptions{Runner: replies()}
	limits := middleware.PerOrganization("9-H")
	options := middleware.Options{Hooks: quiet(), ReportOnly: true, Idempotency: idempotency, RateLimit: limits}
	lax := middleware.New(ring.keys, options)
	options.ReportOnly = false
	strict, anybody, noScope := middleware.New(ring.keys, options), middleware.AnyCaller(), as(by(t, "user_1"))
	api := testAPI(ring.keys, options)
	pass := func(next http.Handler) http.Handler { return next }
	for name, tt := range map[string]struct {
		outer, inner func(http.Handler) http.Handler
		want         int
	}{
		"alone":                      {lax.Authenticate, lax.Enforce(anybody), 200},
		"no Authenticate":            {pass, lax.Enforce(anybody), 500},
		"strict Enforce":             {lax.Authenticate, strict.Enforce(anybody), 500},
		"strict RateLimit":           {lax.Authenticate, strict.RateLimit, 500},
		"strict Authenticate":        {lax.Authenticate, strict.Authenticate, 401},
		"strict API":                 {lax.Authenticate, func(http.Handler) http.Handler { return api }, 401},
		"Idempotent without Enforce": {lax.Authenticate, lax.Idempotent, 500},
		"strict Idempotent":          {middleware.Chain(lax.Authenticate, lax.Enforce(anybody)), strict.Idempotent, 500},
		"a caller without the scope": {middleware.Chain(lax.Authenticate, noScope),
			lax.Enforce(middleware.Require(scope.TasksRead)), 403},
		"a caller in between": {middleware.Chain(lax.Authenticate, noScope), strict.Enforce(anybody), 200},
		"Enforce before the caller": {middleware.Chain(lax.Authenticate, lax.Enforce(anybody), noScope),
			strict.Idempotent, 500},
	} {
		h := middleware.Chain(strict.RequestID, tt.outer, tt.inner)(sayOK)
		wantAnswer(t, name, serve(h, request("POST", "/api/v1/any", "", "", "Idempotency-Key: 1")), tt.want)
	}

	// A handler's own request without a key is nobody's, whoever the outer one is.
	var inner answer
	own := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), ReportOnly: true,
		RateLimit: rateOptions{Concurrent: 1}}) // of an organization, so not of nobody
	own.HandleFunc("GET /api/v1/outer", anybody, func(w http.ResponseWriter, r *http.Request) {
		inner = serve(own, request("GET", "/api/v1/inner", "", "").WithContext(r.Context()))
	})
	own.HandleFunc("GET /api/v1/inner", anybody, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, middleware.CallerFrom(r.Context()) != nil)
	})
	for _, token := range []string{ring.issue(t), ""} {
		if serve(own, request("GET", "/api/v1/outer", token, "")); inner.body != "false" {
			t.Errorf("a request within a request: got %d %s", inner.StatusCode, inner.body)
		}
	}
}

// TestResourceMetadata: each challenge of the service names the metadata, also
// one of Options.Authenticate, unless that one does.
func TestResourceMetadata(t *testing.T) {
	const more, url = `, resource_metadata="https://api.example.com/.well-known/oauth-protected-resource"`,
		"https://api.example.com/.well-known/oauth-protected-resource"
	ring := newKeyring()
	challenge := ""
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), ResourceMetadata: url,
		Authenticate: func(r *http.Request) (*keystore.Caller, error) {
			if r.Header.Get("Cookie") == "" {
				return nil, middleware.ErrNoCredentials
			}
			return nil, &middleware.Problem{Status: 401, Code: "expired", Challenge: challenge}
		}})
	api.HandleFunc("GET /api/v1/scoped", middleware.Require(scope.TasksWrite), sayOK)
	ask := func(path, token string, lines ...string) string {
		return serve(api, request("GET", "/api/v1/"+path, token, "", lines...)).Header.Get("Www-Authenticate")
	}
	for _, got := range []string{ask("any", ""), ask("any", "wrong"), ask("any", swapLast(ring.issue(t))),
		ask("scoped", ring.issue(t))} {
		if !strings.HasPrefix(got, "Bearer realm=") || !strings.HasSuffix(got, more) || strings.Count(got, more) != 1 {
			t.Errorf("the challenge is %q", got)
		}
	}
	for own, want := range map[string]string{
		`Bearer error="invalid_token"`: `Bearer error="invalid_token"` + more, "Basic realm=x": "Basic realm=x", "": "",
		`Bearer resource_metadata="https://other"`: `Bearer resource_metadata="https://other"`,
		"Bearer": "Bearer" + more[1:],
	} {
		challenge = own
		if got := ask("any", "", "Cookie: session=1"); got != want {
			t.Errorf("after %q: the challenge is %q, want %q", own, got, want)
		}
	}
	for _, wrong := range []string{"/meta", "ftp://a/b", "https://", `https://a/"`, "https://a/ b", "https://a/\n",
		`https://a/?b="c"`, `https://a/?b\`, "https://a/?b c"} {
		if err := (middleware.Options{ResourceMetadata: wrong}).Validate(); err == nil ||
			!strings.Contains(err.Error(), "Options.ResourceMetadata: ") {
			t.Errorf("%q: got %v", wrong, err)
		}
	}
}
