// Package repeat says when a request repeats another: it has the same
// Idempotency-Key and the same content.
package repeat

import (
	"errors"
	"strings"
)

// maxKeyLength is how many bytes a client's idempotency key may have.
const maxKeyLength = 255

// The errors are sentences for the client, without a full stop, that say what
// to change. They contain nothing of what the client sent.
var (
	errTwice     = errors.New("the idempotency key was sent more than once; send one")
	errEmpty     = errors.New("the idempotency key is empty; send 1 to 255 printable ASCII characters")
	errLong      = errors.New("the idempotency key is longer than 255 bytes")
	errCharacter = errors.New("the idempotency key has a character that is not printable ASCII")
	errQuote     = errors.New("the idempotency key begins with a quotation mark and has none at its end; " +
		"close it, or send the key without quotation marks")
	errEscape = errors.New("the idempotency key has a backslash that is not followed by a quotation mark or a " +
		`backslash; within quotation marks write \" and \\`)
	errParameters = errors.New("the idempotency key is followed by something after its closing quotation mark; " +
		"send nothing after it")
)

// Key reads the values of an idempotency key's header field, one for each of its
// lines, and returns the key: 1 to 255 printable ASCII characters. Spaces and tabs
// around a value are ignored. A structured field string (RFC 9651, section 3.3.3)
// names the same key as the bare text. It may have no parameters: keys that differ
// only in them would be ambiguous.
func Key(values []string) (string, error) {
	if len(values) != 1 {
		return "", errTwice
	}
	value := strings.Trim(values[0], " \t")
	if !strings.HasPrefix(value, `"`) {
		return checkKey(value)
	}
	return unquoteKey(value[1:])
}

func checkKey(key string) (string, error) {
	switch {
	case key == "":
		return "", errEmpty
	case len(key) > maxKeyLength:
		return "", errLong
	}
	for i := range len(key) {
		if key[i] < 0x20 || key[i] > 0x7e {
			return "", errCharacter
		}
	}
	return key, nil
}

var unescape = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// unquoteKey reads what follows the opening quotation mark.
func unquoteKey(s string) (string, error) {
	if len(s) > 2*maxKeyLength+1 {
		return "", errLong
	}
	escaped := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			escaped = true
			if i++; i < len(s) && s[i] != '"' && s[i] != '\\' {
				return "", errEscape
			}
		case s[i] != '"':
		case i != len(s)-1:
			return "", errParameters
		case escaped:
			return checkKey(unescape.Replace(s[:i]))
		default:
			return checkKey(s[:i])
		}
	}
	return "", errQuote
}
