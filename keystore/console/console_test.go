package console_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/.ci/testlib/optiontest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// everywhere is each kind of path with each method that means something there.
func everywhere(id string) [][2]string {
	return [][2]string{
		{"GET", "/"}, {"GET", "/?status=active"}, {"POST", "/new"}, {"GET", "/new"},
		{"GET", "/" + id}, {"GET", "/" + id + "/rotate"}, {"POST", "/" + id + "/rotate"},
		{"GET", "/" + id + "/revoke"}, {"POST", "/" + id + "/revoke"}, {"GET", "/" + id + "/edit"},
		{"POST", "/" + id + "/edit"}, {"GET", "/" + id + "/used"}, {"GET", "/" + id + "/suspend"},
		{"POST", "/" + id + "/suspend"}, {"POST", "/" + id + "/resume"}, {"POST", "/" + id + "/narrow"},
		{"POST", "/key_none/rotate"},
		{"GET", "/nothing"}, {"DELETE", "/" + id}, {"GET", "/key_none"}, {"GET", "/" + id + "/elsewhere"},
	}
}

const valid = "issue_token=t1&name=n&environment=production&scopes=tasks%3Aread&expiry=never&overlap=0"

func TestOnlyAdministratorsGetIn(t *testing.T) {
	for _, row := range []struct {
		who, code string
		status    int
		title     string
	}{
		{"", "", 401, "Sign in first"},
		{"mem", "", 403, "For administrators"},
		{"down", "sign_in_unavailable", 503, "Not available at the moment"},
		{"half", "internal", 500, "Something is wrong"},
		{"long", "internal", 500, "Something is wrong"},
		{"wide", "internal", 500, "Something is wrong"},
	} {
		b := newBench(t)
		token, k := b.add(t, "acme")
		bodies := make(map[bool][]string) // of forms that were sent, and of the rest
		for _, at := range everywhere(k.ID) {
			got := b.do(row.who, at[0], at[1], valid, append(ofForm, "Accept", "text/html")...)
			if got.StatusCode != row.status || strings.Contains(got.text, k.ID) || strings.Contains(got.text, "Old one") ||
				strings.Contains(got.text, "acme") {
				t.Errorf("%q, %v: got %s:\n%s", row.who, at, got.Status, got.text)
			}
			if !strings.HasPrefix(plain(got), row.title+" ·") || strings.Contains(plain(got), "It is not known whether") {
				t.Errorf("%q, %v: got the page %s, want %q", row.who, at, plain(got), row.title)
			}
			wantShown(t, fmt.Sprint(row.who, at), got, row.status < 500, `href="/sign-in"`)
			sent := at[0] == "POST"
			if !sent {
				wantNone(t, "the page has kept nothing, and says so", got, "Sign in in another tab")
			}
			bodies[sent] = append(bodies[sent], plain(got))
		}
		for sent, bodies := range bodies {
			for _, body := range bodies {
				if body != bodies[0] {
					t.Errorf("%q, a form: %t: the answer tells what exists:\n%s\n%s", row.who, sent, body, bodies[0])
				}
			}
		}
		if logged := b.log.String(); row.code == "" && logged != "" || !strings.Contains(logged, row.code) {
			t.Errorf("%q: the log says %q, want code %q", row.who, logged, row.code)
		}
		b.wantHeld(t, row.who, 1, 0)
		b.wantStatus(t, row.who, token, keystore.Active)
	}
}

func TestAdministratorWithoutAName(t *testing.T) {
	b := newBench(t)
	token := secretOf(t, b.do("edge", "POST", "/new", valid, append(ofForm, "Accept", "text/html")...))
	k, err := b.issuer.KeyOf(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, "who made it", b.do("edge", "GET", "/"+k.ID, ""), 200, "by "+strings.Repeat("x", 255))
}

func TestAKeyOfAnotherOrganizationIsAsGoodAsNone(t *testing.T) {
	b := newBench(t)
	token, k := b.add(t, "acme")
	for _, at := range everywhere(k.ID)[4:16] {
		got := b.do("oda", at[0], at[1], valid, ofForm...)
		want := b.do("oda", at[0], strings.ReplaceAll(at[1], k.ID, "key_none"), valid, ofForm...)
		if got.StatusCode != http.StatusNotFound || got.text != want.text {
			t.Errorf("%v: got %s and not the answer for a key that does not exist:\n%s\n%s", at, got.Status, got.text, want.text)
		}
	}
	list := b.do("oda", "GET", "/", "", "Accept", "text/html")
	wantText(t, "the list of the other organization", list, 200, "No keys yet")
	wantNone(t, "the list of the other organization", list, k.ID)
	if b.status(t, token) != keystore.Active || len(b.entries) > 0 || len(b.all(t, "other")) > 0 {
		t.Error("somebody else changed the key")
	}
}

