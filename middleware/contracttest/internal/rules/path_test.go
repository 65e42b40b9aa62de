package rules

import (
	"net/url"
	"testing"
)

// A link is wrong that would be right with the base path in front, and no other.
func TestWantBase(t *testing.T) {
	const base = "/api/v1"
	for _, test := range []struct {
		server, base, link string
		wrong              bool
	}{
		{"", base, "/account", true},
		{"", base, "/account/?a=b", true},
		{"", base, "http://kit.test/account", true},
		{"/x", base, "/x/account", true},
		{"", base, "/api/v1/account", false},
		{"", base, "/account/7", false},
		{"", base, "account", false},
		{"", base, "", false},
		{"", base, "http://other.test/account", false},
		{"", base, "http://[", false},
		{"", "", "/api/v1/account", false},
	} {
		s := &Session{base: &url.URL{Host: "kit.test", Path: test.server}, target: Target{Base: test.base}}
		p := &probe{Session: s, ctx: t.Context()}
		end := ended(func() { p.wantBase("a link", answer{}, test.link, "/api/v1/account?a=b") })
		if got := end != nil; got != test.wrong {
			t.Errorf("%+v: got %+v", test, end)
		}
	}
}
