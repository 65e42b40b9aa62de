package ratelimit

import (
	"math/bits"
	"sync"
)

// shard is a part of a Memory with a lock of its own. It keeps a tat for each
// key.
//
// A key belongs to two sets of eight places, and lies in one of these sixteen.
// The choice between two sets spreads the keys so evenly that no key in debt is
// forgotten before half of all places are in use. With one set for each key that
// would take twice the memory.
//
// A shard begins with one set and doubles when it would forget a key in debt, up
// to most. So the keys in debt lie close together, in the cache of the
// processor. With all sets from the start, a GET of 100,000 keys in turn costs
// 11 % more.
type shard struct {
	mu     sync.Mutex
	sets   []set
	most   int      // sets
	latest int64    // time of a Take
	_      [16]byte // keeps two locks from sharing a cache line
}

const ways = 8

type set [ways]entry

// entry is a place. It is empty while its key is 0.
type entry struct {
	key uint64
	tat int64
}

// newShards returns shards that may have two places for each key. Few keys get
// few shards, because chance fills small shards unevenly.
func newShards(keys int) []shard {
	sets, n := (keys+3)/4, 1
	for n < 64 && sets >= 128*n {
		n *= 2
	}
	shards := make([]shard, n)
	for i := range shards {
		shards[i].sets, shards[i].most = make([]set, 1), (sets+n-1)/n
	}
	return shards
}

// choices returns the two sets of a key. The lowest bits of the key chose the
// shard; other bits choose the sets.
func (s *shard) choices(key uint64) [2]*set {
	n := uint64(len(s.sets))
	a, _ := bits.Mul64(key, n)
	b, _ := bits.Mul64(bits.RotateLeft64(key, 32), n)
	return [2]*set{&s.sets[a], &s.sets[b]}
}

// find returns nil if the key is not there.
func (s *shard) find(key uint64) *entry {
	for _, set := range s.choices(key) {
		for i := range set {
			if set[i].key == key {
				return &set[i]
			}
		}
	}
	return nil
}

// place returns the place for a new key, with the key that it replaces still in
// it: the one with the least debt in the key's first set or, if over half of
// that set is in debt, in the set with fewer debtors. If both sets are full of
// debtors, the shard grows. When it cannot, the one with the least debt is
// replaced.
func (s *shard) place(key uint64, now int64) *entry {
	var best *entry
	fewest := ways + 1
	for _, set := range s.choices(key) {
		debtors, least := 0, &set[0]
		for i := range set {
			if set[i].tat > now {
				debtors++
			}
			if set[i].tat < least.tat {
				least = &set[i]
			}
		}
		if debtors < fewest || debtors == ways && least.tat < best.tat {
			best, fewest = least, debtors
		}
		if debtors <= ways/2 {
			break
		}
	}
	if best.tat > now && len(s.sets) < s.most {
		s.grow(now)
		return s.place(key, now)
	}
	return best
}

// grow doubles the sets and moves the keys in debt. It clears the old ones, so
// that a pointer to a place in them no longer shows a key.
func (s *shard) grow(now int64) {
	old := s.sets
	s.sets = make([]set, min(2*len(old), s.most))
	for i := range old {
		for _, e := range old[i] {
			if e.tat > now {
				*s.place(e.key, now) = e
			}
		}
	}
	clear(old)
}
