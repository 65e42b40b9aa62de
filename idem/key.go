package idem

import (
	"crypto/rand"
	"crypto/sha256"
)

// Sum is a SHA-256 hash.
type Sum [32]byte

// Key names one request of one client. Both halves are hashes, so that a key of any length and content takes the same room
// in a store, needs no escaping there, and cannot be read back from a log or a dump.
//
// Two Keys are equal exactly when the partition and the key they were made from are equal.
type Key struct {
	// Partition is whom the key belongs to. Stores account for room by it, and nothing in one partition can be seen, replaced
	// or freed from another.
	Partition Sum
	// Digest depends on the partition as well as on the client's key: a store that looked at Digest alone would still keep
	// partitions apart.
	Digest Sum
}

// NewKey returns the Key of a client's idempotency key within a partition, which is usually an organization and an
// environment, written so that no two of them read the same. It does not allocate for short arguments.
func NewKey(partition, key string) Key {
	var room [512]byte
	k := Key{Partition: sha256.Sum256(append(room[:0], partition...))}
	// The partition's hash is of fixed length, so no other split of the same bytes gives the same input.
	k.Digest = sha256.Sum256(append(append(room[:0], k.Partition[:]...), key...))
	return k
}

// Token is the proof of holding a claim. The caller chooses it and uses it for one claim only.
type Token [16]byte

// NewToken returns a token from crypto/rand.
func NewToken() Token {
	var t Token
	rand.Read(t[:]) // never returns an error: it ends the program instead
	return t
}
