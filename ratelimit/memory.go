package ratelimit

import (
	"context"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// Memory is a Store in the memory of this process, of bounded size.
//
// A bucket that has refilled needs no memory. Each bucket may lie in one of
// sixteen places. When these are full, the bucket that has spent least is
// dropped first. What is spent counts as the time in which it comes back: a
// bucket with a limit per second is dropped before one with an hourly limit.
// Where that matters, give each its own Memory.
//
// A bucket is known by a 64-bit hash with a random seed. Two of 100,000 buckets
// share a counter by accident in one of 3 billion processes.
//
// Take allocates only when it grows, starts nothing and ignores its context. It
// uses the monotonic clock: setting the time of day changes no limit. It returns
// no errors but those of Check.
//
// The zero Memory is ready to use, and has room for 100,000 buckets in debt at one
// time, but for a few that by chance find all their places taken. It begins with
// 12 kB and grows to 3.2 MB. Where more are in debt, count in Redis.
type Memory struct {
	once   sync.Once
	seed   maphash.Seed
	start  time.Time
	shards []shard // a power of two of them
}

func (m *Memory) begin() { m.beginWith(100_000) }

func (m *Memory) beginWith(buckets int) {
	// In a bubble of testing/synctest it is the year 2000, and no time may be
	// negative.
	m.start = time.Now().Add(-50 * 365 * 24 * time.Hour)
	m.seed, m.shards = maphash.MakeSeed(), newShards(buckets)
}

// pending is a charge that is not decided yet.
type pending struct {
	pace
	key   uint64
	shard *shard
	entry *entry // nil: the bucket is new
	first int    // the index of the first charge of the same bucket
	tat   int64  // before this charge
	next  int64  // after it; in the first of a bucket, after all of them
	wait  time.Duration
}

// Take decides charges, as Store says. It is one step because it holds the
// locks of all buckets from the first read to the last write.
func (m *Memory) Take(_ context.Context, charges []Charge) (d Decision, err error) {
	m.once.Do(m.begin)
	if len(charges) != 1 { // of one charge, pace checks all
		if err := Check(charges); err != nil {
			return d, err
		}
	}
	var array [MaxCharges]pending
	var indexes [MaxCharges]int
	ps, locks := array[:len(charges)], indexes[:len(charges)]
	for i := range ps {
		p := &ps[i]
		if p.pace, err = charges[i].pace(); err != nil {
			return d, err
		}
		p.key = m.key(&charges[i], p.pace)
		locks[i] = m.index(p.key)
		p.shard = &m.shards[locks[i]]
	}
	// Every call locks in ascending order, each shard once. So no two calls
	// wait for each other.
	if len(locks) > 1 {
		slices.Sort(locks)
		locks = slices.Compact(locks)
	}
	// Read the clock before locking, to hold the locks for less time. Another
	// call may get them first with a later time. Then this one takes over that
	// time: what the other has dropped was no longer in debt by then.
	now := m.now()
	for _, i := range locks {
		s := &m.shards[i]
		s.mu.Lock()
		now = max(now, s.latest)
	}
	admitted := read(ps, charges, now)
	if admitted {
		m.commit(ps, now)
	}
	for _, i := range locks {
		s := &m.shards[i]
		s.latest = now
		s.mu.Unlock()
	}
	for i := range ps {
		tat := ps[ps[i].first].tat
		if admitted {
			tat = ps[ps[i].first].next
		}
		d.States[i] = ps[i].state(now, tat)
		d.States[i].Wait = ps[i].wait
	}
	d.summarize(charges)
	return d, nil
}

// read works out the effect of each charge, after those before it, and whether
// all of them are admitted.
func read(ps []pending, charges []Charge, now int64) (admitted bool) {
	admitted = true
	for i := range ps {
		p := &ps[i]
		for ps[p.first].key != p.key {
			p.first++
		}
		if p.first < i {
			p.tat = ps[p.first].next
		} else if p.entry = p.shard.find(p.key); p.entry != nil {
			p.tat = p.entry.tat
		}
		p.next, p.wait = p.advance(now, p.tat, charges[i].Cost)
		ps[p.first].next = p.next
		admitted = admitted && p.wait == 0
	}
	return admitted
}

// commit writes what read has worked out. The caller holds the locks, as for
// read.
func (m *Memory) commit(ps []pending, now int64) {
	for i := range ps {
		p := &ps[i]
		if p.first != i || p.next == p.tat {
			continue
		}
		// A new bucket of this decision may have replaced this one since read,
		// or moved it. One that was replaced gets another place, with its debt.
		if p.entry != nil && p.entry.key != p.key {
			p.entry = p.shard.find(p.key)
		}
		if p.entry == nil {
			p.entry = p.shard.place(p.key, now)
		}
		*p.entry = entry{p.key, p.next}
	}
}

// key is a hash of the same facts as Charge.AppendKey. It is never 0, the key
// of an empty place.
func (m *Memory) key(c *Charge, p pace) uint64 {
	bucket, policy := maphash.String(m.seed, c.Bucket), maphash.String(m.seed, c.Policy.Name)
	// The product changes every bit of the hash for a small change of a limit.
	// The constant is 2^64 divided by the golden ratio. Without it a p.full that
	// is a power of two would only shift the other factor.
	high, low := bits.Mul64(policy^p.interval, p.full^0x9e3779b97f4a7c15)
	return max(1, bucket^high^low)
}

// index is that of the shard of a key.
func (m *Memory) index(key uint64) int { return int(key & uint64(len(m.shards)-1)) }

func (m *Memory) now() int64 { return int64(time.Since(m.start)) }
