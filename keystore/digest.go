package keystore

import "crypto/sha256"

// A Digest is the SHA-256 of a whole token, prefix included, and all that a
// store ever sees of it. Because the prefix is part of it, a sandbox token can
// never be turned into a production one by editing four letters.
//
// A password needs a slow hash because it can be guessed; the 190 random bits
// of a token cannot, and a slow hash in front of authentication would let
// anybody spend the server's time.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a token. It does not allocate for a token of
// up to 256 bytes, which is more than any key has.
func DigestOf(token string) Digest {
	// A conversion to a slice allocates from 33 bytes on.
	var buffer [maxToken]byte
	if n := copy(buffer[:], token); n == len(token) {
		return sha256.Sum256(buffer[:n])
	}
	return sha256.Sum256([]byte(token))
}
