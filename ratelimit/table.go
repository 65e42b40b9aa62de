package ratelimit

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// table keeps a tat for each key in a fixed number of places. A key belongs to
// two sets of seven places and lies in one of the fourteen; it never moves. A new
// key takes the place with the least debt in the emptier set, which spreads keys
// so evenly that nobody in debt is forgotten before the table is over half full.
type table []set

const ways = 7

// set is two cache lines. The first changes only when a key comes in, so that
// cores which take from known keys contend for the second alone, and cores which
// only read contend for nothing.
type set struct {
	keys    [ways]atomic.Uint64 // 0 is an empty place
	version atomic.Uint64       // odd while keys change
	mu      sync.Mutex          // held to write anything in the set
	tats    [ways]atomic.Int64
}

// place says where a key is.
type place struct {
	key  uint64
	sets [2]uint32 // where it may be
	set  uint32    // where it is
	way  int32     // -1: nowhere
}

func (t table) find(key uint64) place {
	n := uint64(len(t))
	a, _ := bits.Mul64(key, n)
	b, _ := bits.Mul64(bits.RotateLeft64(key, 32), n)
	p := place{key: key, sets: [2]uint32{uint32(a), uint32(b)}, way: -1}
	for _, set := range p.sets {
		keys := &t[set].keys
		for way := range keys {
			if keys[way].Load() == key {
				p.set, p.way = set, int32(way)
				return p
			}
		}
	}
	return p
}

// peek reads the tat at a place without a lock. It reports false when the place
// may have gone to another key meanwhile.
func (t table) peek(p place) (tat int64, ok bool) {
	s := &t[p.set]
	version := s.version.Load()
	if version%2 != 0 || s.keys[p.way].Load() != p.key {
		return 0, false
	}
	tat = s.tats[p.way].Load()
	return tat, s.version.Load() == version
}

// at is the tat at a place in a locked set.
func (t table) at(p place) *atomic.Int64 { return &t[p.set].tats[p.way] }

// held reports whether a place in a locked set is still as it was found.
func (t table) held(p place) bool {
	if p.way < 0 {
		return t.find(p.key).way < 0
	}
	return t[p.set].keys[p.way].Load() == p.key
}

// put writes the tat of a key whose sets are locked, and reports whether another
// key was forgotten while in debt to make room for it.
func (t table) put(p place, tat, now int64) (forgot bool) {
	if p.way < 0 {
		// An earlier take of the same request may have brought it in.
		p = t.find(p.key)
	}
	if p.way < 0 {
		p.set, p.way, forgot = t.room(p.sets, now)
	}
	s := &t[p.set]
	if s.keys[p.way].Load() == p.key {
		s.tats[p.way].Store(tat)
		return false
	}
	s.version.Add(1)
	s.keys[p.way].Store(p.key)
	s.tats[p.way].Store(tat)
	s.version.Add(1)
	return forgot
}

// room picks the place for a new key: the one with the least debt in the set with
// fewer debtors, or in both sets when both are full of them.
func (t table) room(sets [2]uint32, now int64) (set uint32, way int32, debtor bool) {
	fewest, least := ways+1, int64(0)
	for _, candidate := range sets {
		debtors, first := 0, 0
		tats := &t[candidate].tats
		for i := range tats {
			if tats[i].Load() > now {
				debtors++
			}
			if tats[i].Load() < tats[first].Load() {
				first = i
			}
		}
		tat := tats[first].Load()
		if debtors < fewest || debtors == ways && tat < least {
			set, way, fewest, least = candidate, int32(first), debtors, tat
		}
	}
	return set, way, fewest == ways
}

// locks are the sets that one decision holds.
type locks struct {
	sets [2 * MaxTakes]uint32
	n    int
}

// add notes the sets that writing to p needs: the one where the key is or, while
// it is in neither, both, so that nobody else puts it into the other. They are
// kept in ascending order, in which every call locks, so that no two calls wait
// for each other.
func (l *locks) add(p place) {
	if p.way >= 0 {
		l.insert(p.set)
		return
	}
	l.insert(p.sets[0])
	l.insert(p.sets[1])
}

func (l *locks) insert(set uint32) {
	i := l.n
	for i > 0 && l.sets[i-1] >= set {
		i--
	}
	if i < l.n && l.sets[i] == set {
		return
	}
	copy(l.sets[i+1:], l.sets[i:l.n])
	l.sets[i] = set
	l.n++
}

func (t table) lock(l *locks) {
	for _, set := range l.sets[:l.n] {
		t[set].mu.Lock()
	}
}

func (t table) unlock(l *locks) {
	for _, set := range l.sets[:l.n] {
		t[set].mu.Unlock()
	}
}
