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
)

// TestAPIKeyHeader: Options.KeyHeader may carry the key in place of
// Authorization, and two places in one request are refused.
func TestAPIKeyHeader(t *testing.T) {
	ring := newKeyring()
	token, other := ring.issue(t), ring.issue(t)
	store := &countedStore{Store: ring.memory}
	api := testAPI(store, middleware.Options{Hooks: quiet(), KeyHeader: "X-API-Key"})
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
		{"both, of two callers", []string{"X-API-Key: " + token, "Authorization: Bearer " + other}, 401, "api_key_invalid",
			twice, 0},
		{"beside a JWT", []string{"X-API-Key: " + token, "Authorization: Bearer " + jwt}, 401, "api_key_invalid", twice, 0},
		{"beside an unreadable one", []string{"X-API-Key: " + token, "Authorization: Bearer\t" + token}, 401,
			"api_key_invalid", twice, 0},
		{"sent twice", []string{"X-API-Key: " + token, "X-API-Key: " + token}, 401, "api_key_invalid", twice, 0},
		{"empty", []string{"X-API-Key: "}, 401, "api_key_invalid", "prefix of this service", 0},
		{"as Bearer", []string{"X-API-Key: Bearer " + token}, 401, "api_key_invalid", "character", 0},
		{"mistyped", []string{"X-API-Key: " + swapLast(token)}, 401, "api_key_invalid", "mistyped", 0},
		{"empty beside a key", []string{"X-API-Key: ", "Authorization: Bearer " + token}, 401, "api_key_invalid", twice, 0},
	} {
		before := store.lookups.Load()
		res := serve(api, request("GET", "/api/v1/any", "", "", tt.lines...))
		if res.StatusCode != tt.status || store.lookups.Load()-before != tt.asked {
			t.Errorf("%s: got %d after %d look-ups, want %d after %d: %s", tt.name, res.StatusCode,
				store.lookups.Load()-before, tt.status, tt.asked, res.body)
		}
		if tt.status != 200 && (res.problem(t).Code != tt.code || !strings.Contains(res.problem(t).Detail, tt.detail)) {
			t.Errorf("%s: got %s, want %s about %q", tt.name, res.body, tt.code, tt.detail)
		}
	}
	without := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
	wantAnswer(t, "without the option", serve(without, request("GET", "/api/v1/any", "", "", "X-API-Key: "+token)), 401)
}

func TestAPIKeyHeaderMistakes(t *testing.T) {
	for header, want := range map[string]string{
		"X API Key": "not a header field name", "authorization": "meaning of its own", "Cookie": "meaning of its own",
		"host": "meaning of its own", "Idempotency-Key": "meaning of its own", "Origin": "meaning of its own",
		"sec-fetch-site":  "meaning of its own",
		"X-Forwarded-For": "meaning of its own", "If-Match": "meaning of its own", "Content-Type": "meaning of its own",
	} {
		err := middleware.Options{KeyHeader: header}.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error about %q", header, err, want)
		}
	}
}

// TestKeyNetworks: a key is refused from an address outside its networks.
// Behind a trusted proxy that is the client's; nobody else's word counts.
func TestKeyNetworks(t *testing.T) {
	ring := newKeyring()
	bound := ring.plant(t, keystore.Key{ID: "key_bound", Networks: trust("192.0.2.0/24", "2001:db8::/32")})
	free := ring.plant(t, keystore.Key{})
	past := ring.plant(t, keystore.Key{Suspended: true, Networks: trust("192.0.2.0/24")})
	last := keystore.NewUses(ring.memory, keystore.UsesOptions{})
	runs := 0
	serveFrom := func(proxies []netip.Prefix, token, peer, forwarded string) answer {
		api := middleware.NewAPI(ring.keys,
			middleware.Options{Hooks: quiet(), TrustedProxies: proxies, Failures: ratelimit.MustParse("1-H"), Uses: last})
		api.HandleFunc("GET /api/v1/any", middleware.AnyCaller(), func(http.ResponseWriter, *http.Request) { runs++ })
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
		var proxies []netip.Prefix
		if tt.proxied {
			proxies = trust("10.0.0.0/8")
		}
		runs = 0
		res := serveFrom(proxies, tt.token, tt.peer, tt.forwarded)
		if res.StatusCode != tt.status || (runs == 1) != (tt.status == 200) {
			t.Errorf("%s: got %d and %d runs, want %d: %s", tt.name, res.StatusCode, runs, tt.status, res.body)
		}
		if tt.status == 403 {
			wantRefusal(t, tt.name, res, 403, "address_not_allowed", "")
		}
	}
}

// blocking is a Cached that knows no key while it is told to.
type blocking struct {
	*keystore.Cached
	blocks bool
}

