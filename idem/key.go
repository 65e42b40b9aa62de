package idem

import (
	"crypto/sha256"
	"encoding/binary"
)

// Key names one request of one client. It is a hash, so that a key of any
// length and content takes the same room in a store, needs no escaping there,
// and cannot be read back from a log or a dump.
type Key [32]byte

// NewKey returns the Key that is made from these parts: first those that say
// whom the key belongs to, usually an organization, an environment and whatever
// else keeps replies apart, and last the client's idempotency key. Always give
// the same number of parts, with "" for one that does not apply. Each is hashed
// with its length, so that no two lists of parts give the same Key. NewKey does
// not allocate for parts that take less than about 500 bytes together.
func NewKey(parts ...string) Key {
	var room [512]byte
	b := room[:0]
	for _, part := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return sha256.Sum256(b)
}
