package keystore

import (
	"net/netip"
	"slices"

	"github.com/sallyport-go/sallyport/keystore/internal/field"
)

// AllowsAddress reports whether the caller may call from this address, which is
// any without networks. An IPv4 address mapped into IPv6 is the IPv4 address, and
// zones are ignored. The zero Addr is in no network: it is allowed if there is no
// limit. It does not allocate.
func (c *Caller) AllowsAddress(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	more := c.more()
	outside := func(k *Key) bool { return !within(k.Networks, a) }
	return within(more.networks, a) && (more.child == nil || !slices.ContainsFunc(more.child.ancestors, outside))
}

// within reports whether the address is in one of the networks. None are all.
func within(networks []netip.Prefix, a netip.Addr) bool {
	// A store may hold networks that nobody has checked.
	return len(networks) == 0 ||
		slices.ContainsFunc(networks, func(n netip.Prefix) bool { return field.Network(n).Contains(a) })
}
