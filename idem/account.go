package idem

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// An Account is what units are counted on: a name, and the names that it lies
// within, such as a tenant and one of its API keys. What is charged to an account
// counts on all that it lies within. The zero Account is none: nothing is counted.
type Account string

// NewAccount returns the account of the last of the names, which lies within
// those before it. A name of more than 100 bytes, or with a byte below 32, is
// replaced by "#" and its SHA-256 in hexadecimal digits.
func NewAccount(names ...string) Account {
	var a strings.Builder
	for _, name := range names {
		if len(name) > 100 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
			sum := sha256.Sum256([]byte(name))
			name = "#" + hex.EncodeToString(sum[:])
		}
		a.WriteString(name)
		a.WriteByte(0)
	}
	return Account(a.String())
}

// Names returns the names, the widest first.
func (a Account) Names() []string {
	names := strings.Split(string(a), "\x00")
	return names[:len(names)-1]
}

// Within returns the accounts that a lies within, the widest first, and a.
func (a Account) Within() (all []Account) {
	for i := range len(a) {
		if a[i] == 0 {
			all = append(all, a[:i+1])
		}
	}
	return all
}
