package idem

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Seal encrypts the replies of a [Runner], so that who reads the store or a
// backup of it does not read what clients were told. It is safe for concurrent
// use.
//
// It seals each payload and each summary by AES-256-GCM, with the [Key] of the
// request as additional data: what was changed, or moved to another Key, does
// not open. That takes 40 bytes more, among them the id of the key that sealed
// it, which is made from the key.
//
// A reply that cannot be opened is not retained: the Record is [Done] with an
// empty Payload, nothing runs again, and a line is logged. A Runner without a
// Seal returns what is stored.
//
// It does not hide how long a reply is, nor Claim.Fingerprint, by which a guess of
// the request can be confirmed. Who can write to the store can delete replies,
// and put an older one back under its Key.
type Seal struct {
	seals sealKey // its aead is nil while nothing is sealed
	opens map[sealID]*cipher.AEAD
	none  bool // what has no seal is a reply too
}

// sealKey has a pointer to an interface, which fmt prints as an address whatever
// the verb: an AEAD has the words of its key.
type sealKey struct {
	id   sealID
	aead *cipher.AEAD
}

type sealID [8]byte

// What is sealed is this mark, the id of the key, a nonce, and what GCM makes.
// The mark is no UTF-8, and no version of a reply of package middleware.
const (
	sealMark = "\xffsl\x01"
	sealHead = len(sealMark) + len(sealID{}) // bytes before the nonce
)

// ParseSeal returns a Seal with keys that are separated by commas, each of 32
// random bytes in base64, as "openssl rand -base64 32" prints them. The first
// key seals, and what any of them sealed is opened. The word none stands for no
// key, and for replies as they are.
//
// To begin, give the servers of a fleet these lists one after the other, and
// the last one when the retention is over:
//
//	none,KEY  every server can open what the next step seals
//	KEY,none  replies are sealed; those from before are still read
//	KEY       a reply without a seal is not read
//
// As long as none is in the list, who can write to the store can write replies.
// To replace a key: OLD,NEW then NEW,OLD and after the retention NEW. Do so
// before it has sealed 2^31 replies, or two may have the same nonce: that is
// eight months at a hundred creates a second.
//
// The error tells all that is wrong with the list, and nothing of the keys.
func ParseSeal(keys string) (*Seal, error) {
	s := &Seal{opens: make(map[sealID]*cipher.AEAD)}
	var errs []error
	for i, text := range strings.Split(keys, ",") {
		text = strings.TrimSpace(text)
		if text == "none" {
			s.none = true
			continue
		}
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != 32 {
			errs = append(errs, fmt.Errorf("idem: key %d of the Seal is not 32 bytes in base64", i+1))
			continue
		}
		k := newSealKey(key)
		if s.opens[k.id] = k.aead; i == 0 {
			s.seals = k
		}
	}
	if s.none && len(s.opens) == 0 {
		errs = append(errs, errors.New("idem: the Seal has no key"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return s, nil
}

func newSealKey(key []byte) (k sealKey) {
	k.aead = new(cipher.AEAD)
	block, err := aes.NewCipher(key)
	if err == nil {
		*k.aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // the key has the right length
	}
	hash := sha256.Sum256(append([]byte("sallyport seal"), key...))
	copy(k.id[:], hash[:])
	return k
}

// seal returns b encrypted for the request with that key, or b itself while
// nothing is sealed.
func (s *Seal) seal(key, b []byte) []byte {
	if s == nil || s.seals.aead == nil {
		return b
	}
	aead := *s.seals.aead
	sealed := make([]byte, 0, sealHead+len(b)+aead.Overhead())
	sealed = append(append(sealed, sealMark...), s.seals.id[:]...)
	return aead.Seal(sealed, nil, b, key)
}

// open returns what was sealed.
func (s *Seal) open(key, b []byte) ([]byte, error) {
	switch marked := bytes.HasPrefix(b, []byte(sealMark)); {
	case !marked && s.none:
		return b, nil
	case !marked || len(b) < sealHead:
		return nil, errors.New("it has no seal")
	}
	aead := s.opens[sealID(b[len(sealMark):sealHead])]
	if aead == nil {
		return nil, errors.New("its key is not among those of the Seal")
	}
	return (*aead).Open(nil, nil, b[sealHead:], key)
}
