package repeat

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// Content is what a repeat must have in common with the first request of its
// key, byte for byte, but for what Host and Target say: a client that repeats a
// request still has its bytes, and a looser rule, such as [Content.ByValue],
// would some day hand out the answer to a different request.
type Content struct {
	Method string
	// Host is the host that the client asked, in whatever letter case. ":80", ":443"
	// and no port are the same: behind a proxy the client's scheme is not known.
	Host string
	// Target is the path and the query as the client sent them, before anything
	// rewrote them. An absolute URI counts as its path and query.
	Target      string
	Range       string // a header field: a reply of one range is no answer to another
	ContentType string
	Body        []byte
}

// Fingerprint returns the hash of the content. It outlives the program: a retry
// that reaches the next version must match. It does not allocate while the
// fields before the body take less than about 400 bytes.
func (c Content) Fingerprint() [32]byte {
	var room [512]byte
	b := c.appendHead(room[:0], bodyInline)
	if len(b)+len(c.Body) <= len(room) {
		return sha256.Sum256(append(b, c.Body...))
	}
	// A large body is hashed by itself, so that it is not copied. The first
	// byte tells its hash from a short body of the same bytes.
	b[0] = bodyHashed
	sum := sha256.Sum256(c.Body)
	return sha256.Sum256(append(b, sum[:]...))
}

// The first byte of what is hashed: no form of a body is taken for another.
const (
	bodyInline = iota
	bodyHashed
	bodyByValue
)

// appendHead appends all but the body. Each part is preceded by its length, so
// that no part can end where another began.
func (c *Content) appendHead(b []byte, form byte) []byte {
	b = appendPart(append(b, form), c.Method)
	b = appendPart(b, canonicalHost(c.Host))
	b = appendPart(b, originForm(c.Target))
	b = appendPart(b, c.Range)
	return appendPart(b, c.ContentType)
}

func appendPart(b []byte, part string) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// canonicalHost returns a host in lower case and without a default port.
func canonicalHost(host string) string {
	trimmed, cut := strings.CutSuffix(host, ":80")
	if !cut {
		trimmed = strings.TrimSuffix(host, ":443")
	}
	return strings.ToLower(trimmed)
}

// originForm returns the path and query of a request target.
func originForm(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	_, rest, absolute := strings.Cut(target, "://")
	if !absolute {
		return target
	}
	i := strings.IndexAny(rest, "/?")
	switch {
	case i < 0:
		return "/"
	case rest[i] == '?':
		return "/" + rest[i:]
	}
	return rest[i:]
}
