package rules

import (
	"fmt"
	"net/url"
	"testing"
)

// A link is wrong that would be right with the base path in front, and no other.
func TestWantBase(t *testing.T) {
	const base = "/api/v1"
	for _, test := range []struct {
		server, base, link string
		want               Status
	}{
		{"", base, "/account", Broken},
		{"", base, "/account/?a=b", Broken},
		{"", base, "http://kit.test/account", Broken},
		{"/x", base, "/x/account", Broken},
		{"", base, "/api/v1/account", Held},
		{"", base, "/account/7", Held},
		{"", base, "account", Held},
		{"", base, "", Held},
		{"", base, "http://other.test/account", Held},
		{"", base, "http://[", Held},
		{"", "", "/api/v1/account", Held},
	} {
		s := &Session{base: &url.URL{Host: "kit.test", Path: test.server}, target: Target{Base: test.base}}
		p := &probe{Session: s, ctx: t.Context()}
		wantEnd(t, fmt.Sprint(test), test.want, func() { p.wantBase("a link", answer{}, test.link, "/api/v1/account?a=b") })
	}
}
