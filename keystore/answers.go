package keystore

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// answers is what a [Cached] remembers. Its two LRUs are plain ones: their
// package's expirable variant starts a goroutine that nothing can stop, so the
// deadline is kept with each answer instead.
//
// An LRU has one lock for all keys, and a look moves an entry: on many processors
// every request would wait for every other. So front shows what accepts holds,
// but for keys that share a place, to whoever only reads, and the LRU learns of a
// use once a second.
type answers struct {
	accepts  *lru.Cache[Digest, *accepted] // keys that were usable when loaded
	refusals *lru.Cache[Digest, answer]    // tokens without a key, and keys that were refused
	front    []atomic.Pointer[accepted]    // some of accepts, by digest
	stripes  [256]stripe                   // by the first byte of the digest
}

type answer struct {
	key      *Key // nil: the store has none
	deadline time.Duration
}

// accepted is laid out so that all that tells whether it is the one that is asked
// for lies in one cache line.
type accepted struct {
	deadline time.Duration
	used     atomic.Int64 // when the LRU last heard of a use, to about a second
	key      Key
}

// A stripe counts how often one of its digests was forgotten. Between asking
// the store and remembering what it said that can happen; mu makes comparing
// the generation and adding the answer one step, so that an answer from before
// is never visible, not even for a moment.
type stripe struct {
	mu         sync.Mutex
	generation uint64
}

func newAnswers(size, negativeSize int) *answers {
	a := &answers{front: make([]atomic.Pointer[accepted], min(size, 1<<20))}
	var err error
	a.accepts, err = lru.NewWithEvict(size, func(d Digest, evicted *accepted) {
		a.place(d).CompareAndSwap(evicted, nil)
	})
	if err != nil {
		panic("keystore: " + err.Error())
	}
	a.refusals, err = lru.New[Digest, answer](negativeSize)
	if err != nil {
		panic("keystore: " + err.Error())
	}
	return a
}

// place is where front has a digest, unless another one that shares the place came
// later. Whoever makes up tokens has no influence on it: they are never accepted.
func (a *answers) place(d Digest) *atomic.Pointer[accepted] {
	i, _ := bits.Mul64(binary.NativeEndian.Uint64(d[8:]), uint64(len(a.front)))
	return &a.front[i]
}

// find returns the key that was usable when it was loaded, whatever its age by now,
// or nil.
func (a *answers) find(d Digest, now time.Duration) *accepted {
	found := a.place(d).Load()
	if found == nil || found.key.Digest != d {
		found, _ = a.accepts.Get(d)
		return found
	}
	if used := found.used.Load(); int64(now)-used >= int64(time.Second) && found.used.CompareAndSwap(used, int64(now)) {
		a.accepts.Get(d)
	}
	return found
}

// get returns the remembered answer; ok is false when there is none, or none
// that is young enough.
func (a *answers) get(d Digest, now time.Duration) (k *Key, ok bool, err error) {
	if found := a.find(d, now); found != nil && now < found.deadline {
		return &found.key, true, nil
	}
	if found, ok := a.refusals.Get(d); ok && now < found.deadline {
		if found.key == nil {
			return nil, true, ErrNotFound
		}
		return found.key, true, nil
	}
	return nil, false, nil
}

func (a *answers) generation(d Digest) uint64 {
	s := &a.stripes[d[0]]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

// accept remembers the answer to a question that was asked in the given
// generation, unless something was forgotten since.
func (a *answers) accept(d Digest, generation uint64, found *accepted) {
	s := &a.stripes[d[0]]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != generation {
		return
	}
	// The LRU of refusals may hold an older answer, which has had its time: while
	// it is remembered nobody asks. Front comes first, so that whatever the LRU
	// drops is out of front as well.
	a.place(d).Store(found)
	a.accepts.Add(d, found)
}

// refuse is accept for a token without a usable key.
func (a *answers) refuse(d Digest, generation uint64, found answer) {
	s := &a.stripes[d[0]]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation == generation {
		a.unaccept(d)
		a.refusals.Add(d, found)
	}
}

// unaccept drops the answer that a token was usable. The digest's stripe is locked.
func (a *answers) unaccept(d Digest) {
	a.accepts.Remove(d)
	// Somebody whose answer drove this one out of the LRU may not have come to
	// clear its place yet.
	place := a.place(d)
	if found := place.Load(); found != nil && found.key.Digest == d {
		place.CompareAndSwap(found, nil)
	}
}

func (a *answers) forget(d Digest) {
	s := &a.stripes[d[0]]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	a.unaccept(d)
	a.refusals.Remove(d)
}

// forgetAll holds all stripes to its end: a question of the new generation must
// not be answered with what is still remembered of the old one.
func (a *answers) forgetAll() {
	for i := range a.stripes {
		s := &a.stripes[i]
		s.mu.Lock()
		defer s.mu.Unlock()
		s.generation++
	}
	a.accepts.Purge()
	a.refusals.Purge()
	for i := range a.front {
		a.front[i].Store(nil)
	}
}