// A form cannot name the organization or the actor.
func TestTheOrganizationComesFromTheAdminFunction(t *testing.T) {
	b := newBench(t)
	f := b.form(t)
	f.Set("organization", "other")
	f.Set("actor", "oda")
	secretOf(t, b.post("/new?organization=other", f))
	if keys := b.all(t, "acme"); len(keys) != 1 || keys[0].CreatedBy != "ada" || len(b.all(t, "other")) != 0 {
		t.Errorf("got %v", keys)
	}
}

func TestPostsOfOtherSitesAreRefused(t *testing.T) {
	for _, row := range []struct {
		header  []string
		allowed bool
	}{
		{[]string{"Sec-Fetch-Site", "cross-site"}, false},
		{[]string{"Sec-Fetch-Site", "same-site"}, false},
		{[]string{"Sec-Fetch-Site", "same-site", "Origin", "http://example.com"}, false},
		{[]string{"Origin", "https://evil.example"}, false},
		{[]string{"Origin", "null"}, false}, // what no-referrer makes of it where there is no Sec-Fetch-Site
		{[]string{"Sec-Fetch-Site", "same-origin", "Origin", "null"}, true},
		{[]string{"Sec-Fetch-Site", "none"}, true},
		{[]string{"Origin", "http://example.com"}, true}, // the host that httptest uses
		{nil, true}, // no browser
	} {
		b := newBench(t)
		token, k := b.add(t, "acme")
		one := "/" + k.ID
		for _, path := range []string{"/new", one + "/edit", one + "/rotate", one + "/suspend", one + "/resume",
			one + "/narrow", one + "/revoke"} {
			got := b.do("ada", "POST", path, strings.ReplaceAll(valid, "t1", "t"+path), slices.Concat(ofForm, row.header)...)
			if refused := got.StatusCode == http.StatusForbidden; refused == row.allowed {
				t.Errorf("%v, POST %s: got %s", row.header, path, got.Status)
			}
		}
		changed := len(b.all(t, "acme")) > 1 || b.status(t, token) != keystore.Active
		if changed != row.allowed {
			t.Errorf("%v: something was changed: %v, want %v", row.header, changed, row.allowed)
		}
	}
}

func TestGetNeverChangesAnything(t *testing.T) {
	b := newBench(t)
	token, k := b.add(t, "acme")
	for _, at := range everywhere(k.ID) {
		for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"} {
			got := b.do("ada", method, at[1]+"?"+valid, valid, append(ofForm, "Sec-Fetch-Site", "same-origin")...)
			if method != "GET" && method != "HEAD" && got.StatusCode != http.StatusMethodNotAllowed &&
				got.StatusCode != http.StatusNotFound {
				t.Errorf("%s %s: got %s", method, at[1], got.Status)
			}
			allow := "GET, HEAD"
			if form := regexp.MustCompile(`^/new$|/(rotate|edit|revoke|suspend|resume|narrow)$`); form.MatchString(at[1]) {
				allow += ", POST"
			}
			if got.StatusCode == http.StatusMethodNotAllowed && got.Header.Get("Allow") != allow {
				t.Errorf("%s %s: got Allow %q, want %q", method, at[1], got.Header.Get("Allow"), allow)
			}
		}
	}
	// Nor does a POST to what has no form.
	for path, status := range map[string]int{
		"/": 405, "/" + k.ID: 405, "/" + k.ID + "/elsewhere": 404, "/keys/": 404, "/console.css": 404,
	} {
		if got := b.do("ada", "POST", path, valid, ofForm...); got.StatusCode != status {
			t.Errorf("POST %s: got %s, want %d", path, got.Status, status)
		}
	}
	b.wantHeld(t, "all those requests", 1, 0)
	b.wantStatus(t, "all those requests", token, keystore.Active)
}

func TestEveryAnswerIsGuarded(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	pages := regexp.MustCompile(`(?i)<html`)
	paths := append(everywhere(k.ID), [2]string{"GET", "/console.css"}, [2]string{"GET", "/console.js"},
		[2]string{"GET", "/?status=moon"})
	for _, who := range []string{"", "mem", "ada"} {
		for _, at := range paths {
			got := b.do(who, at[0], at[1], "")
			for name, want := range map[string]string{
				"Cache-Control":                "no-store",
				"Referrer-Policy":              "no-referrer",
				"X-Content-Type-Options":       "nosniff",
				"X-Frame-Options":              "DENY",
				"Cross-Origin-Opener-Policy":   "same-origin",
				"Cross-Origin-Resource-Policy": "same-origin",
				"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " +
					"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			} {
				if values := got.Header.Values(name); len(values) != 1 || values[0] != want {
					t.Errorf("%s %s: got %s %q, want %q", at[0], at[1], name, values, want)
				}
			}
			if got.StatusCode != http.StatusSeeOther && got.Header.Get("Content-Type") == "" {
				t.Errorf("%s %s: no Content-Type", at[0], at[1])
			}
			asset := strings.HasPrefix(at[1], "/console.")
			if n := len(pages.FindAllString(got.text, -1)); n > 1 || asset && n > 0 {
				t.Errorf("%s %s: the answer has %d pages", at[0], at[1], n)
			}
			if n := got.Header.Get("Content-Length"); got.text != "" && n != fmt.Sprint(len(got.text)) {
				t.Errorf("%s %s: got Content-Length %q for %d bytes", at[0], at[1], n, len(got.text))
			}
			if len(got.Cookies()) > 0 {
				t.Errorf("%s %s: the console set a cookie", at[0], at[1])
			}
			wantNone(t, at[1]+": inline style or script, which its policy forbids", got, " style=", " onclick", "<style",
				"<script>")
		}
	}
}