func (b *blocking) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	if b.blocks {
		return nil, keystore.ErrNotFound
	}
	return b.Cached.Lookup(ctx, d)
}

// A store that embeds a Cached decides by its own Lookup.
func TestStoreEmbedsCached(t *testing.T) {
	for _, failures := range []ratelimit.Limit{{}, ratelimit.MustParse("10-M")} {
		ring, token := oneKey(t)
		store := &blocking{Cached: ring.keys}
		api := testAPI(store, middleware.Options{Hooks: quiet(), Failures: failures})
		for _, want := range []int{200, 401} {
			if got := serve(api, request("GET", "/api/v1/any", token, "")).StatusCode; got != want {
				t.Errorf("failures %v, blocks %t: got %d, want %d", failures, store.blocks, got, want)
			}
			store.blocks = true
		}
	}
}

// Wrong keys lock out no active key that a Cached remembers, also one that the
// store embeds. Where nothing remembers, the log says so at the start.
func TestFailuresRemember(t *testing.T) {
	ring := newKeyring()
	token, wrong := ring.issue(t), ring.issuer.Service().Generate(keystore.Production).Reveal()
	for name, tt := range map[string]struct {
		store keystore.Store
		want  int
		warns int
	}{
		"a Cached":           {ring.keys, 200, 0},
		"one that embeds it": {&blocking{Cached: ring.keys}, 200, 0},
		"another store":      {struct{ keystore.Store }{ring.keys}, 429, 1},
	} {
		log := newLogged()
		api := testAPI(tt.store, middleware.Options{Hooks: log.hooks(), Failures: ratelimit.MustParse("2-H")})
		for i, step := range []struct {
			token string
			want  int
		}{{token, 200}, {wrong, 401}, {wrong, 401}, {wrong, 429}, {token, tt.want}} {
			res := serve(api, request("GET", "/api/v1/any", step.token, ""))
			wantAnswer(t, fmt.Sprintf("%s, request %d", name, i), res, step.want)
		}
		if n := strings.Count(log.String(), "Options.Failures without a keystore.Cached"); n != tt.warns {
			t.Errorf("%s: the log has the line %d times, want %d", name, n, tt.warns)
		}
	}
}

// TestLegacyKeys: keys of an older shape pass under each of their digests, and
// their record says of which environment they are.
func TestLegacyKeys(t *testing.T) {
	ring := newKeyring()
	key := importOld(t, ring, oldKey, "the old pepper", keystore.Production)
	importOld(t, ring, oldKey2, "the new pepper", keystore.Sandbox)
	token := ring.issue(t)
	store := &countedStore{Store: ring.memory}
	api := testAPI(store, middleware.Options{Hooks: quiet(), Service: acme(), Environment: keystore.Production})
	for _, tt := range []struct {
		name, token string
		status      int
		detail      string
		asked       int64
	}{
		{"the second pepper", oldKey, 200, "", 2},
		{"the present shape", token, 200, "", 1},
		{"another environment", oldKey2, 401, "the API key is a sandbox one", 1},
		{"unknown", strings.Replace(oldKey, "0", "9", 1), 401, "not valid", 2},
		{"cut off", oldKey[:20], 401, "not copied whole", 0},
	} {
		before := store.lookups.Load()
		res := serve(api, request("GET", "/api/v1/any", tt.token, ""))
		if asked := store.lookups.Load() - before; res.StatusCode != tt.status || asked != tt.asked {
			t.Errorf("%s: got %d after %d look-ups, want %d after %d", tt.name, res.StatusCode, asked, tt.status, tt.asked)
		}
		if tt.status == 401 && !strings.Contains(res.problem(t).Detail, tt.detail) {
			t.Errorf("%s: got %s, want it about %q", tt.name, res.body, tt.detail)
		}
	}
	revoked := key.Clone()
	revoked.Suspended = true
	ring.update(t, revoked)
	if res := serve(api, request("GET", "/api/v1/any", oldKey, "")); res.StatusCode != 401 ||
		!strings.Contains(res.body, "suspended") {
		t.Errorf("suspended: got %d %s", res.StatusCode, res.body)
	}
	broken := acme()
	broken.Legacy[0].Digests = func(string) []keystore.Digest { return make([]keystore.Digest, 9) }
	log := newLogged()
	res := serve(testAPI(store, middleware.Options{Hooks: log.hooks(), Service: broken}),
		request("GET", "/api/v1/any", oldKey, ""))
	if wantRefusal(t, "broken Digests", res, 503, "key_store_unavailable", ""); !strings.Contains(log.String(),
		"9 digests") {
		t.Errorf("broken Digests: got the log %s", log)
	}
}

