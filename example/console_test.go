package main

import (
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// The listener adds an id to what has none; what serves the handler by other
// means has it too.
func TestTheConsoleHasRequestIDs(t *testing.T) {
	keys := issuing.NewMemory()
	console := newConsole(issuing.New(keys, issuing.Options{}), "http://x")
	h := handler(newAPI(keys, nil, ratelimit.MustParse("100-S")), console)
	for _, path := range []string{"/developer", "/developer/sign-in", "/developer/console.css"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Header().Get("Svc-Request-Id") == "" {
			t.Errorf("%s has no id", path)
		}
	}
}

var (
	issueToken = regexp.MustCompile(`name="issue_token" value="([^"]+)"`)
	shownKey   = regexp.MustCompile(`svc_live_[0-9A-Za-z]{38}`)
)

func TestAnAdministratorIssuesAKey(t *testing.T) {
	srv := start(t, "100-S")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	send := func(method, path string, form url.Values) reply {
		t.Helper()
		r, err := http.NewRequest(method, srv.base+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		return do(t, browser, r)
	}
	get := func(path string) reply { return send("GET", path, nil) }
	post := func(path string, form url.Values) reply { return send("POST", path, form) }

	for _, path := range []string{"/developer", "/developer/", "/developer/new"} {
		if got := get(path); got.StatusCode != 401 || !strings.Contains(got.text, `"/developer/sign-in"`) ||
			got.Header.Get("Svc-Request-Id") == "" {
			t.Errorf("%s, signed out: got %s %s", path, got.Status, got.text)
		}
	}
	if got := get("/developer/sign-in"); got.StatusCode != 200 || !strings.Contains(got.text, "password") {
		t.Errorf("the sign-in: got %s %s", got.Status, got.text)
	}
	for _, wrong := range []string{"", srv.password + "x"} {
		if got := post("/developer/sign-in", url.Values{"password": {wrong}}); got.StatusCode != 403 ||
			len(got.Cookies()) > 0 {
			t.Errorf("the password %q: got %s with %v", wrong, got.Status, got.Cookies())
		}
	}
	if got := srv.send(t, "", "GET", "/developer/", "", "Cookie", "session="+srv.password); got.StatusCode != 401 {
		t.Errorf("a forged session: got %s", got.Status)
	}
	if got := post("/developer/sign-in", url.Values{"password": {srv.password}}); got.StatusCode != 200 ||
		!strings.Contains(got.text, ">worker</a>") || strings.Contains(got.text, ">other</a>") {
		t.Errorf("the list: got %s %s", got.Status, got.text)
	}
	session := jar.Cookies(&url.URL{Scheme: "http", Host: strings.TrimPrefix(srv.base, "http://"), Path: "/developer"})
	if len(session) != 1 || session[0].Value == srv.password {
		t.Errorf("got cookies %v, want a session that is not the password", session)
	}

	token := issueToken.FindStringSubmatch(get("/developer/new").text)
	if token == nil {
		t.Fatal("the form has no token")
	}
	created := post("/developer/new", url.Values{
		"issue_token": {token[1]}, "name": {"Mine"}, "environment": {"production"},
		"scopes": {"account:read"}, "expiry": {"never"},
	})
	srv.keys["mine"] = shownKey.FindString(created.text)
	if created.StatusCode != 201 || !strings.Contains(created.text, srv.base+"/api/v1/account") {
		t.Fatalf("got %s %s", created.Status, created.text)
	}
	account := srv.send(t, "mine", "GET", "/api/v1/account", "")
	if account.StatusCode != 200 {
		t.Errorf("the new key: got %s %s", account.Status, account.text)
	}
	post("/developer/"+decode[struct{ Key string }](t, account.text).Key+"/revoke", nil)
	if got := srv.send(t, "mine", "GET", "/api/v1/account", ""); got.StatusCode != 401 {
		t.Errorf("the revoked key: got %s", got.Status)
	}
}