func TestFrameAncestors(t *testing.T) {
	b := newBench(t, func(o *console.Options) { o.FrameAncestors = []string{"'self'", "https://dash.example.com:8443"} })
	got := b.get("/")
	const ancestors = "; frame-ancestors 'self' https://dash.example.com:8443"
	if csp := got.Header.Get("Content-Security-Policy"); !strings.HasSuffix(csp, ancestors) {
		t.Errorf("got %q", csp)
	}
	if got.Header.Get("X-Frame-Options") != "" {
		t.Error("X-Frame-Options forbids what the policy allows")
	}
}

// All links of a page lead to the console, wherever it is mounted.
func TestAnyMount(t *testing.T) {
	c := console.New(issuing.New(issuing.NewMemory(), issuing.Options{}), anybody, console.Options{})
	for _, prefix := range []string{"", "/developer", "/a/b/c/d e/f"} {
		for page, want := range map[string]string{"/": "console.css", "/?status=active": "console.css",
			"/new": "console.css", "/key_none/rotate": "console.css", "/nothing/at/all": "console.css",
			"/console.css": "light-dark("} {
			r, w := httptest.NewRequest("GET", strings.ReplaceAll(prefix, " ", "%20")+page, nil), httptest.NewRecorder()
			http.StripPrefix(prefix, c).ServeHTTP(w, r)
			for _, m := range linked.FindAllStringSubmatch(w.Body.String(), -1) {
				if to, err := r.URL.Parse(m[1]); err != nil || !strings.HasPrefix(to.Path, prefix+"/") {
					t.Errorf("%s has a link to %s", r.URL, m[1])
				}
			}
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s has no %s: %s", r.URL, want, w.Body)
			}
		}
	}
}

// Without its slash the root of the console leads to the one with it, and
// nothing else does.
func TestTheRootGetsItsSlash(t *testing.T) {
	b := newBench(t)
	for _, row := range []struct{ prefix, request, location string }{
		{mount, mount, "./developer/"},
		{mount, mount + "?status=ended", "./developer/"},
		{"/a/b/c/d e/f", "/a/b/c/d%20e/f", "./f/"},
		{mount, mount + "/", ""},
		{mount + "/", mount + "/", ""}, // which leaves nothing of the path
		{mount + "/", mount + "/?status=ended", ""},
	} {
		r := httptest.NewRequest("GET", row.request, nil)
		r.AddCookie(&http.Cookie{Name: "who", Value: "ada"})
		w := httptest.NewRecorder()
		h := console.New(b.issuer, admin, b.options)
		http.StripPrefix(row.prefix, h).ServeHTTP(w, r)
		if row.location != "" {
			if w.Code != 307 || w.Header().Get("Location") != row.location || w.Body.Len() > 0 {
				t.Errorf("%s: got %d to %q with %d bytes, want %q", row.request, w.Code, w.Header().Get("Location"),
					w.Body.Len(), row.location)
			}
		} else if w.Code != 200 || !strings.Contains(w.Body.String(), "<h1>API keys</h1>") {
			t.Errorf("%s at %s: got %d to %q, want the list", row.request, row.prefix, w.Code, w.Header().Get("Location"))
		}
	}
}

// Without a Logger the process's own is told.
func TestDefaultLogger(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	b := newBench(t, func(o *console.Options) { o.Logger = nil })
	b.store.Before = faulty.At("List", errors.New("no route"))
	wantText(t, "the list", b.get("/"), 503)
	if !strings.Contains(log.String(), "no route") {
		t.Errorf("the log says %q", &log)
	}
}

