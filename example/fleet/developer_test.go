package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

const formType = "application/x-www-form-urlencoded"

// browse gives the server's client a browser's cookies, without following
// redirects.
func (srv *running) browse(t *testing.T) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	srv.client.Jar = jar
	srv.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
}

func (srv *running) submit(t *testing.T, path string, form url.Values) reply {
	t.Helper()
	return srv.must(t, "", "POST", path, form.Encode(), "Content-Type", formType, "Sec-Fetch-Site", "same-origin")
}

func (srv *running) signInAs(t *testing.T, id string) {
	t.Helper()
	got := srv.submit(t, "/developer/sign-in", url.Values{"as": {id}})
	cookies := got.Cookies()
	if got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != "/developer/" || len(cookies) != 1 {
		t.Fatalf("signing in as %s: got %s to %q with cookies %v", id, got.Status, got.Header.Get("Location"), cookies)
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/developer/" || c.Domain != "" {
		t.Errorf("got cookie %v, want one for this host's console alone", c)
	}
}

var (
	issueToken = regexp.MustCompile(`name="issue_token" value="([^"]+)"`)
	shownKey   = regexp.MustCompile(`svc_live_[0-9A-Za-z]{38}`)
)

func TestAStrangerIssuesAKeyInTheBrowser(t *testing.T) {
	srv := start(t)
	srv.browse(t)
	if got := srv.must(t, "", "GET", "/developer/", ""); got.StatusCode != 401 ||
		!strings.Contains(got.text, "/developer/sign-in") {
		t.Errorf("signed out: got %s %s", got.Status, got.text)
	}
	if got := srv.must(t, "", "GET", "/developer/sign-in", ""); got.StatusCode != 200 ||
		!strings.Contains(got.text, "This is a demo") {
		t.Errorf("the sign-in: got %s %s", got.Status, got.text)
	}
	srv.signInAs(t, "user_max")
	if got := srv.must(t, "", "GET", "/developer/", ""); got.StatusCode != 403 || strings.Contains(got.text, "svc_live") {
		t.Errorf("a member: got %s %s", got.Status, got.text)
	}
	srv.signInAs(t, "user_ada")
	list := srv.must(t, "", "GET", "/developer/", "")
	for name, shown := range map[string]bool{"full": true, "worker": true, "other": false} {
		if strings.Contains(list.text, ">"+name+"</a>") != shown {
			t.Errorf("the key %q is shown: %v", name, !shown)
		}
	}
	form := srv.must(t, "", "GET", "/developer/new", "")
	token := issueToken.FindStringSubmatch(form.text)
	if token == nil {
		t.Fatalf("got %s %s", form.Status, form.text)
	}
	created := srv.submit(t, "/developer/new", url.Values{
		"issue_token": {token[1]}, "name": {"Mine"}, "environment": {"production"},
		"scopes": {"account:read", "tasks:read"}, "expiry": {"never"},
	})
	secret := shownKey.FindString(created.text)
	if created.StatusCode != 201 || secret == "" || !strings.Contains(created.text, srv.base+"/api/v1/account") {
		t.Fatalf("got %s %s", created.Status, created.text)
	}
	if got := srv.must(t, secret, "GET", "/api/v1/account", ""); got.StatusCode != 200 ||
		!strings.Contains(got.text, harbour) {
		t.Errorf("the new key: got %s %s", got.Status, got.text)
	}
	key := decode[struct{ Key string }](t, srv.must(t, secret, "GET", "/api/v1/account", "")).Key
	srv.submit(t, "/developer/"+key+"/revoke", nil)
	wantProblem(t, "the revoked key", srv.must(t, secret, "GET", "/api/v1/account", ""), 401, "api_key_invalid")

	if got := srv.submit(t, "/developer/sign-in",
		url.Values{"as": {""}}); got.Header.Get("Location") != "/developer/sign-in" {
		t.Errorf("signing out: got %s to %q", got.Status, got.Header.Get("Location"))
	}
	if got := srv.must(t, "", "GET", "/developer/", ""); got.StatusCode != 401 {
		t.Errorf("signed out again: got %s", got.Status)
	}
}

