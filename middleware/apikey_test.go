package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestAPIKeyHeader: KeyOptions.Header may carry the key in place of
// Authorization, and two places in one request are refused.
func TestAPIKeyHeader(t *testing.T) {
	ring := newKeyring()
	token, other := ring.issue(t), ring.issue(t)
	store := &countedStore{Store: ring.memory}
	api := testAPI(store, middleware.Options{Hooks: quiet(), Keys: middleware.KeyOptions{Header: "X-API-Key"}})
	const twice = "must be sent once, in one header: as X-Api-Key: YOUR_API_KEY, or as Authorization"
	for _, tt := range []struct {
		name   string
		lines  []string
		status int
		code   string
		detail string
		asked  int64
	}{
		{"the header", []string{"X-API-Key: " + token}, 200, "", "", 1},
		{"in other letters", []string{"x-api-KEY: " + token}, 200, "", "", 1},
		{"white space", []string{"X-API-Key: \t" + token + " "}, 200, "", "", 1},
		{"Authorization alone", []string{"Authorization: Bearer " + token}, 200, "", "", 1},
		{"beside another scheme", []string{"X-API-Key: " + token, "Authorization: Basic YTpi"}, 200, "", "", 1},
		{"nothing", nil, 401, "api_key_missing", "", 0},
		{"both", []string{"X-API-Key: " + token, "Authorization: Bearer " + token}, 401, "api_key_invalid", twice, 0},
		{"both, of two callers", []string{"X-API-Key: " + token, "Authorization: Bearer " + other}, 401, "api_key_invalid", twice, 0},
		{"beside a JWT", []string{"X-API-Key: " + token, "Authorization: Bearer " + jwt}, 401, "api_key_invalid", twice, 0},
		{"beside an unreadable one", []string{"X-API-Key: " + token, "Authorization: Bearer\t" + token}, 401, "api_key_invalid", twice, 0},
		{"sent twice", []string{"X-API-Key: " + token, "X-API-Key: " + token}, 401, "api_key_invalid", twice, 0},
		{"empty", []string{"X-API-Key: "}, 401, "api_key_invalid", "prefix of this service", 0},
		{"as Bearer", []string{"X-API-Key: Bearer " + token}, 401, "api_key_invalid", "character", 0},
		{"mistyped", []string{"X-API-Key: " + swapLast(token)}, 401, "api_key_invalid", "mistyped", 0},
		{"empty beside a key", []string{"X-API-Key: ", "Authorization: Bearer " + token}, 401, "api_key_invalid", twice, 0},
	} {
		before := store.lookups.Load()
		res := serve(api, request("GET", "/api/v1/any", "", "", tt.lines...))
		if res.StatusCode != tt.status || store.lookups.Load()-before != tt.asked {
			t.Errorf("%s: got %d after %d look-ups, want %d after %d: %s", tt.name, res.StatusCode, store.lookups.Load()-before, tt.status, tt.asked, res.body)
		}
		if tt.status != 200 && (res.problem(t).Code != tt.code || !strings.Contains(res.problem(t).Detail, tt.detail)) {
			t.Errorf("%s: got %s, want %s about %q", tt.name, res.body, tt.code, tt.detail)
		}
	}
	without := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
	if res := serve(without, request("GET", "/api/v1/any", "", "", "X-API-Key: "+token)); res.StatusCode != 401 {
		t.Errorf("without the option: got %d", res.StatusCode)
	}
}

func TestAPIKeyHeaderMistakes(t *testing.T) {
	for header, want := range map[string]string{
		"X API Key": "not a header field name", "authorization": "meaning of its own", "Cookie": "meaning of its own",
		"host": "meaning of its own", "Idempotency-Key": "meaning of its own", "Origin": "meaning of its own", "sec-fetch-site": "meaning of its own",
		"X-Forwarded-For": "meaning of its own", "If-Match": "meaning of its own", "Content-Type": "meaning of its own",
	} {
		err := middleware.Options{Keys: middleware.KeyOptions{Header: header}}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error about %q", header, err, want)
		}
	}
}

