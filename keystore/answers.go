package keystore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// answers remembers answers by digest: a plain LRU, whose entries have their
// deadline, since the expirable one of the module starts a goroutine for ever.
//
// It is keyed by a sum of the digest: with a map of whole digests a GET of ten
// thousand keys in turn costs 7 % more. Of two with one sum the later one stays.
type answers struct {
	lru *simplelru.LRU[uint64, answer]
}

// An answer is what the store said about a token.
type answer struct {
	digest   Digest
	caller   *Caller       // nil: there is no key
	deadline time.Duration // when it is too old to be used
	moved    time.Duration // when it was made the most recent one, or the store was asked
}

func newAnswers(size int) answers {
	l, _ := simplelru.NewLRU[uint64, answer](size, nil) // the error is that of a size below 1
	return answers{l}
}

// sum is of all bytes: those of a [LegacyFormat] may be random in some places
// alone, equal in two halves, or those of another key in another order.
func sum(d Digest) (sum uint64) {
	const golden = 0x9e3779b97f4a7c15 // 1 mod 4: of equal words two bits are lost at most
	for i := 0; i < len(d); i += 8 {
		sum = sum*golden + binary.LittleEndian.Uint64(d[i:])
	}
	return sum
}

// peek returns the answer without making it the most recent one.
func (a answers) peek(d Digest) (answer, bool) {
	found, ok := a.lru.Peek(sum(d))
	return found, ok && found.digest == d
}

// get makes the answer the most recent one, unless that was done in the last
// second: moves change other entries, which lie elsewhere in memory. With one for
// each lookup a GET of ten thousand keys in turn costs 7 % more.
func (a answers) get(d Digest, now time.Duration) (answer, bool) {
	found, ok := a.peek(d)
	if ok && now-found.moved >= time.Second {
		found.moved = now
		a.add(found)
	}
	return found, ok
}

func (a answers) contains(d Digest) bool {
	_, ok := a.peek(d)
	return ok
}

func (a answers) add(found answer) { a.lru.Add(sum(found.digest), found) }

func (a answers) remove(d Digest) {
	if a.contains(d) {
		a.lru.Remove(sum(d))
	}
}

// outdate keeps of a token only that it is in a, without its caller.
func (a answers) outdate(d Digest) {
	if a.contains(d) {
		a.add(answer{digest: d, deadline: math.MinInt64})
	}
}