// TestAuthorizationHeader has a row for each form of credentials. {K} stands
// for an active key, "ok" for an accepted request.
func TestAuthorizationHeader(t *testing.T) {
	ring, token := oneKey(t)
	other := ring.issue(t)
	const ok = "ok"
	tests := []struct {
		name    string
		values  []string // of Authorization
		want    string   // ok or the challenge
		lookups int64
	}{
		{"none", nil, missing, 0},
		{"good", []string{"Bearer {K}"}, ok, 1},
		{"lower case", []string{"bearer {K}"}, ok, 1},
		{"Basic", []string{"Basic dXNlcjpwYXNz"}, missing, 0},
		{"Basic with the key", []string{"Basic {K}"}, missing, 0},
		{"ApiKey", []string{"ApiKey {K}"}, missing, 0},
		{"no scheme", []string{"{K}"}, missing, 0},
		{"another scheme that begins alike", []string{"BearerX {K}"}, missing, 0},
		{"empty", []string{""}, missing, 0},
		{"scheme alone", []string{"Bearer"}, missing, 0},
		{"scheme and a space", []string{"Bearer "}, missing, 0},
		{"scheme and a tab", []string{"Bearer\t"}, missing, 0},
		{"good, then garbage", []string{"Bearer {K}", "garbage"}, invalid, 0},
		{"garbage, then good", []string{"garbage", "Bearer {K}"}, invalid, 0},
		{"two keys", []string{"Bearer {K}", "Bearer " + other}, invalid, 0},
		{"the same twice", []string{"Bearer {K}", "Bearer {K}"}, invalid, 0},
		{"two in one line", []string{"Bearer {K}, Bearer {K}"}, invalid, 0},
		{"empty, then good", []string{"", "Bearer {K}"}, invalid, 0},
		{"two spaces", []string{"Bearer  {K}"}, ok, 1},
		{"white space around", []string{" \tBearer {K} \t"}, ok, 1},
		{"tab", []string{"Bearer\t{K}"}, invalid, 0},
		{"space, tab", []string{"Bearer \t{K}"}, invalid, 0},
		{"folded", []string{"Bearer svc_live_a b"}, invalid, 0},
		{"not ASCII", []string{"Bearer {K}\xe9"}, invalid, 0},
		{"NUL", []string{"Bearer {K}\x00"}, invalid, 0},
		{"quoted", []string{`Bearer "{K}"`}, invalid, 0},
		{"angle brackets", []string{"Bearer <{K}>"}, invalid, 0},
		{"credentials as parameters", []string{"Bearer token={K}"}, invalid, 0},
		{"cut off", []string{"Bearer " + token[:len(token)-1]}, invalid, 0},
		{"one character off", []string{"Bearer " + swapLast(token)}, invalid, 0},
		{"environment edited", []string{"Bearer " + strings.Replace(token, "_live_", "_test_", 1)}, invalid, 0},
		{"upper case prefix", []string{"Bearer " + strings.ToUpper(token)}, invalid, 0},
		{"publishable", []string{"Bearer svc_pub_0123456789"}, invalid, 0},
		{"other service", []string{"Bearer sk_live_0123456789"}, invalid, 0},
		{"1 MB", []string{"Bearer " + strings.Repeat("a", 1<<20)}, invalid, 0},
		{"well-formed and unknown", []string{"Bearer " + keystore.Service{}.Generate(keystore.Production).Reveal()},
			invalid, 1},
	}
	for _, tt := range tests {
		store := &countedStore{Store: ring.memory}
		api := testAPI(store, middleware.Options{Hooks: quiet()})
		r := request("GET", "/api/v1/any", "", "")
		for _, v := range tt.values {
			r.Header["Authorization"] = append(r.Header["Authorization"], strings.ReplaceAll(v, "{K}", token))
		}
		switch res := serve(api, r); tt.want {
		case ok:
			wantAnswer(t, tt.name, res, 200, "ok")
		case missing:
			wantRefusal(t, tt.name, res, 401, "api_key_missing", missing)
		case invalid:
			wantRefusal(t, tt.name, res, 401, "api_key_invalid", invalid)
		}
		if got := store.lookups.Load(); got != tt.lookups {
			t.Errorf("%s: got %d lookups, want %d", tt.name, got, tt.lookups)
		}
	}
}

// TestKeyElsewhere: a key that is not in the Authorization header is no key,
// which the log says of the header X-API-Key, and no log of ours shows it.
func TestKeyElsewhere(t *testing.T) {
	ring, token := oneKey(t)
	log := newLogged()
	api := testAPI(ring.keys, middleware.Options{Hooks: log.hooks()})
	for _, r := range []*http.Request{
		request("GET", "/api/v1/any?api_key="+token, "", ""),
		request("GET", "/api/v1/any?access_token="+token, "", ""),
		request("GET", "/api/v1/any", "", "", "Cookie: api_key="+token),
		request("GET", "/api/v1/any", "", "", "X-API-Key: "+token),
		request("GET", "/api/v1/any", "", "", "Proxy-Authorization: Bearer "+token),
	} {
		wantRefusal(t, r.URL.String(), serve(api, r), 401, "api_key_missing", missing)
	}
	got := log.String()
	wantNoSecret(t, "the log", got, token)
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "set Options.KeyHeader") {
		t.Errorf("got the log %s", got)
	}
}

