// Package token knows what the tokens of claims begin with. The stores that
// several processes share find the records of an organization by it.
package token

import (
	"crypto/sha256"
	"encoding/binary"
)

// Prefix is what the tokens of an organization's claims begin with. It is a
// hash: who reads a store sees which records belong together, and can try names
// of organizations. It is stored, so it stays as it is.
func Prefix(organization string) [8]byte {
	var room [256]byte
	b := append(room[:0], "\x14the owner of a claim"...)
	b = append(binary.AppendUvarint(b, uint64(len(organization))), organization...)
	sum := sha256.Sum256(b)
	return [8]byte(sum[:])
}