// TestEveryOption: each option changes what a page or the log shows.
func TestEveryOption(t *testing.T) {
	changing := regexp.MustCompile(`issue_token" value="[^"]*`)
	seen := func(set func(*console.Options)) (text string) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, set)
			b.addBy(t, "bea", "acme", func(g *keystore.Key) { g.Attributes = map[string]string{"plan": "free"} })
			show := func(r reply) { text += fmt.Sprintln(r.Status, r.Header, r.text) }
			form := b.form(t)
			show(b.get("/new"))
			show(b.post("/new", form))
			show(b.get("/"))
			random := []string{secretShape.FindString(text), ""} // of the page that alone has one
			for _, k := range b.all(t, "acme") {
				show(b.get("/" + k.ID))
				random = append(random, k.ID, "", "…"+k.Hint, "")
			}
			show(b.do("mem", "GET", "/", "", "Accept", "text/html"))
			b.store.Before = faulty.At("List", errors.New("away"))
			show(b.get("/"))
			text = strings.NewReplacer(random...).Replace(changing.ReplaceAllString(text+b.log.String(), ""))
		})
		return text
	}
	optiontest.Every(t, seen, map[string]func(*console.Options){
		"Assignable": assignable(scope.TasksRead),
		"PersonName": func(o *console.Options) {
			o.PersonName = func(context.Context, string, string) string { return "A. L." }
		},
		"Presets":        func(o *console.Options) { o.Presets = []console.Preset{} },
		"Attributes":     func(o *console.Options) { o.Attributes = []console.Attribute{{Name: "plan"}} },
		"Networks":       func(o *console.Options) { o.Networks = true },
		"FrameAncestors": func(o *console.Options) { o.FrameAncestors = []string{"'self'"} },
		"Limits": func(o *console.Options) {
			o.Limits = func(_ context.Context, k *keystore.Key) []string { return []string{"5 a second for " + k.Name} }
		},
		"SignIn":  func(o *console.Options) { o.SignIn = "/elsewhere" },
		"BaseURL": func(o *console.Options) { o.BaseURL = "https://api.example.com/api/v1" },
		"Samples": func(o *console.Options) {
			o.BaseURL = "https://api.example.com/api/v1"
			o.Samples = []console.Sample{{Scope: scope.TasksRead, Method: "GET", Path: "/tasks"}}
		},
		"Theme":  func(o *console.Options) { o.Theme.Title = "Harbour" },
		"Path":   func(o *console.Options) { o.Path = "/settings/keys" },
		"Logger": func(o *console.Options) { o.Logger = slog.New(slog.DiscardHandler) },
	})
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)

// A session that ends while a form is filled in loses nothing: the page that
// asks to sign in keeps the form, and sends it again.
func TestSignedOutWhileTyping(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	for path, f := range map[string]url.Values{
		"/new": {
			"issue_token": {"x"}, "name": {"Nightly <import>"}, "environment": {"production"},
			"scopes": {"account:read", "tasks:read"}, "access.chat": {"chat:read chat:write"},
			"expiry": {"date"}, "expires_on": {"2099-12-31"},
		},
		"/" + k.ID + "/rotate": {"issue_token": {"y"}, "overlap": {"3600"}},
		"/key_none/revoke":     {"note": {"left"}}, // one field
		"/" + k.ID + "/edit":   {"version": {"1"}, "name": {"New"}, "scopes_listed": {"1"}, "scopes": {"tasks:read"}},
	} {
		got := b.do("", "POST", path, f.Encode(), ofPage...)
		wantText(t, path, got, 401, "Sign in in another tab", "this page has kept what you filled in", "Send again")
		kept := make(url.Values)
		for _, m := range hiddenField.FindAllStringSubmatch(got.text, -1) {
			kept.Add(m[1], strings.NewReplacer("&lt;", "<", "&gt;", ">").Replace(m[2]))
		}
		if kept.Encode() != f.Encode() {
			t.Errorf("%s: the page keeps %v, want %v", path, kept, f)
		}
		wantHTML(t, "the form is not sent to the page's own address", got, `<form method="post" data-once>`)
		if !strings.HasSuffix(path, "/edit") && !strings.HasSuffix(path, "/revoke") {
			secretOf(t, b.post(path, kept))
		}
	}
	for name, r := range map[string]reply{
		"a page": b.do("", "GET", "/new", "", "Accept", "text/html"),
		"another site": b.do("", "POST", "/new", "name=x",
			append(ofForm, "Accept", "text/html", "Sec-Fetch-Site", "cross-site")...),
		"not an admin":  b.do("mem", "POST", "/new", "name=x", ofPage...),
		"no form":       b.do("", "POST", "/new", "name=x", "Accept", "text/html", "Sec-Fetch-Site", "same-origin"),
		"nothing typed": b.do("", "POST", "/"+k.ID+"/revoke", "", ofPage...),
	} {
		if !slices.Contains([]int{401, 403}, r.StatusCode) || strings.Contains(plain(r), "Send again") {
			t.Errorf("%s: got %s and a form to send again", name, r.Status)
		}
	}
}
