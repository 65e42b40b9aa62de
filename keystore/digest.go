package keystore

import (
	"crypto/sha256"
	"unsafe"
)

// A Digest is the SHA-256 of a whole token, or what a [LegacyFormat] makes of
// one. It is all that a store ever sees of the token. It covers the prefix, so
// an edit of four letters turns no sandbox token into a production one.
//
// Unlike a password the 190 random bits of a token cannot be guessed. A slow hash
// before authentication would let anybody spend the server's time.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a token. It does not allocate.
func DigestOf(token string) Digest { return sha256.Sum256(bytesOf(token)) }

// bytesOf returns the bytes of s, which must not be written to. A conversion
// would copy them, and allocate when there are more than 32.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
