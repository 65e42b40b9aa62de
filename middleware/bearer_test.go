package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestAuthorizationHeader has a row for each form of credentials. {K} stands
// for a live key, "ok" for an accepted request.
func TestAuthorizationHeader(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
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
		{"upper case", []string{"BEARER {K}"}, ok, 1},
		{"mixed case", []string{"bEaReR {K}"}, ok, 1},
		{"Basic", []string{"Basic dXNlcjpwYXNz"}, missing, 0},
		{"Basic with the key", []string{"Basic {K}"}, missing, 0},
		{"Token", []string{"Token {K}"}, missing, 0},
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
		{"backslash", []string{`Bearer {K}\`}, invalid, 0},
		{"angle brackets", []string{"Bearer <{K}>"}, invalid, 0},
		{"credentials as parameters", []string{"Bearer token={K}"}, invalid, 0},
		{"cut off", []string{"Bearer " + token[:len(token)-1]}, invalid, 0},
		{"one character off", []string{"Bearer " + swapLast(token)}, invalid, 0},
		{"environment edited", []string{"Bearer " + strings.Replace(token, "_live_", "_test_", 1)}, invalid, 0},
		{"upper case prefix", []string{"Bearer " + strings.ToUpper(token)}, invalid, 0},
		{"publishable", []string{"Bearer svc_pub_0123456789"}, invalid, 0},
		{"other service", []string{"Bearer sk_live_0123456789"}, invalid, 0},
		{"1 MB", []string{"Bearer " + strings.Repeat("a", 1<<20)}, invalid, 0},
		{"well-formed and unknown", []string{"Bearer " + keystore.Service{}.Generate(keystore.Production).Reveal()}, invalid, 1},
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
			if res.StatusCode != 200 || res.body != "ok" {
				t.Errorf("%s: got %d %s", tt.name, res.StatusCode, res.body)
			}
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

func swapLast(token string) string {
	last := byte('a')
	if token[len(token)-1] == last {
		last = 'b'
	}
	return token[:len(token)-1] + string(last)
}

// TestAuthorizationOverServers: what net/http does with a header on the way in
// changes nothing.
func TestAuthorizationOverServers(t *testing.T) {
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		ring := newKeyring()
		token := ring.issue(t)
		srv := serve(testAPI(ring.keys, middleware.Options{Hooks: quiet()}))
		for value, want := range map[string]int{"": 401, "Bearer": 401, "Bearer ": 401, "Bearer " + token: 200, "  bearer   " + token + " ": 200, "Bearer\t" + token: 401} {
			r := get(t, srv, "/api/v1/any", "")
			r.Header.Set("Authorization", value)
			if res := do(t, srv.Client(), r); res.StatusCode != want {
				t.Errorf("%q: got %d, want %d", value, res.StatusCode, want)
			}
		}
	})
}

// TestAuthorizationOnTheWire has what a Go client would not send.
func TestAuthorizationOnTheWire(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	srv := start(t, testAPI(ring.keys, middleware.Options{Hooks: quiet()}), withRequestIDs)
	tests := []struct {
		name, lines string
		want        int
	}{
		{"two lines", "Authorization: Bearer " + token + "\r\nAuthorization: Bearer x\r\n", 401},
		{"folded", "Authorization: Bearer svc_live_a\r\n b\r\n", 401},
		{"folded before the key", "Authorization: Bearer\r\n " + token + "\r\n", 200}, // net/http joins them by one space
		{"control character", "Authorization: Bearer " + token + "\x01\r\n", 400},
		{"NUL", "Authorization: Bearer " + token + "\x00\r\n", 400},
		{"high byte", "Authorization: Bearer " + token + "\xe9\r\n", 401},
		// The header is hop-by-hop by its sender's word, which net/http passes
		// on all the same; whoever has sent it meant it for us.
		{"named by Connection", "Connection: Authorization\r\nAuthorization: Bearer " + token + "\r\n", 200},
	}
	for _, tt := range tests {
		c := dial(t, srv)
		c.send("GET /api/v1/any HTTP/1.1\r\nHost: a\r\n" + tt.lines + "\r\n")
		res := c.next("GET")
		if wantID(t, res.Response); res.StatusCode != tt.want {
			t.Errorf("%s: got %d %s, want %d", tt.name, res.StatusCode, res.body, tt.want)
		}
	}
}

// TestKeyElsewhere: a key that is not in the Authorization header is no key,
// and no log of ours shows it.
func TestKeyElsewhere(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
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
	if got := log.String(); got != "" {
		t.Errorf("got the log %s", got)
	}
}

// FuzzAuthorization sends hostile headers through the whole API.
func FuzzAuthorization(f *testing.F) {
	ring := newKeyring()
	token := ring.issue(f)
	for _, v := range []string{
		"", "Bearer", "Bearer " + token, "bearer  " + token + " ", "Bearer\t" + token, "Basic " + token, token, "Bearer " + swapLast(token),
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
