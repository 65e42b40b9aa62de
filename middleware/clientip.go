package middleware

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// proxies are those that a team trusts.
type proxies struct {
	prefixes []netip.Prefix
	socket   bool   // who connects through a unix socket, which has no address
	noClient func() // called when a client has no address and socket is not set
}

func (p *proxies) validate() error {
	var m mistakes
	for _, prefix := range p.prefixes {
		none := !prefix.IsValid() || prefix.Addr().Is4In6()
		m.when(none, "%v matches no address; write IPv4 prefixes as 10.0.0.0/8", prefix)
		m.when(!none && prefix.Bits() == 0, "%v is every address, so a client could choose its own", prefix)
	}
	return errors.Join(m...)
}

// client returns the client's address: the connection's peer, or, when that is
// a trusted proxy, the rightmost entry of X-Forwarded-For that is not one.
// Several header lines are one list (RFC 9110, section 5.3). At an entry that
// is not an address, the client is the address to its right. The address is
// invalid on a unix socket that is not trusted, or whose proxy names nobody.
func (p *proxies) client(r *http.Request) netip.Addr {
	a := p.behind(r.RemoteAddr, r.Header["X-Forwarded-For"])
	if !a.IsValid() && !p.socket {
		p.noClient()
	}
	return a
}

// behind is client for a RemoteAddr and the lines of X-Forwarded-For.
func (p *proxies) behind(remote string, forwarded []string) netip.Addr {
	peer, ok := parseAddr(remote)
	if trusted := ok && p.trust(peer) || !ok && p.socket; !trusted {
		return peer
	}
	client := peer
	for _, rest := range slices.Backward(forwarded) {
		for more := true; more; {
			cut := strings.LastIndexByte(rest, ',')
			addr, ok := parseAddr(strings.Trim(rest[cut+1:], " \t"))
			if !ok {
				return client
			}
			client = addr
			if !p.trust(addr) {
				return client
			}
			rest, more = rest[:max(cut, 0)], cut >= 0
		}
	}
	return client
}

// forwarded reports whether a trusted proxy says who the client is.
func (p *proxies) forwarded(r *http.Request) bool {
	lines := r.Header["X-Forwarded-For"]
	if len(lines) == 0 {
		return false
	}
	last := lines[len(lines)-1]
	_, named := parseAddr(strings.Trim(last[strings.LastIndexByte(last, ',')+1:], " \t")) // "unix:" of nginx is not
	peer, ok := parseAddr(r.RemoteAddr)
	return named && (ok && p.trust(peer) || !ok && p.socket)
}

func (p *proxies) trust(a netip.Addr) bool {
	return slices.ContainsFunc(p.prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(a) })
}

// bucket returns the client's name in a rate limit: the address, or the /64 of
// an IPv6 address, because that is what one subscriber is given.
func (p *proxies) bucket(r *http.Request) string {
	a := p.client(r)
	if a.Is6() {
		network, _ := a.Prefix(64) // 64 bits always fit
		return network.String()
	}
	return a.String()
}

// parseAddr reads "192.0.2.1", "192.0.2.1:443", "[2001:db8::1]:443",
// "[2001:db8::1]" and "2001:db8::1". IPv4-mapped IPv6 addresses are unmapped.
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

// firstValue returns what Header.Get would. To make two names canonical takes
// more than a hundredth of a create.
func firstValue(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
