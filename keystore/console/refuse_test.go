package console_test

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
		if !strings.Contains(got.text, `<form method="post" data-once>`) {
			t.Errorf("%s: the form is not sent to the page's own address:\n%s", path, got.text)
		}
		if !strings.HasSuffix(path, "/edit") && !strings.HasSuffix(path, "/revoke") {
			secretOf(t, b.post(path, kept))
		}
	}
	// A preset, which a browser without script sends the form for, is kept too.
	f := url.Values{"preset": {"External worker"}, "name": {"Typed"}, "issue_token": {"z"}, "access.tasks": {""}}
	kept := make(url.Values)
	for _, m := range hiddenField.FindAllStringSubmatch(b.do("", "POST", "/new", f.Encode(), ofPage...).text, -1) {
		kept.Add(m[1], m[2])
	}
	got := b.post("/new", kept)
	wantText(t, "a preset", got, 200, "Create an API key")
	if picked(got) != "deliverables:write chat:read chat:write" || !strings.Contains(got.text, `value="Typed"`) {
		t.Errorf("the form comes back with %s:\n%s", picked(got), got.text)
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
