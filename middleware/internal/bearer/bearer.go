// Package bearer reads Authorization header fields.
package bearer

import (
	"net/textproto"
	"strings"
)

// Found says what was found in the header.
type Found int

const (
	Nothing Found = iota // no credentials, or another scheme: they may be meant for another handler
	Bad                  // the header cannot be read
	Token                // a Bearer token
)

const scheme = "Bearer"

// longestScheme is more than the schemes that are registered need.
const longestScheme = 16

// Mistake says what is wrong with the header of a client that meant to send a
// token, or "". One word that is too long for the name of a scheme is most likely
// a token that was sent without Bearer.
func Mistake(values []string) string {
	if len(values) != 1 {
		return ""
	}
	switch word := textproto.TrimString(values[0]); {
	case strings.EqualFold(word, scheme):
		return "an empty token"
	case len(word) > longestScheme && !strings.ContainsAny(word, " \t,="):
		return "no scheme"
	case strings.Contains(word, " "):
		return "a scheme other than Bearer"
	}
	return ""
}

// Parse finds the token of RFC 6750, section 2.1, in the values of the
// Authorization header. Two values are Bad.
func Parse(values []string) (token string, found Found) {
	switch {
	case len(values) == 0:
		return "", Nothing
	case len(values) > 1:
		return "", Bad
	}
	value := textproto.TrimString(values[0])
	if !strings.HasPrefix(value, scheme) && (len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme)) {
		return "", Nothing
	}
	rest := value[len(scheme):]
	switch {
	case rest == "":
		return "", Nothing
	case rest[0] == ' ':
		return strings.TrimLeft(rest, " "), Token
	case rest[0] == '\t':
		return "", Bad // RFC 9110, section 11.4: one or more spaces
	}
	return "", Nothing // another scheme that begins alike
}
