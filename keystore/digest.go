package keystore

import (
	"crypto/sha256"
	"unsafe"
)

// A Digest is the SHA-256 of a whole token, prefix included, and all that a
// store ever sees of it. Because the prefix is part of it, a sandbox token can
// never be turned into a production one by editing four letters.
//
// A password needs a slow hash because it can be guessed; the 190 random bits
// of a token cannot, and a slow hash in front of authentication would let
// anybody spend the server's time.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a token. It does not allocate.
func DigestOf(token string) Digest { return sha256.Sum256(bytesOf(token)) }

// bytesOf returns the bytes of s, which nobody may write to. A conversion would
// copy them, to the heap from 33 bytes on.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
