package reference

import (
	"hash/crc32"
	"strings"
)

// lookup compares a token with the keys.
func (s *Server) lookup(token string) *key {
	if k := keys[token]; k != nil && !k.revoked {
		return k
	}
	if s.has("any-shape") && (strings.HasPrefix(token, "svc_live_") || strings.HasPrefix(token, "svc_test_")) {
		return keys[full]
	}
	for known, k := range keys {
		last := len(known) - 1
		switch {
		case k.revoked:
		case s.has("suffix-ignored") && strings.HasPrefix(token, known),
			s.has("free-trims") && strings.TrimSpace(token) == known,
			s.has("last-byte-ignored") && len(token) == len(known) && token[:last] == known[:last]:
			return k
		}
	}
	return nil
}

// checksum is a CRC-32 as six digits of base 62.
func checksum(text string) (sum string) {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	n := crc32.ChecksumIEEE([]byte(text))
	for range 6 {
		sum, n = digits[n%62:n%62+1]+sum, n/62
	}
	return sum
}