func TestTheDemoSignInIsNobodyElses(t *testing.T) {
	srv := start(t)
	srv.browse(t)
	for _, site := range []string{"cross-site", "same-site"} {
		got := srv.must(t, "", "POST", "/developer/sign-in", "as=user_ada", "Content-Type", formType, "Sec-Fetch-Site", site)
		if got.StatusCode != http.StatusForbidden || len(got.Cookies()) > 0 {
			t.Errorf("%s: got %s with %v", site, got.Status, got.Cookies())
		}
	}
	for _, forged := range []string{"user_ada", "administrator", ""} {
		if got := srv.must(t, "", "GET", "/developer/", "", "Cookie", sessionCookie+"="+forged); got.StatusCode != 401 {
			t.Errorf("the cookie %q: got %s", forged, got.Status)
		}
	}
	if got := srv.submit(t, "/developer/sign-in",
		url.Values{"as": {"user_eve"}}); got.Header.Get("Location") != "/developer/sign-in" {
		t.Errorf("somebody unknown: got %s to %q", got.Status, got.Header.Get("Location"))
	}
}

func TestTheConsoleAnswersToLoopbackNamesOnly(t *testing.T) {
	srv := start(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(srv.base, "http://"), ":")
	send := func(host, path string) reply {
		r, err := http.NewRequestWithContext(t.Context(), "GET", srv.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := srv.client.Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return reply{resp, string(text)}
	}
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "LOCALHOST": 200,
		"[::1]:" + port: 200, "[::1]": 200, "127.8.9.10": 200,
		"evil.example": 421, "evil.example:" + port: 421, "localhost.evil.example": 421,
		"127.0.0.1.evil.example": 421, "192.168.1.7:" + port: 421, "0.0.0.0": 421,
	} {
		for _, path := range []string{"/developer/sign-in", "/developer/console.css"} {
			if got := send(host, path); got.StatusCode != want || got.Header.Get("Svc-Request-Id") == "" {
				t.Errorf("%s as %s: got %s, want %d and a request id", path, host, got.Status, want)
			}
		}
		if got := send(host, "/developer"); (got.StatusCode == 421) != (want == 421) {
			t.Errorf("/developer as %s: got %s", host, got.Status)
		}
		if got := send(host, "/healthz"); got.StatusCode != 200 {
			t.Errorf("/healthz as %s: got %s, want what it was", host, got.Status)
		}
	}
}

func TestWhereTheConsoleIsServed(t *testing.T) {
	for _, row := range []struct {
		args   string
		host   string
		status int
	}{
		{"", "", 200},
		{"-addr 0.0.0.0:0", "", 404},
		{"-addr :0", "", 404},
		{"-addr :0 -insecure-demo-console", "", 200},
		{"-addr :0 -insecure-demo-console", "dev.example", 200},
		{"-insecure-demo-console", "dev.example", 200},
	} {
		srv := start(t, strings.Fields(row.args)...)
		r, err := http.NewRequestWithContext(t.Context(), "GET", srv.base+"/developer/sign-in", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = row.host
		resp, err := srv.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != row.status {
			t.Errorf("%q as %q: got %s, want %d", row.args, row.host, resp.Status, row.status)
		}
	}
}

func TestTheStartSaysWhereTheConsoleIs(t *testing.T) {
	for address, want := range map[string]string{
		"http://x/developer/": "Console at http://x/developer/ (a demo: its sign-in asks for no password)",
		"":                    "No console: its sign-in asks for no password, so it is served on a loopback address only",
	} {
		for _, file := range []string{"", filepath.Join(t.TempDir(), "keys.json")} {
			var out strings.Builder
			err := demo{console: address}.announce(&out, file)
			if err != nil || !strings.Contains(out.String(), "\n"+want+"\n") {
				t.Errorf("got %v and %q, want a line %q", err, &out, want)
			}
		}
	}
}

func TestTheListCanTellWhenAKeyWasUsed(t *testing.T) {
	s := memoryStores()
	keys := s.keys
	srv := startWith(t, s)
	if got := srv.must(t, srv.keys.Full, "GET", "/api/v1/account", ""); got.StatusCode != 200 {
		t.Fatalf("got %s", got.Status)
	}
	srv.end()
	<-srv.ended
	for secret, used := range map[string]bool{srv.keys.Full: true, srv.keys.Worker: false} {
		k, err := keys.Lookup(t.Context(), keystore.DigestOf(secret))
		if err != nil || k.LastUsedAt.IsZero() == used {
			t.Errorf("got %v, %v, want a time of use: %v", k, err, used)
		}
	}
}
