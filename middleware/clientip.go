package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP finds the address of the client behind the proxies that a team
// trusts. The zero value trusts none: the client is whoever opened the
// connection, and X-Forwarded-For is ignored.
type ClientIP struct {
	trusted []netip.Prefix
}

// TrustProxies returns a ClientIP that believes the given proxies, each an
// address or a CIDR prefix ("10.0.0.0/8"). The error lists every text that is
// neither, and every prefix of all addresses: with it, a client can choose its
// address.
func TrustProxies(cidrs ...string) (ClientIP, error) {
	var c ClientIP
	var errs []error
	for _, text := range cidrs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, addrErr := netip.ParseAddr(text)
			if addrErr != nil {
				errs = append(errs, fmt.Errorf("middleware: trusted proxy %q is neither an address nor a CIDR prefix", text))
				continue
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		if a := prefix.Addr(); a.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
		}
		if prefix.Bits() == 0 {
			errs = append(errs, fmt.Errorf(
				"middleware: trusted proxy %q is every address, so a client could choose its own", text))
		}
		c.trusted = append(c.trusted, prefix.Masked())
	}
	return c, errors.Join(errs...)
}

// From returns the client's address: the connection's peer, or, when that is a
// trusted proxy, the rightmost entry of X-Forwarded-For that is not one.
// Several header lines are one list (RFC 9110, section 5.3). At an entry that
// is not an address, the client is the address to its right. The address is
// invalid when the peer's is not an IP address, as on a unix socket.
func (c ClientIP) From(r *http.Request) netip.Addr {
	peer, ok := parseAddr(r.RemoteAddr)
	if !ok || !c.trusts(peer) {
		return peer
	}
	client := peer
	for _, rest := range slices.Backward(r.Header["X-Forwarded-For"]) {
		for more := true; more; {
			cut := strings.LastIndexByte(rest, ',')
			addr, ok := parseAddr(strings.Trim(rest[cut+1:], " \t"))
			if !ok {
				return client
			}
			client = addr
			if !c.trusts(addr) {
				return client
			}
			rest, more = rest[:max(cut, 0)], cut >= 0
		}
	}
	return client
}

func (c ClientIP) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(c.trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// bucket returns the client's name in a rate limit: the address, or the /64 of
// an IPv6 address, because that is what one subscriber is given.
func (c ClientIP) bucket(r *http.Request) string {
	a := c.From(r)
	if a.Is6() {
		p, _ := a.Prefix(64) // 64 bits always fit
		return p.String()
	}
	return a.String()
}

// parseAddr reads "192.0.2.1", "192.0.2.1:443", "[2001:db8::1]:443",
// "[2001:db8::1]" and "2001:db8::1". IPv4-mapped IPv6 addresses are
// unmapped.
func parseAddr(text string) (netip.Addr, bool) {
	// Choose the parser by syntax: a failed parse allocates.
	bracketed := strings.HasPrefix(text, "[")
	if !bracketed && strings.Count(text, ":") != 1 {
		addr, err := netip.ParseAddr(text)
		return addr.Unmap().WithZone(""), err == nil
	}
	if bracketed && strings.HasSuffix(text, "]") {
		text += ":0"
	}
	withPort, err := netip.ParseAddrPort(text)
	return withPort.Addr().Unmap().WithZone(""), err == nil
}
