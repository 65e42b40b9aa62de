package keystore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// answers remembers answers by digest: a plain LRU. The expirable one of the
// same module starts a goroutine that nothing can stop, so each answer carries
// its deadline.
//
// The LRU is keyed by eight bytes of the digest, and the answer has all of it.
// Among many keys a lookup mostly waits for memory: with a map of whole digests
// a GET of ten thousand keys in turn costs 7 % more. Of two digests that share
// these bytes the later one replaces the earlier.
type answers struct {
	lru *simplelru.LRU[uint64, answer]
}

// An answer is what the store said about a token.
type answer struct {
	digest   Digest
	caller   *Caller       // nil: there is no key
	deadline time.Duration // when it is too old to be used
}

func newAnswers(size int) answers {
	l, err := simplelru.NewLRU[uint64, answer](size, nil)
	if err != nil {
		panic("keystore: " + err.Error())
	}
	return answers{l}
}

// short skips the byte that chooses the shard.
func short(d Digest) uint64 { return binary.LittleEndian.Uint64(d[1:]) }

// get makes the answer the most recent one.
func (a answers) get(d Digest) (answer, bool) {
	found, ok := a.lru.Get(short(d))
	return found, ok && found.digest == d
}

func (a answers) contains(d Digest) bool {
	found, ok := a.lru.Peek(short(d))
	return ok && found.digest == d
}

func (a answers) add(found answer) { a.lru.Add(short(found.digest), found) }

func (a answers) remove(d Digest) {
	if a.contains(d) {
		a.lru.Remove(short(d))
	}
}

// outdate keeps of a token only that it is in a, without its caller.
func (a answers) outdate(d Digest) {
	if a.contains(d) {
		a.add(answer{digest: d, deadline: math.MinInt64})
	}
}
