package reference

import (
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"regexp"
	"slices"
	"strings"
)

const prefix = len("svc_live_")

// lookup compares a token with the keys.
func (s *Server) lookup(token string) *key {
	if k := s.breaker(token); k != nil {
		return k
	}
	if k := keys[token]; k != nil && (!k.revoked || s.has("revoked-accepted")) {
		return k
	}
	first, _, _ := strings.Cut(token, " ")
	listed, _, _ := strings.Cut(token, ",")
	switch {
	case s.has("token-first-word") && live(first):
		return keys[first]
	case s.has("token-first-of-list") && keys[listed] != nil:
		return keys[listed]
	case s.has("token-is-org") && slices.Contains(orgs, token):
		return keys[full].of(token)
	case s.has("token-like") && token == "svc_live_%",
		s.has("token-null") && (token == "null" || token == "undefined"),
		s.has("token-glob") && token == "svc_live_*",
		s.has("token-checksum") && checksummed(token),
		s.has("token-sql") && strings.Contains(token, "' OR '1'='1"),
		s.has("any-shape") && (strings.HasPrefix(token, "svc_live_") || strings.HasPrefix(token, "svc_test_")):
		return keys[full]
	}
	for known, k := range keys {
		if same := pick(s, likeness); same != nil && !k.revoked && same(token, known) {
			return k
		}
	}
	return nil
}

// likeness are the keys that a defect takes for a known one.
var likeness = map[string]func(token, known string) bool{
	"prefix-compared": func(token, known string) bool {
		return len(token) > prefix+4 && strings.HasPrefix(known, token)
	},
	"token-nbsp":           func(token, known string) bool { return strings.TrimSpace(token) == known },
	"token-named":          func(token, known string) bool { return token == "token="+known },
	"token-quoted":         func(token, known string) bool { return token == `"`+known+`"` },
	"token-without-prefix": func(token, known string) bool { return token == known[prefix:] },
	"token-hyphens":        func(token, known string) bool { return strings.ReplaceAll(token, "-", "_") == known },
	"token-found":          strings.HasSuffix,
	"token-last-bits":      sameBytes,
	"token-width":          func(token, known string) bool { return strings.Map(narrow, token) == known },
	"token-digest": func(token, known string) bool {
		return token == fmt.Sprintf("%x", sha256.Sum256([]byte(known)))
	},
	"token-middle-ignored": func(token, known string) bool { return but(token, known, 16, len(known)-16) },
	"suffix-ignored":       strings.HasPrefix,
	"sandbox-last-byte": func(token, known string) bool {
		return keys[known].env == "test" && but(token, known, len(known)-1, len(known))
	},
	"last-byte-ignored":   func(token, known string) bool { return but(token, known, len(known)-1, len(known)) },
	"case-ignored":        strings.EqualFold,
	"first-byte-ignored":  func(token, known string) bool { return but(token, known, prefix, prefix+1) },
	"environment-ignored": func(token, known string) bool { return but(token, known, 0, prefix) },
	"token-reversed-case": func(token, known string) bool { return strings.ToLower(known) == token },
	"token-junk-ignored": func(token, known string) bool {
		return strings.HasPrefix(token, known[:prefix]) && junk.ReplaceAllString(token, "") == known
	},
}

// junk is what no key has in it.
var junk = regexp.MustCompile(`[^0-9A-Za-z_]`)

// narrow makes an ASCII character of its full-width form, as NFKC does.
func narrow(r rune) rune {
	if r >= '！' && r <= '～' {
		return r - '！' + '!'
	}
	return r
}

// but says whether the two are the same outside these bytes.
func but(token, known string, from, to int) bool {
	return len(token) == len(known) && token[:from] == known[:from] && token[to:] == known[to:]
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

// checksummed reports whether a token ends in its checksum.
func checksummed(token string) bool {
	end := max(0, len(token)-6)
	return token[end:] == checksum(token[:end])
}
