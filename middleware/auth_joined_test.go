package middleware_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// by returns a principal of org_1 that was made by hand.
func by(t testing.TB, subject string, scopes ...scope.Name) middleware.Principal {
	t.Helper()
	p, err := middleware.NewPrincipal(nil, middleware.Identity{Organization: "org_1", Subject: subject, Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// session is an authenticator of a cookie, whose value says how it answers.
func session(p middleware.Principal) middleware.AuthenticatorFunc {
	return func(r *http.Request) (middleware.Principal, error) {
		cookie, err := r.Cookie("session")
		switch {
		case err != nil:
			return middleware.Principal{}, fmt.Errorf("no session: %w", middleware.ErrNoCredentials)
		case cookie.Value == "ended":
			return middleware.Principal{}, &middleware.Problem{Status: 401, Code: "session_ended"}
		case cookie.Value == "down":
			return middleware.Principal{}, errors.New("sessions are down")
		case cookie.Value == "nobody":
			return middleware.Principal{}, nil
		case cookie.Value == "nil":
			return middleware.Principal{}, (*middleware.Problem)(nil)
		}
		return p, nil
	}
}

// bearerJWT is an authenticator of Bearer tokens with two dots.
func bearerJWT(p middleware.Principal) middleware.AuthenticatorFunc {
	return func(r *http.Request) (middleware.Principal, error) {
		if strings.Count(r.Header.Get("Authorization"), ".") != 2 {
			return middleware.Principal{}, middleware.ErrNoCredentials
		}
		return p, nil
	}
}

// TestJoinedAuthenticators: which answer a request gets that carries
// credentials of no kind, of one or of two.
func TestJoinedAuthenticators(t *testing.T) {
	ring := newKeyring()
	live, suspended := ring.issue(t), ring.plant(t, keystore.Key{Suspended: true})
	unknown := keystore.Service{}.Generate(keystore.Production).Reveal()
	keys := middleware.KeyAuthenticator(ring.keys, middleware.Options{Keys: middleware.KeyOptions{Header: "X-API-Key"}})
	user, service := session(by(t, "user")), bearerJWT(by(t, "service"))
	const cookie, bearer = "Cookie: session=", "Authorization: Bearer "
	type want struct {
		status int
		who    string // of 200, or the code
	}
	several, missingKey, invalidKey := want{400, "several_credentials"}, want{401, "api_key_missing"}, want{401, "api_key_invalid"}
	asUser, asService, asKey := want{200, "user"}, want{200, "service"}, want{200, "key"}
	for _, tt := range []struct {
		name    string
		lines   []string
		first   want // of FirstOf(keys, service, user)
		reverse want // of FirstOf(user, service, keys)
		prefer  want // of Prefer(user, service, keys)
		logged  string
	}{
		{"nothing", nil, missingKey, missingKey, missingKey, ""},
		{"a key", []string{bearer + live}, asKey, asKey, asKey, ""},
		{"a key in its header", []string{"X-API-Key: " + live}, asKey, asKey, asKey, ""},
		{"a JWT", []string{bearer + jwt}, asService, asService, asService, ""},
		{"a session", []string{cookie + "1"}, asUser, asUser, asUser, ""},
		{"a key that is suspended", []string{bearer + suspended}, invalidKey, invalidKey, invalidKey, ""},
		{"a session that has ended", []string{cookie + "ended"}, want{401, "session_ended"}, want{401, "session_ended"}, want{401, "session_ended"}, ""},
		{"a token that nobody knows", []string{bearer + "opaque"}, invalidKey, invalidKey, invalidKey, ""},
		{"another scheme", []string{"Authorization: Basic YTpi"}, missingKey, missingKey, missingKey, ""},
		{"no key in its header", []string{"X-API-Key: " + jwt}, invalidKey, invalidKey, invalidKey, ""},

		{"a key and a session", []string{bearer + live, cookie + "1"}, several, several, asUser, ""},
		{"a JWT and a session", []string{bearer + jwt, cookie + "1"}, several, several, asUser, ""},
		{"a key in its header and a JWT", []string{"X-API-Key: " + live, bearer + jwt}, invalidKey, several, asService, ""},
		{"no key in its header and a session", []string{"X-API-Key: opaque", cookie + "1"}, invalidKey, several, asUser, ""},
		{"a suspended key and a session", []string{bearer + suspended, cookie + "1"}, invalidKey, several, asUser, ""},
		{"an unknown key and a session", []string{bearer + unknown, cookie + "1"}, invalidKey, several, asUser, ""},
		{"a mistyped key and a session", []string{bearer + swapLast(live), cookie + "1"}, invalidKey, several, asUser, ""},
		{"an opaque token and a session", []string{bearer + "opaque", cookie + "1"}, asUser, asUser, asUser, ""},
		{"a key and a session that has ended", []string{bearer + live, cookie + "ended"}, several, want{401, "session_ended"}, want{401, "session_ended"}, ""},
		{"a key and a session, which is down", []string{bearer + live, cookie + "down"}, several, want{503, "key_store_unavailable"}, want{503, "key_store_unavailable"}, ""},
		{"a key and an answer that is none", []string{bearer + live, cookie + "nobody"}, want{500, "internal"}, want{500, "internal"}, want{500, "internal"}, "neither a principal nor an error"},
		{"a key and a nil problem", []string{bearer + live, cookie + "nil"}, several, want{500, "internal"}, want{500, "internal"}, ""},
	} {
		for name, form := range map[string]struct {
			auth middleware.Authenticator
			want want
		}{
			"FirstOf":          {middleware.FirstOf(keys, service, user), tt.first},
			"FirstOf, reverse": {middleware.FirstOf(user, service, keys), tt.reverse},
			"FirstOf, nested":  {middleware.FirstOf(middleware.FirstOf(keys), middleware.Prefer(service), user), tt.first},
			"Prefer":           {middleware.Prefer(user, service, keys), tt.prefer},
		} {
			log := newLogged()
			api := middleware.NewAPI(nil, middleware.Options{Hooks: log.hooks(), Authenticator: form.auth})
			api.HandleFunc("GET /api/v1/who", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
				p, _ := middleware.PrincipalFrom(r.Context())
				w.Header().Set("X-Who", p.Subject())
				if p.KeyID() != "" {
					w.Header().Set("X-Who", "key")
				}
			})
			res := serve(api, request("GET", "/api/v1/who", "", "", tt.lines...))
			got := want{res.StatusCode, res.Header.Get("X-Who")}
			if got.status != 200 {
				got.who = res.problem(t).Code
			}
			if got != form.want {
				t.Errorf("%s, %s: got %v, want %v", tt.name, name, got, form.want)
			}
			if got.who == "api_key_invalid" && res.Header.Get("Www-Authenticate") != invalid || got.who == "api_key_missing" && res.Header.Get("Www-Authenticate") != missing {
				t.Errorf("%s, %s: got the challenge %q", tt.name, name, res.Header.Get("Www-Authenticate"))
			}
			if tt.logged != "" && !strings.Contains(log.String(), tt.logged) {
				t.Errorf("%s, %s: got the log %q, want it about %q", tt.name, name, log, tt.logged)
			}
		}
	}
}

// TestJoinedKeysAreACopy: a KeyAuthenticator that was joined is as strict as
// ever where it stands alone.
func TestJoinedKeysAreACopy(t *testing.T) {
	ring := newKeyring()
	keys := middleware.KeyAuthenticator(ring.keys, middleware.Options{})
	middleware.FirstOf(keys, nobody{})
	res := serve(testAPI(nil, middleware.Options{Hooks: quiet(), Authenticator: keys}), request("GET", "/api/v1/any", jwt, ""))
	wantRefusal(t, "a JWT", res, 401, "api_key_invalid", invalid)
	if !strings.Contains(res.body, "character") {
		t.Errorf("got %s", res.body)
	}
	// So is one that is joined where FirstOf does not see it.
	hidden := middleware.FirstOf(middleware.AuthenticatorFunc(keys.Authenticate), bearerJWT(by(t, "service")))
	res = serve(testAPI(nil, middleware.Options{Hooks: quiet(), Authenticator: hidden}), request("GET", "/api/v1/any", jwt, ""))
	wantRefusal(t, "a JWT beside hidden keys", res, 401, "api_key_invalid", invalid)
}

// TestJoinedThrottle: the throttle of a KeyAuthenticator also holds where it is
// joined, and does not count the tokens of others. A token that nobody takes
// counts as a wrong key.
func TestJoinedThrottle(t *testing.T) {
	ring := newKeyring()
	unknown := keystore.Service{}.Generate(keystore.Production).Reveal()
	type step struct {
		token string
		want  int
	}
	for name, steps := range map[string][]step{
		"an unknown key": {{jwt, 200}, {jwt, 200}, {unknown, 401}, {unknown, 429}, {swapLast(unknown), 429}, {"opaque", 429}, {jwt, 200}},
		"no key":         {{jwt, 200}, {"", 401}, {"", 401}, {"opaque", 401}, {"opaque", 429}, {unknown, 429}, {"", 401}, {jwt, 200}},
	} {
		keys := middleware.KeyAuthenticator(ring.keys, middleware.Options{Failures: ratelimit.MustParse("1-H")})
		api := testAPI(nil, middleware.Options{Hooks: quiet(), Authenticator: middleware.FirstOf(keys, bearerJWT(by(t, "service")))})
		for i, step := range steps {
			if res := serve(api, request("GET", "/api/v1/any", step.token, "")); res.StatusCode != step.want {
				t.Errorf("%s, request %d: got %d, want %d", name, i+1, res.StatusCode, step.want)
			}
		}
	}
}

// TestProblemsOfAuthenticatorsAreTheirOwn: an authenticator may change the
// refusal of the one it calls, and no other request gets what it has written
// there.
func TestProblemsOfAuthenticatorsAreTheirOwn(t *testing.T) {
	ring := newKeyring()
	tokens := []string{keystore.Service{}.Generate(keystore.Production).Reveal(), ring.plant(t, keystore.Key{Suspended: true}), "opaque", "svc_live_x"}
	for name, keys := range map[string]middleware.Authenticator{
		"alone":     middleware.KeyAuthenticator(ring.keys, middleware.Options{}),
		"throttled": middleware.KeyAuthenticator(ring.keys, middleware.Options{Failures: ratelimit.MustParse("1000-S")}),
		"joined":    middleware.FirstOf(middleware.KeyAuthenticator(ring.keys, middleware.Options{}), nobody{}),
	} {
		changing := middleware.AuthenticatorFunc(func(r *http.Request) (middleware.Principal, error) {
			p, err := keys.Authenticate(r)
			if refused, ok := err.(*middleware.Problem); ok {
				refused.Status, refused.Detail = 418, "changed"
			}
			return p, err
		})
		plain := testAPI(nil, middleware.Options{Hooks: quiet(), Authenticator: keys})
		for _, token := range tokens {
			before := serve(plain, request("GET", "/api/v1/any", token, ""))
			serve(testAPI(nil, middleware.Options{Hooks: quiet(), Authenticator: changing}), request("GET", "/api/v1/any", token, ""))
			after := serve(plain, request("GET", "/api/v1/any", token, ""))
			if before.StatusCode != 401 || after.StatusCode != 401 || after.problem(t).Detail != before.problem(t).Detail {
				t.Errorf("%s, %.8s…: got %s, want %s", name, token, after.body, before.body)
			}
		}
	}
}

// TestWrappedAnswers: an authenticator may wrap the errors of another one, and
// the client gets the same answer.
func TestWrappedAnswers(t *testing.T) {
	ring := newKeyring()
	keys := middleware.FirstOf(middleware.KeyAuthenticator(ring.keys, middleware.Options{}), session(by(t, "user")))
	wrapping := middleware.AuthenticatorFunc(func(r *http.Request) (middleware.Principal, error) {
		p, err := keys.Authenticate(r)
		if err != nil {
			err = fmt.Errorf("who is it: %w", err)
		}
		return p, err
	})
	for _, lines := range [][]string{
		nil,
		{"Authorization: Bearer " + ring.plant(t, keystore.Key{Suspended: true})},
		{"Authorization: Bearer opaque"},
		{"Cookie: session=ended"},
		{"Cookie: session=down"},
		{"Cookie: session=nil"},
		{"Cookie: session=1"},
		{"Authorization: Bearer " + ring.issue(t), "Cookie: session=1"},
	} {
		got := map[middleware.Authenticator]string{}
		forms := []middleware.Authenticator{keys, middleware.FirstOf(wrapping), middleware.FirstOf(nobody{}, wrapping)}
		for _, auth := range forms {
			res := serve(testAPI(nil, middleware.Options{Hooks: quiet(), Authenticator: auth}), request("GET", "/api/v1/any", "", "", lines...))
			body, _, _ := strings.Cut(res.body, "request_id")
			got[auth] = fmt.Sprint(res.StatusCode, " ", res.Header.Get("Www-Authenticate"), " ", body)
		}
		if want := got[forms[0]]; got[forms[1]] != want || got[forms[2]] != want {
			t.Errorf("%v: got %q and %q, want %q", lines, got[forms[1]], got[forms[2]], want)
		}
	}
}

// TestNilAuthenticators: nothing that would panic at the first request gets
// past a constructor.
func TestNilAuthenticators(t *testing.T) {
	none, nilFunc := (*pointerAuthenticator)(nil), middleware.AuthenticatorFunc(nil)
	for name, join := range map[string]func(...middleware.Authenticator) middleware.Authenticator{"FirstOf": middleware.FirstOf, "Prefer": middleware.Prefer} {
		wantPanic(t, "middleware: "+name+": there is no authenticator", func() { join() })
		for _, a := range []middleware.Authenticator{nil, none, nilFunc} {
			wantPanic(t, "middleware: "+name+": an authenticator is nil", func() { join(nobody{}, a) })
		}
	}
	for want, o := range map[string]middleware.Options{
		"Options.Authenticator: it is a nil *middleware_test.pointerAuthenticator": {Authenticator: none},
		"Options.Authenticator: it is a nil middleware.AuthenticatorFunc":          {Authenticator: nilFunc},
		"Options.RateLimit: the store is a nil *ratelimit.Failover":                {RateLimit: middleware.RateLimitOptions{Store: (*ratelimit.Failover)(nil)}},
		"Options.Preflight: it is a nil http.HandlerFunc":                          {Preflight: http.HandlerFunc(nil)},
	} {
		wantPanic(t, want, func() { middleware.New(nil, o) })
		wantPanic(t, want, func() { middleware.NewAPI(nil, o) })
	}
	wantPanic(t, "KeyAuthenticator: the key store is nil", func() { middleware.KeyAuthenticator((*keystore.Cached)(nil), middleware.Options{}) })
	wantPanic(t, "the key store is a nil *keystore.Memory", func() { middleware.New((*keystore.Memory)(nil), middleware.Options{}) })
	wantPanic(t, "neither a key store nor", func() { middleware.NewAPI(nil, middleware.Options{}) })
}

type pointerAuthenticator struct{ p middleware.Principal }

func (a *pointerAuthenticator) Authenticate(*http.Request) (middleware.Principal, error) {
	return a.p, nil
}

// TestPreflight: Options.Preflight answers a preflight request in place of 401.
// It reaches no handler, whatever it carries, and nothing else is let through.
func TestPreflight(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	ran, id := "", ""
	o := middleware.Options{Hooks: quiet(), Preflight: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran, id = "preflight", middleware.RequestIDFrom(r.Context())
		if p, ok := middleware.PrincipalFrom(r.Context()); ok {
			t.Errorf("a preflight of %v", p)
		}
		w.Header().Set("Access-Control-Allow-Origin", "https://shop.example")
		w.WriteHeader(http.StatusNoContent)
	})}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ran = "handler" })
	api := middleware.NewAPI(ring.keys, o)
	api.Handle("OPTIONS /api/v1/x", middleware.AnyKey(), handler)
	g := middleware.New(ring.keys, o)
	pieces := middleware.Chain(g.RequestID, g.Recover, g.Authenticate)(handler)
	outer := middleware.New(nil, middleware.Options{}).RequestID
	const origin, method = "Origin: https://shop.example", "Access-Control-Request-Method: POST"
	for _, tt := range []struct {
		name   string
		method string
		token  string
		lines  []string
		status int
		ran    string
	}{
		{"preflight", "OPTIONS", "", []string{origin, method}, 204, "preflight"},
		{"with a key", "OPTIONS", token, []string{origin, method}, 204, "preflight"},
		{"with a wrong key", "OPTIONS", "x", []string{origin, method}, 204, "preflight"},
		{"without Origin", "OPTIONS", "", []string{method}, 401, ""},
		{"without a method", "OPTIONS", "", []string{origin}, 401, ""},
		{"another method", "POST", "", []string{origin, method}, 401, ""},
		{"no preflight, with a key", "OPTIONS", token, []string{origin}, 200, "handler"},
	} {
		for form, h := range map[string]http.Handler{"API": api, "pieces": pieces, "RequestID and API": outer(api)} {
			for _, nested := range []bool{false, true} {
				ran, id = "", ""
				r := request(tt.method, "/api/v1/x", tt.token, "", tt.lines...)
				if nested {
					r = r.WithContext(middleware.WithPrincipal(r.Context(), by(t, "outside")))
				}
				res := serve(h, r)
				if res.StatusCode != tt.status || ran != tt.ran {
					t.Errorf("%s, %s: got %d of %q, want %d of %q", tt.name, form, res.StatusCode, ran, tt.status, tt.ran)
				}
				if got := wantID(t, res.Response); ran == "preflight" && id != got {
					t.Errorf("%s, %s: the handler saw the id %q, the response has %q", tt.name, form, id, got)
				}
			}
		}
	}
	without := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
	if res := serve(without, request("OPTIONS", "/api/v1/any", "", "", origin, method)); res.StatusCode != 401 {
		t.Errorf("without the option: got %d", res.StatusCode)
	}
	// Where Authenticate itself is misplaced, so is its Preflight.
	ran = ""
	inside := middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey, middleware.New(nil, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies(), Methods: []string{"OPTIONS"}}}).Idempotent, g.Authenticate)
	if res := serve(inside(handler), request("OPTIONS", "/", token, "", "Idempotency-Key: 1")); res.StatusCode != 500 || ran != "" {
		t.Errorf("inside Idempotent: got %d of %q", res.StatusCode, ran)
	}
}

