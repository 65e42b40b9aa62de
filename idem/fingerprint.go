package idem

import (
	"crypto/sha256"
	"encoding/binary"
)

// Fingerprint returns what a repeat must have in common with the first request of its key.
//
// The rule is raw bytes: two requests are the same when their method, path, query, content type and body are the same, byte
// for byte. Nothing is normalized: JSON with its members in another order, another escape in the path, another order of
// query parameters or a new multipart boundary is another request. A client that repeats a request has those bytes, and any
// looser rule would some day hand out the answer to a different request.
//
// Each part is hashed with its length, so that no part can end where another began. It does not allocate while the parts
// before the body are together under about 400 bytes.
func Fingerprint(method, path, query, contentType string, body []byte) Sum {
	var room [512]byte
	head := room[:0]
	head = appendPart(head, method)
	head = appendPart(head, path)
	head = appendPart(head, query)
	head = appendPart(head, contentType)
	// The body is hashed by itself: its hash is of fixed length, and a large body is not copied.
	sum := sha256.Sum256(body)
	return sha256.Sum256(append(head, sum[:]...))
}

func appendPart(b []byte, part string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
	return append(b, part...)
}
