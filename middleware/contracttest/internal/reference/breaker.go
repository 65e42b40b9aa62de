package reference

import (
	"encoding/base64"
	"strings"
)

func live(token string) bool { return keys[token] != nil && !keys[token].revoked }

// breaker returns a key for any token while a circuit breaker takes the lookup
// of keys for broken, because it found none twenty times in a row.
func (s *Server) breaker(token string) *key {
	switch {
	case !s.has("auth-breaker-open") || token == "":
		return nil
	case live(token):
		s.strangers.Store(0)
	case s.strangers.Add(1) > 20:
		return keys[full]
	}
	return nil
}

// crashes reports whether the search for a key ends in a panic.
func (s *Server) crashes(x *exchange) bool {
	token := bearer(x.token)
	if s.has("invalid-again-500") && token != "" && !live(token) {
		// What the cache holds for the token is no key.
		_, again := s.unknown.LoadOrStore(token, true)
		return again
	}
	return s.has("scheme-alone-500") && x.token != "" && !strings.Contains(x.token, " ")
}

// sameBytes reports whether the random parts are the same to a decoder of
// base64, which does not look at what is left of the last character.
func sameBytes(token, known string) bool {
	if len(token) != len(known) || token[:prefix] != known[:prefix] {
		return false
	}
	one, err := base64.RawURLEncoding.DecodeString(token[prefix:])
	other, _ := base64.RawURLEncoding.DecodeString(known[prefix:])
	return err == nil && string(one) == string(other)
}