// TestKeyAuthenticatorMistakes: what cannot work panics where it is made.
func TestKeyAuthenticatorMistakes(t *testing.T) {
	wantPanic(t, "KeyAuthenticator: the key store is nil", func() { middleware.KeyAuthenticator(nil, middleware.Options{}) })
	wantPanic(t, "KeyAuthenticator: the key store is nil", func() { middleware.KeyAuthenticator((*keystore.Memory)(nil), middleware.Options{}) })
	wantPanic(t, `prefix "No!"`, func() {
		middleware.KeyAuthenticator(keystore.NewMemory(), middleware.Options{Service: keystore.Service{Prefix: "No!"}})
	})
	for field, o := range map[string]middleware.Options{
		"Keys":     {Keys: middleware.KeyOptions{Header: "X-API-Key"}},
		"Failures": {Failures: ratelimit.MustParse("1-S")},
	} {
		o.Authenticator = nobody{}
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "Options."+field) || !strings.Contains(err.Error(), "to KeyAuthenticator") {
			t.Errorf("%s beside an Authenticator: got %v", field, err)
		}
	}
}

// TestKeyAuthenticatorOptions: it reads Service, Keys, Failures and ClientIP
// of its own options.
func TestKeyAuthenticatorOptions(t *testing.T) {
	ring := newKeyring()
	own := scope.New(scope.Definition{Name: "parcels:read", Meaning: "See parcels."})
	token := ring.plant(t, keystore.Key{Scopes: []scope.Name{"parcels:read"}})
	proxy, err := middleware.TrustProxies("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	keys := middleware.KeyAuthenticator(ring.memory, middleware.Options{
		Service: keystore.Service{Scopes: own}, ClientIP: proxy, Failures: ratelimit.MustParse("1-H"), Keys: middleware.KeyOptions{Header: "X-API-Key", Realm: "parcels"},
	})
	api := middleware.NewAPI(nil, middleware.Options{Hooks: quiet(), ClientIP: proxy, Authenticator: keys})
	api.HandleFunc("GET /api/v1/parcels", middleware.Require("parcels:read"), func(w http.ResponseWriter, r *http.Request) {
		p, _ := middleware.PrincipalFrom(r.Context())
		fmt.Fprint(w, p.Has("parcels:read"))
	})
	from := func(client, token string) answer {
		r := request("GET", "/api/v1/parcels", "", "", "X-API-Key: "+token, "X-Forwarded-For: "+client)
		r.RemoteAddr = "10.1.1.1:1"
		return serve(api, r)
	}
	if res := from("192.0.2.1", token); res.StatusCode != 200 || res.body != "true" {
		t.Errorf("got %d %s", res.StatusCode, res.body)
	}
	for i, want := range []int{401, 429} {
		if res := from("192.0.2.2", "wrong"); res.StatusCode != want || want == 401 && res.Header.Get("Www-Authenticate") != `Bearer realm="parcels", error="invalid_token"` {
			t.Errorf("wrong key %d: got %d %v, want %d", i+1, res.StatusCode, res.Header, want)
		}
	}
	if res := from("192.0.2.3", "wrong"); res.StatusCode != 401 {
		t.Errorf("another client behind the proxy: got %d", res.StatusCode)
	}
}

