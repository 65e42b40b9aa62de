package idem

import "strings"

// maxKeyLength is how many bytes a client's idempotency key may have.
const maxKeyLength = 255

// KeyError is why [ParseKey] refuses a value. It is a sentence for the client,
// without a full stop, that says what to change. It contains nothing of what
// the client sent.
type KeyError string

func (e KeyError) Error() string { return string(e) }

const (
	errKeyMissing    = KeyError("the idempotency key is missing")
	errKeyTwice      = KeyError("the idempotency key was sent more than once; send one")
	errKeyEmpty      = KeyError("the idempotency key is empty; send 1 to 255 printable ASCII characters")
	errKeyLong       = KeyError("the idempotency key is longer than 255 bytes")
	errKeyCharacter  = KeyError("the idempotency key has a character that is not printable ASCII")
	errKeyQuote      = KeyError(`the idempotency key begins with a quotation mark and has none at its end; close it, or send the key without quotation marks`)
	errKeyEscape     = KeyError(`the idempotency key has a backslash that is not followed by a quotation mark or a backslash; within quotation marks write \" and \\`)
	errKeyParameters = KeyError(`the idempotency key is followed by something after its closing quotation mark; send nothing after it`)
)

// ParseKey reads the values of an idempotency key's header field, one for each
// field line, and returns the key: 1 to 255 printable ASCII characters.
//
// A value that begins with a quotation mark is a structured field string (RFC
// 9651, section 3.3.3), in which \" stands for " and \\ for \; it names the
// same key as the bare text. Parameters after the string are refused, because
// keys that differ only in them would be ambiguous. Spaces and tabs around a
// value are ignored.
//
// Every error is a [KeyError].
func ParseKey(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", errKeyMissing
	case 1:
	default:
		return "", errKeyTwice
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
		return "", errKeyEmpty
	case len(key) > maxKeyLength:
		return "", errKeyLong
	}
	for i := range len(key) {
		if key[i] < 0x20 || key[i] > 0x7e {
			return "", errKeyCharacter
		}
	}
	return key, nil
}

// unquoteKey reads what follows the opening quotation mark.
func unquoteKey(s string) (string, error) {
	// Without an escape the key is part of the value, and nothing is copied.
	if end := strings.IndexAny(s, `"\`); end >= 0 && s[end] == '"' {
		if end != len(s)-1 {
			return "", errKeyParameters
		}
		return checkKey(s[:end])
	}
	if len(s) > 2*maxKeyLength+1 {
		return "", errKeyLong
	}
	key := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			if i != len(s)-1 {
				return "", errKeyParameters
			}
			return checkKey(string(key))
		case '\\':
			i++
			if i == len(s) {
				return "", errKeyQuote
			}
			if s[i] != '"' && s[i] != '\\' {
				return "", errKeyEscape
			}
		}
		key = append(key, s[i])
	}
	return "", errKeyQuote
}
