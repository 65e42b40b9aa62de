package keystore

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// answers is what a [Cached] remembers. Its two LRUs are plain ones: their
// package's expirable variant starts a goroutine that nothing can stop, so the
// deadline is kept with each answer instead.
type answers struct {
	accepts  *lru.Cache[Digest, answer] // keys that were usable when loaded
	refusals *lru.Cache[Digest, answer] // tokens without a key, and keys that were refused
	stripes  [256]stripe                // by the first byte of the digest
}

type answer struct {
	key      *Key // nil: the store has none
	deadline time.Duration
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
	accepts, err := lru.New[Digest, answer](size)
	if err != nil {
		panic("keystore: " + err.Error())
	}
	refusals, err := lru.New[Digest, answer](negativeSize)
	if err != nil {
		panic("keystore: " + err.Error())
	}
	return &answers{accepts: accepts, refusals: refusals}
}

// get returns the remembered answer; ok is false when there is none, or none
// that is young enough.
func (a *answers) get(d Digest, now time.Duration) (k *Key, ok bool, err error) {
	if found, ok := a.accepts.Get(d); ok && now < found.deadline {
		return found.key, true, nil
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

// add remembers the answer to a question that was asked in the given
// generation, unless something was forgotten since.
func (a *answers) add(d Digest, generation uint64, usable bool, found answer) {
	s := &a.stripes[d[0]]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != generation {
		return
	}
	// The other LRU may hold an older answer, which has had its time: while it
	// is remembered nobody asks.
	if usable {
		a.accepts.Add(d, found)
	} else {
		a.refusals.Add(d, found)
	}
}

func (a *answers) forget(d Digest) {
	s := &a.stripes[d[0]]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	a.accepts.Remove(d)
	a.refusals.Remove(d)
}

func (a *answers) forgetAll() {
	for i := range a.stripes {
		s := &a.stripes[i]
		s.mu.Lock()
		s.generation++
		s.mu.Unlock()
	}
	// Nothing that was asked before this can be added any more.
	a.accepts.Purge()
	a.refusals.Purge()
}
