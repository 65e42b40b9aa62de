package keystore

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// A shard holds what a [Cached] remembers of some of the digests. A hit takes
// the lock of one LRU for a moment; sharing the digests out lets several
// processors do so at once.
type shard struct {
	accepts  *lru.Cache[Digest, entry] // keys that were usable when loaded
	refusals *lru.Cache[Digest, entry] // tokens without a key, and keys that were refused

	// Between reading the generation and remembering an answer somebody may
	// forget the digest. mu makes checking and adding one step, so that an
	// answer from before is never visible, not even for a moment.
	mu         sync.Mutex
	generation uint64 // grows whenever one of the digests is forgotten
}

// An entry is one remembered answer. Its time to live is not that of the LRU
// package's expirable variant, which starts a goroutine that nothing can stop.
type entry struct {
	key      *Key // nil: the store has none
	deadline time.Duration
}

const (
	shards = 16
	// Below this size the digests would spread too unevenly over shards.
	shardedFrom = 4096
)

func newShards(size, negativeSize int) []shard {
	n := shards
	if min(size, negativeSize) < shardedFrom {
		n = 1
	}
	all := make([]shard, n)
	for i := range all {
		all[i].accepts = newLRU((size + n - 1) / n)
		all[i].refusals = newLRU((negativeSize + n - 1) / n)
	}
	return all
}

func newLRU(size int) *lru.Cache[Digest, entry] {
	c, err := lru.New[Digest, entry](size)
	if err != nil {
		panic("keystore: " + err.Error())
	}
	return c
}

// remembered returns the answer to a lookup of d; ok is false when there is
// none, or none that is young enough.
func (s *shard) remembered(d Digest, now time.Duration) (k *Key, err error, ok bool) {
	if e, ok := s.accepts.Get(d); ok && now < e.deadline {
		return e.key, nil, true
	}
	if e, ok := s.refusals.Get(d); ok && now < e.deadline {
		if e.key == nil {
			return nil, ErrNotFound, true
		}
		return e.key, nil, true
	}
	return nil, nil, false
}

func (s *shard) currentGeneration() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

// remember adds an answer to a question that was asked in the given
// generation, unless something was forgotten since.
func (s *shard) remember(d Digest, generation uint64, usable bool, e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != generation {
		return
	}
	to, from := s.refusals, s.accepts
	if usable {
		to, from = from, to
	}
	from.Remove(d)
	to.Add(d, e)
}

func (s *shard) forget(d Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	s.accepts.Remove(d)
	s.refusals.Remove(d)
}

func (s *shard) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	s.accepts.Purge()
	s.refusals.Purge()
}