// TestHints: a refusal whose reason may be what the host has forgotten is told
// in the log, once.
func TestHints(t *testing.T) {
	ring, token := oneKey(t)
	away, _ := ring.grant(t, keystore.Key{Networks: trust("203.0.113.0/24")})
	preflight := []string{"Origin: https://a.example", "Access-Control-Request-Method: POST"}
	for _, row := range []struct {
		name, method, token string
		lines               []string
		bare                bool // without RequestID
		options             middleware.Options
		want                string
	}{
		{"no RequestID", "GET", token, nil, true, middleware.Options{}, "Authenticate has no RequestID outside it"},
		{"an id", "GET", token, nil, false, middleware.Options{}, ""},
		{"a preflight", "OPTIONS", "", preflight, false, middleware.Options{}, "put the CORS middleware outside"},
		{"a preflight with sessions", "OPTIONS", "", preflight, false, middleware.Options{Authenticate: nobody},
			"put the CORS middleware outside"},
		{"OPTIONS", "OPTIONS", "", preflight[:1], false, middleware.Options{}, ""},
		{"X-API-Key", "GET", "", []string{"X-API-Key: " + token}, false, middleware.Options{}, "set Options.KeyHeader"},
		{"of others", "GET", "", []string{"X-API-Key: a"}, false, middleware.Options{}, ""},
		{"a proxy", "GET", away, []string{"X-Forwarded-For: 203.0.113.9"}, false, middleware.Options{},
			"add it to Options.TrustedProxies\""},
		{"a trusted proxy", "GET", away, []string{"X-Forwarded-For: 198.51.100.9"}, false,
			middleware.Options{TrustedProxies: trust("192.0.2.1/32")}, ""},
		{"no proxy", "GET", away, nil, false, middleware.Options{}, ""},
	} {
		log := newLogged()
		row.options.Hooks = log.hooks()
		g := middleware.New(ring.keys, row.options)
		h := middleware.Chain(g.Authenticate, g.Enforce(middleware.AnyCaller()))(sayOK)
		if !row.bare {
			h = g.RequestID(h)
		}
		for range 3 {
			serve(h, request(row.method, "/", row.token, "", row.lines...))
		}
		if got := log.String(); !strings.Contains(got, row.want) || strings.Count(got, "\n") != min(len(row.want), 1) {
			t.Errorf("%s: got %q, want %q", row.name, got, row.want)
		}
	}
}

// FuzzAuthorization sends hostile headers through the whole API.
func FuzzAuthorization(f *testing.F) {
	ring, token := oneKey(f)
	for _, v := range []string{
		"", "Bearer", "Bearer " + token, "bearer  " + token + " ", "Bearer\t" + token, "Basic " + token, token,
		"Bearer " + swapLast(token),
		"Bearer svc_pub_x", "Bearer \xff\x00", "Bearer svc_live_" + strings.Repeat("0", 38), strings.Repeat("Bearer ", 100),
	} {
		f.Add(v, "", false)
		f.Add(v, "Bearer "+token, true)
	}
	store := &countedStore{Store: ring.memory}
	api := testAPI(store, middleware.Options{Hooks: quiet()})
	f.Fuzz(func(t *testing.T, first, second string, both bool) {
		r := request("GET", "/api/v1/any", "", "")
		r.Header["Authorization"] = []string{first}
		if both {
			r.Header["Authorization"] = []string{first, second}
		}
		before := store.lookups.Load()
		res := serve(api, r)
		wantID(t, res.Response)
		looked := store.lookups.Load() - before

		scheme, rest, _ := strings.Cut(strings.Trim(first, " \t"), " ")
		candidate := strings.TrimLeft(rest, " ")
		_, err := keystore.Service{}.Parse(candidate)
		wellFormed := !both && strings.EqualFold(scheme, "bearer") && err == nil
		switch {
		case res.StatusCode != 200 && res.StatusCode != 401:
			t.Errorf("got %d %s", res.StatusCode, res.body)
		case (res.StatusCode == 200) != (wellFormed && candidate == token):
			t.Errorf("%q, %q: got %d", first, second, res.StatusCode)
		case looked != 0 && !wellFormed || looked > 1:
			t.Errorf("%q, %q: got %d lookups", first, second, looked)
		case res.StatusCode == 401 && len(candidate) > 12 && strings.Contains(res.body, candidate):
			t.Errorf("%q is in the body %s", candidate, res.body)
		}
	})
}
