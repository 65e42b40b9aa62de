package ratelimit

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

// table keeps a tat for each key in a fixed number of places. A key belongs to
// two sets of seven places and lies in one of the fourteen; it never moves. A new
// key takes the place with the least debt in its first set or, when over half of
// that set is in debt, in the one with fewer debtors. That spreads keys so evenly
// that none in debt is forgotten before the whole table is over half full.
type table []set

const ways = 7

// busy stands in for a tat while a decision over several keys holds it, and while
// its place changes hands.
const busy = math.MaxInt64

// set is two cache lines. The first changes only when a key comes in, so that
// cores which take from known keys contend for the second alone, and cores which
// only read contend for nothing.
type set struct {
	keys    [ways]atomic.Uint64 // 0 is an empty place
	version atomic.Int64        // grows when a key changed, before the new one has its tat
	mu      sync.Mutex          // held to bring in a key whose first set this is
	tats    [ways]atomic.Int64
}

// place says where a key is. The numbers are indexes of sets and ways.
type place struct {
	key  uint64
	sets [2]int // where it may be
	set  int    // where it is
	way  int    // -1: nowhere
}

func (p *place) found() bool { return p.way >= 0 }

func (t table) find(p *place) {
	n := uint64(len(t))
	a, _ := bits.Mul64(p.key, n)
	b, _ := bits.Mul64(bits.RotateLeft64(p.key, 32), n)
	p.sets = [2]int{int(a), int(b)}
	for _, set := range p.sets {
		keys := &t[set].keys
		for way := range keys {
			if keys[way].Load() == p.key {
				p.set, p.way = set, way
				return
			}
		}
	}
	p.way = -1
}

// look finds a key and reads its tat, without a lock: 0 if it is nowhere. It reports
// false when the tat is held, or may be that of another key by now.
func (t table) look(p *place) (tat int64, ok bool) {
	t.find(p)
	if !p.found() {
		return 0, true
	}
	s := &t[p.set]
	version := s.version.Load()
	if s.keys[p.way].Load() != p.key {
		return 0, false
	}
	// If this is the tat of a later key, the version has grown since.
	tat = s.tats[p.way].Load()
	return tat, tat != busy && s.version.Load() == version
}

// swap changes the tat at a place that was found. It reports false when the tat is
// not the old one any more. That is also how it notices that the place went to
// another key, whose tat would have to be the same to the nanosecond.
func (t table) swap(p *place, old, tat int64) bool {
	return t[p.set].tats[p.way].CompareAndSwap(old, tat)
}

// release gives back a tat that was swapped for busy.
func (t table) release(p *place, tat int64) { t[p.set].tats[p.way].Store(tat) }

// insert gives a key that was not found a place whose tat is held. fresh is what
// the tat would be without a charge: in the past, and one that no other key of the
// set has had, on which swap relies. forgot says that another key lost its place
// while in debt. It reports false when someone else was first with the key or the
// place.
func (t table) insert(p *place, now int64) (fresh int64, forgot, ok bool) {
	mu := &t[p.sets[0]].mu
	mu.Lock()
	defer mu.Unlock()
	if t.find(p); p.found() {
		return 0, false, false
	}
	// Who holds a place may be waiting for this lock, so nobody waits for a place
	// here.
	tat := t.room(p, now)
	if tat == busy || !t.swap(p, tat, busy) {
		return 0, false, false
	}
	s := &t[p.set]
	s.keys[p.way].Store(p.key)
	return -s.version.Add(1), tat > now, true
}

// room sets p to the place that a new key is to have, and returns the tat there.
func (t table) room(p *place, now int64) (tat int64) {
	fewest := ways + 1
	for _, set := range p.sets {
		debtors, way, least := 0, 0, int64(math.MaxInt64)
		for i := range t[set].tats {
			v := t[set].tats[i].Load()
			if v > now {
				debtors++
			}
			if v < least {
				way, least = i, v
			}
		}
		if debtors < fewest || debtors == ways && least < tat {
			p.set, p.way, fewest, tat = set, way, debtors, least
		}
		if debtors <= ways/2 {
			break
		}
	}
	return tat
}
