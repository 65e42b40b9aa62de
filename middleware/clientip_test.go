package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestClientIP(t *testing.T) {
	var nobody []netip.Prefix
	proxies := trust("10.0.0.0/8", "2001:db8:1::/48")
	tests := []struct {
		name      string
		proxies   []netip.Prefix
		peer      string
		forwarded []string // header lines
		want      string
	}{
		{"peer", nobody, "203.0.113.9:1234", nil, "203.0.113.9"},
		{"untrusted peer's word", nobody, "203.0.113.9:1234", []string{"6.6.6.6"}, "203.0.113.9"},
		{"untrusted peer of proxies", proxies, "203.0.113.9:1234", []string{"6.6.6.6"}, "203.0.113.9"},
		{"trusted peer", proxies, "10.1.2.3:1234", []string{"203.0.113.9"}, "203.0.113.9"},
		{"rightmost untrusted", proxies, "10.1.2.3:1234", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{"behind two proxies", proxies, "10.1.2.3:1234", []string{"6.6.6.6, 203.0.113.9, 10.9.9.9"}, "203.0.113.9"},
		{"two lines", proxies, "10.1.2.3:1234", []string{"6.6.6.6, 203.0.113.9", "10.9.9.9"}, "203.0.113.9"},
		{"two lines, the last counts", proxies, "10.1.2.3:1234", []string{"6.6.6.6", "203.0.113.9"}, "203.0.113.9"},
		{"proxies alone", proxies, "10.1.2.3:1234", []string{"10.0.0.1, 10.0.0.2"}, "10.0.0.1"},
		{"no header", proxies, "10.1.2.3:1234", nil, "10.1.2.3"},
		{"empty header", proxies, "10.1.2.3:1234", []string{""}, "10.1.2.3"},
		{"garbage", proxies, "10.1.2.3:1234", []string{"6.6.6.6, unknown"}, "10.1.2.3"},
		{"garbage behind a proxy", proxies, "10.1.2.3:1234", []string{"6.6.6.6, <script>, 10.9.9.9"}, "10.9.9.9"},
		{"empty entry", proxies, "10.1.2.3:1234", []string{"6.6.6.6, , 10.9.9.9"}, "10.9.9.9"},
		{"a line that begins with a comma", proxies, "10.1.2.3:1234", []string{"6.6.6.6", ", 10.9.9.9"}, "10.9.9.9"},
		{"leading zeros", proxies, "10.1.2.3:1234", []string{"010.1.1.1"}, "10.1.2.3"},
		{"unclosed bracket", proxies, "10.1.2.3:1234", []string{"[2001:db8::1"}, "10.1.2.3"},
		{"unopened bracket", proxies, "10.1.2.3:1234", []string{"2001:db8::1]"}, "10.1.2.3"},
		{"IPv4 in brackets", proxies, "10.1.2.3:1234", []string{"[203.0.113.9]"}, "10.1.2.3"},
		{"tabs and spaces", proxies, "10.1.2.3:1234", []string{"6.6.6.6,\t 203.0.113.9 "}, "203.0.113.9"},
		{"with port", proxies, "10.1.2.3:1234", []string{"203.0.113.9:443"}, "203.0.113.9"},
		{"IPv6", proxies, "10.1.2.3:1234", []string{"2001:db8::1"}, "2001:db8::1"},
		{"IPv6 in brackets", proxies, "10.1.2.3:1234", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"IPv6 with port", proxies, "10.1.2.3:1234", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"IPv6 peer", proxies, "[2001:db8:1::5]:1234", []string{"203.0.113.9"}, "203.0.113.9"},
		{"IPv6 peer with zone", nobody, "[fe80::1%eth0]:1234", nil, "fe80::1"},
		{"mapped peer", nobody, "[::ffff:203.0.113.9]:1234", nil, "203.0.113.9"},
		{"mapped trusted peer", proxies, "[::ffff:10.1.2.3]:1234", []string{"203.0.113.9"}, "203.0.113.9"},
		{"mapped entry", proxies, "10.1.2.3:1234", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"unix socket", proxies, "@", []string{"203.0.113.9"}, "invalid IP"},
		{"unix socket without a name", proxies, "", nil, "invalid IP"},
	}
	for _, tt := range tests {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.peer
		r.Header["X-Forwarded-For"] = tt.forwarded
		r.Header.Set("X-Real-Ip", "6.6.6.6")
		r.Header.Set("Forwarded", "for=6.6.6.6")
		if got := addressOf(tt.proxies, r); got.String() != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A proxy on a unix socket has no address. It is believed if Options say so;
// otherwise all its clients are one, and the log says that once.
func TestUnixSocket(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		l := newLogged()
		api := testAPI(newKeyring().keys, middleware.Options{Hooks: l.hooks(), TrustUnixSocket: trusted,
			Failures: ratelimit.MustParse("1-H")})
		send := func(peer, client string) int {
			r := request("GET", "/api/v1/any", wellFormed(), "", "X-Forwarded-For: "+client)
			r.RemoteAddr = peer
			return serve(api, r).StatusCode
		}
		got := []int{send("@", "192.0.2.1"), send("@", "192.0.2.2"), send("", "192.0.2.2"),
			send("203.0.113.9:1", "192.0.2.1")}
		want := []int{401, 429, 429, 401}
		if trusted {
			want = []int{401, 401, 429, 401} // the word of an address is not believed
		}
		said := strings.Count(l.String(), "set Options.TrustUnixSocket")
		if !slices.Equal(got, want) || said == 1 == trusted {
			t.Errorf("trusted: %t: got %v, want %v; said %d times:\n%s", trusted, got, want, said, l)
		}
	}
}

// addressOf returns the client's address as an Event has it.
func addressOf(proxies []netip.Prefix, r *http.Request) (client netip.Addr) {
	hooks := quiet(func(e middleware.Event) { client = e.ClientIP() })
	g := middleware.New(nil, middleware.Options{Hooks: hooks, TrustedProxies: proxies})
	serve(g.RequestID(sayOK), r)
	return client
}

// FuzzClientIP: whatever is forwarded, the answer is the peer, or an entry that
// somebody trusted has vouched for, and never what an untrusted peer says.
func FuzzClientIP(f *testing.F) {
	for _, v := range []string{"", "6.6.6.6", "6.6.6.6, 203.0.113.9, 10.0.0.1", "[::1]:80, ::ffff:10.0.0.1", ",,,",
		"10.0.0.1%eth0", "\xff", "[[::1]]"} {
		f.Add(v, v, "10.0.0.1:80")
		f.Add(v, v, "203.0.113.9:80")
		f.Add(v, v, v)
	}
	proxies := trust("10.0.0.0/8", "::1/128")
	trusted := func(a netip.Addr) bool {
		return a == netip.MustParseAddr("::1") || netip.MustParsePrefix("10.0.0.0/8").Contains(a)
	}
	f.Fuzz(func(t *testing.T, one, two, peer string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		alone := addressOf(proxies, r)
		r.Header["X-Forwarded-For"] = []string{one, two}
		got := addressOf(proxies, r)
		if got.Is4In6() || got.Zone() != "" || got != got.Unmap() {
			t.Errorf("got %s, which has another spelling", got)
		}
		if !trusted(alone) {
			if got != alone {
				t.Errorf("got %s by the word of %s", got, alone)
			}
			return
		}
		if got == alone {
			return
		}
		// What stands right of the answer is trusted, one and all.
		entries := strings.Split(one+","+two, ",")
		for i := len(entries) - 1; i >= 0; i-- {
			q := httptest.NewRequest("GET", "/", nil)
			q.RemoteAddr = strings.Trim(entries[i], " \t")
			entry := addressOf(proxies, q)
			if entry == got {
				return
			}
			if !trusted(entry) {
				t.Errorf("got %s from %q, %q, although %q stands right of it", got, one, two, entries[i])
				return
			}
		}
		t.Errorf("got %s, which is nowhere in %q, %q", got, one, two)
	})
}