// TestOptionsThatDoNotFit: what a KeyAuthenticator and its Guard must share is
// compared when the Guard is made.
func TestOptionsThatDoNotFit(t *testing.T) {
	proxy, header := trust(t, "10.0.0.0/8"), middleware.KeyOptions{Header: "svc-request-id"}
	keys := func(o middleware.Options) middleware.Authenticator {
		return middleware.KeyAuthenticator(keystore.NewMemory(), o)
	}
	named := keys(middleware.Options{Keys: middleware.KeyOptions{Header: "X-Id"}})
	for want, o := range map[string]middleware.Options{
		"Options.ClientIP: a KeyAuthenticator was made with another one": {Authenticator: keys(middleware.Options{ClientIP: proxy})},
		"give both the same": {ClientIP: proxy, Authenticator: middleware.FirstOf(nobody{}, keys(middleware.Options{}))},
		"Options.Keys: the header Svc-Request-Id is that of the request id":                      {Keys: header},
		"Options.Authenticator: the header X-Id of a KeyAuthenticator is that of the request id": {Authenticator: named, RequestID: middleware.RequestIDOptions{Header: "X-ID"}},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, o := range []middleware.Options{{Authenticator: named}, {ClientIP: proxy, Authenticator: keys(middleware.Options{ClientIP: trust(t, "10.1.2.3/8")})}} {
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// TestKeyNetworks: a key is refused from an address outside its networks.
// Behind a trusted proxy that is the client's; nobody else's word counts.
func TestKeyNetworks(t *testing.T) {
	ring := newKeyring()
	bound := ring.plant(t, keystore.Key{ID: "key_bound", Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}})
	free := ring.plant(t, keystore.Key{})
	past := ring.plant(t, keystore.Key{Suspended: true, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	trusting, err := middleware.TrustProxies("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	last := keystore.NewLastUsed(ring.memory, keystore.LastUsedOptions{})
	runs := 0
	serveFrom := func(clientIP middleware.ClientIP, token, peer, forwarded string) answer {
		api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), ClientIP: clientIP, Failures: ratelimit.MustParse("1-H"), Keys: middleware.KeyOptions{LastUsed: last}})
		api.HandleFunc("GET /api/v1/any", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) { runs++ })
		r := request("GET", "/api/v1/any", token, "")
		if r.RemoteAddr = peer; forwarded != "" {
			r.Header.Set("X-Forwarded-For", forwarded)
		}
		return serve(api, r)
	}
	for _, tt := range []struct {
		name, token, peer, forwarded string
		proxied                      bool
		status                       int
	}{
		{"inside", bound, "192.0.2.7:1", "", false, 200},
		{"inside, IPv6", bound, "[2001:db8::7]:1", "", false, 200},
		{"inside, mapped", bound, "[::ffff:192.0.2.7]:1", "", false, 200},
		{"outside", bound, "198.51.100.1:1", "", false, 403},
		{"a unix socket", bound, "@", "", false, 403},
		{"no address", bound, "", "", false, 403},
		{"a claim of the client", bound, "198.51.100.1:1", "192.0.2.7", false, 403},
		{"behind the proxy", bound, "10.0.0.1:1", "192.0.2.7", true, 200},
		{"outside, behind the proxy", bound, "10.0.0.1:1", "198.51.100.1", true, 403},
		{"a claim of the client, behind the proxy", bound, "10.0.0.1:1", "192.0.2.7, 198.51.100.1", true, 403},
		{"the proxy itself", bound, "10.0.0.1:1", "", true, 403},
		{"not the proxy", bound, "198.51.100.1:1", "192.0.2.7", true, 403},
		{"no networks", free, "198.51.100.1:1", "", false, 200},
		{"suspended, outside", past, "198.51.100.1:1", "", false, 401},
	} {
		var clientIP middleware.ClientIP
		if tt.proxied {
			clientIP = trusting
		}
		runs = 0
		res := serveFrom(clientIP, tt.token, tt.peer, tt.forwarded)
		if res.StatusCode != tt.status || (runs == 1) != (tt.status == 200) {
			t.Errorf("%s: got %d and %d runs, want %d: %s", tt.name, res.StatusCode, runs, tt.status, res.body)
		}
		if tt.status == 403 {
			wantRefusal(t, tt.name, res, 403, "address_not_allowed", "")
		}
	}
	// A refusal for the address is no use of the key.
	ring2, last2 := newKeyring(), (*keystore.LastUsed)(nil)
	token, key := ring2.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Production, Networks: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}})
	last2 = keystore.NewLastUsed(ring2.memory, keystore.LastUsedOptions{})
	serve(testAPI(ring2.keys, middleware.Options{Hooks: quiet(), Keys: middleware.KeyOptions{LastUsed: last2}}), request("GET", "/api/v1/any", token, ""))
	if err := flush(last2); err != nil {
		t.Fatal(err)
	}
	if found, err := ring2.memory.Find(t.Context(), "org_1", key.ID); err != nil || !found.LastUsedAt.IsZero() {
		t.Errorf("got %v, %v; a key that was refused counts as used", found.LastUsedAt, err)
	}
}

