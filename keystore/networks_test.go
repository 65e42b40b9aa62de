package keystore_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestAllowsAddress(t *testing.T) {
	for _, c := range []struct {
		networks        []netip.Prefix
		allows, refuses string // addresses; none is the zero Addr
	}{
		{nil, "192.0.2.1 none", ""},
		{[]netip.Prefix{}, "2001:db8::1", ""},
		{prefixes("192.0.2.0/24"), "192.0.2.255 ::ffff:192.0.2.1", "192.0.3.0 2001:db8::1 none"},
		{prefixes("192.0.2.9/24"), "192.0.2.1", ""},
		{prefixes("192.0.2.1/32", "2001:db8::/32"), "2001:db8:ffff::1 192.0.2.1", "192.0.2.2 2001:db9::1"},
		{prefixes("fe80::/10"), "fe80::1%eth0", ""},
		{prefixes("0.0.0.0/0"), "203.0.113.1", "2001:db8::1"},
		{prefixes("::/0"), "2001:db8::1", "203.0.113.1"},
		{prefixes("::ffff:192.0.2.0/120"), "192.0.2.1 ::ffff:192.0.2.1", "192.0.3.1"},
		{prefixes("::ffff:0.0.0.0/80"), "", "192.0.3.1"},
		{[]netip.Prefix{{}}, "", "192.0.2.1 none"},
	} {
		caller := (&keystore.Key{Networks: c.networks}).Bind(scope.Default())
		for want, texts := range map[bool]string{true: c.allows, false: c.refuses} {
			for text := range strings.FieldsSeq(texts) {
				address, err := netip.ParseAddr(text)
				if (err != nil) != (text == "none") || caller.AllowsAddress(address) != want {
					t.Errorf("a key for %v allows %q: %t, want %t", c.networks, text, !want, want)
				}
			}
		}
	}
}

func TestNetworkLimits(t *testing.T) {
	var many []netip.Prefix
	for i := range byte(21) {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i}), 16))
	}
	for _, c := range []struct {
		networks []netip.Prefix
		want     string // of the problem; empty: none
	}{
		{nil, ""},
		{[]netip.Prefix{}, ""},
		{many[:20], ""},
		{many, "There are 21 networks; a key has at most 20."},
		{prefixes("10.1.2.3/8", "10.0.0.0/8", "192.0.2.7/32"), ""},
		{prefixes("::ffff:10.1.2.3/96"), ""},
		{prefixes("::ffff:10.1.2.3/95"), "is no network"},
		{[]netip.Prefix{{}}, `"invalid Prefix" is no network, such as 192.0.2.0/24 or 2001:db8::/32.`},
	} {
		k := valid()
		k.Networks = c.networks
		if err := k.Validate(scope.Default()); !says(err, "networks", c.want) {
			t.Errorf("Validate with the networks %v returned %v, want the problem %q", c.networks, err, c.want)
		}
	}
}