// TestCallerNotAccepted: what a token of another kind says is no fault of a
// store. Whoever has such a token cannot have lines about outages written, nor
// keep them back.
func TestCallerNotAccepted(t *testing.T) {
	ring := newKeyring()
	for name, i := range map[string]middleware.Identity{
		"no organization": {Subject: "user_1"},
		"unknown scope":   {Organization: "org_1", Scopes: []scope.Name{"profile"}},
		"long subject":    {Organization: "org_1", Subject: strings.Repeat("a", 256)},
	} {
		for _, wrapping := range []string{"%w", "claims: %w"} {
			log, down := newLogged(), false
			user := middleware.AuthenticatorFunc(func(r *http.Request) (middleware.Principal, error) {
				if down {
					return middleware.Principal{}, errors.New("issuer is down")
				}
				p, err := middleware.NewPrincipal(nil, i)
				return p, fmt.Errorf(wrapping+" of "+r.Header.Get("Authorization"), err)
			})
			for _, auth := range []middleware.Authenticator{user, middleware.FirstOf(middleware.KeyAuthenticator(ring.keys, middleware.Options{}), user)} {
				down = false
				o := &observed{t: t}
				hooks := o.hooks()
				hooks.Logger = log.hooks().Logger
				api, before := testAPI(nil, middleware.Options{Hooks: hooks, Authenticator: auth}), len(log.String())
				for range 3 {
					e, got := o.ask(api, request("GET", "/api/v1/any", jwt, ""))
					wantRefusal(t, name, got, 403, "caller_not_accepted", "")
					if got.Header["Retry-After"] != nil || e.Stage != middleware.StageAuth || e.Outcome != "caller_not_accepted" || e.Principal != (middleware.Principal{}) {
						t.Errorf("%s: got %v and the Event %+v", name, got.Header, e)
					}
				}
				down = true
				wantRefusal(t, name, serve(api, request("GET", "/api/v1/any", jwt, "")), 503, "key_store_unavailable", "")
				got := log.String()[before:]
				if strings.Count(got, "level=INFO") != 1 || strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "issuer is down") || !strings.Contains(got, "grant is not valid") || strings.Contains(got, jwt) {
					t.Errorf("%s: got the log %s", name, got)
				}
			}
		}
	}
}

// TestTextsForOtherCredentials: nobody who has no API key reads about one.
func TestTextsForOtherCredentials(t *testing.T) {
	o := middleware.Options{Hooks: quiet(), Authenticator: bearerJWT(by(t, "service"))}
	api := testAPI(nil, o)
	for _, got := range []answer{serve(api, request("GET", "/api/v1/account", "", "")), serve(api, request("GET", "/api/v1/account", jwt, ""))} {
		if got.StatusCode != 401 && got.StatusCode != 403 || strings.Contains(got.problem(t).Detail, "API key") {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
	}
}