// TestPanicsKeepTheKey: whichever header a key came in, whichever shape it has,
// a panic with it or with the request does not bring it into the log.
func TestPanicsKeepTheKey(t *testing.T) {
	ring := newKeyring()
	importOld(t, ring, oldKey, "the old pepper", keystore.Production)
	token := ring.issue(t)
	elsewhere := keystore.Service{Prefix: "globex"}.Generate(keystore.Production).Reveal()
	service := acme()
	service.Legacy = append(service.Legacy, keystore.LegacyFormat{Name: "bare", Match: func(token string) bool { return len(token) == 40 }})
	options := middleware.Options{Service: service, Keys: middleware.KeyOptions{Header: "X-Caller"}}
	bare := &keystore.Key{ID: "key_bare", Legacy: "bare", Digest: keystore.DigestOf(bareKey), Organization: "org_1", Environment: keystore.Production}
	if err := ring.memory.Insert(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	guards := map[string]func(*middleware.Hooks) *middleware.API{
		"alone": func(hooks *middleware.Hooks) *middleware.API {
			o := options
			o.Hooks = hooks
			return middleware.NewAPI(ring.memory, o)
		},
		"joined": func(hooks *middleware.Hooks) *middleware.API {
			keys := middleware.Prefer(nobody{}, middleware.FirstOf(middleware.KeyAuthenticator(ring.memory, options), middleware.KeyAuthenticator(ring.memory, middleware.Options{
				Service: keystore.Service{Prefix: "globex"},
			})))
			return middleware.NewAPI(nil, middleware.Options{Hooks: hooks, Authenticator: keys})
		},
	}
	panics := map[string]func(r *http.Request, value string){
		"request": func(r *http.Request, _ string) { panic(r) },
		"value":   func(_ *http.Request, value string) { panic("bad key " + value) },
		"part":    func(_ *http.Request, value string) { panic(value[5:]) },
		"removed": func(r *http.Request, value string) {
			r.Header.Del("X-Caller")
			r.Header.Del("Authorization")
			panic("bad key " + value)
		},
	}
	for name, guard := range guards {
		for line, secret := range map[string]string{"X-Caller: " + token: token, "X-Caller: " + oldKey: oldKey, "Authorization: Bearer " + oldKey: oldKey, "X-Caller: " + bareKey: bareKey} {
			for how, do := range panics {
				if secret == bareKey && how == "part" {
					continue
				}
				log := newLogged()
				api := guard(log.hooks())
				api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), func(_ http.ResponseWriter, r *http.Request) { do(r, secret) })
				if res := serve(api, request("GET", "/api/v1/x", "", "", line)); res.StatusCode != 500 {
					t.Fatalf("%s, %s: got %d %s", name, line, res.StatusCode, res.body)
				}
				if text := log.String(); strings.Contains(text, secret[len(secret)-20:]) || !strings.Contains(text, "panic while serving") {
					t.Errorf("%s, %s, %s: the log holds the key: %s", name, line[:10], how, text)
				}
			}
		}
		// Two keys, of which neither counts, and a Problem hook that panics.
		log := newLogged()
		hooks := log.hooks()
		hooks.Problem = func(r *http.Request, _ middleware.Problem) (string, []byte) { panic(r.Header) }
		const second = "ffeeddccbbaa99887766554433221100ffeeddcc"
		twice := request("GET", "/api/v1/x", "", "", "X-Caller: "+bareKey, "X-Caller: "+second)
		if serve(guard(hooks), twice); strings.Contains(log.String(), bareKey) || strings.Contains(log.String(), second) || !strings.Contains(log.String(), "X-Caller") {
			t.Errorf("%s: the log holds a key: %s", name, log)
		}
		// Keys of others, which no header of the request has.
		log = newLogged()
		api := guard(log.hooks())
		api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) {
			panic(fmt.Errorf("cannot store %q or {%s} or %s", oldKey2, token, elsewhere))
		})
		serve(api, request("GET", "/api/v1/x", "", "", "X-Caller: "+oldKey))
		if text := log.String(); strings.Contains(text, oldKey2) || strings.Contains(text, token) || name == "joined" && strings.Contains(text, elsewhere) || !strings.Contains(text, "cannot store") {
			t.Errorf("%s: the log holds a key: %s", name, text)
		}
	}
}

// TestPanicOfALookup: a store or an authenticator that panics is a 500, and the
// key is not in the log.
func TestPanicOfALookup(t *testing.T) {
	token := keystore.Service{}.Generate(keystore.Production).Reveal()
	store := lookupFunc(func(context.Context, keystore.Digest) (*keystore.Key, error) { panic("lost " + token) })
	log := newLogged()
	keys := middleware.KeyAuthenticator(store, middleware.Options{})
	for name, h := range map[string]http.Handler{
		"alone":  testAPI(store, middleware.Options{Hooks: log.hooks()}),
		"joined": testAPI(nil, middleware.Options{Hooks: log.hooks(), Authenticator: middleware.FirstOf(keys, nobody{})}),
		"pieces": func() http.Handler {
			g := middleware.New(store, middleware.Options{Hooks: log.hooks()})
			return middleware.Chain(g.RequestID, g.Recover, g.Authenticate)(http.HandlerFunc(sayOK))
		}(),
	} {
		wantRefusal(t, name, serve(h, request("GET", "/api/v1/any", token, "")), 500, "internal", "")
	}
	if got := log.String(); strings.Contains(got, token) || strings.Count(got, "panic while serving") != 3 {
		t.Errorf("got the log %s", got)
	}
}
