package ratelimit

import (
	"context"
	"hash/maphash"
	"runtime"
	"sync/atomic"
	"time"
)

// DefaultKeys is how many keys a Memory of NewMemory is made for.
const DefaultKeys = 100_000

// Memory is a Store in the memory of this process, of fixed size.
//
// A bucket that has refilled needs no memory. When there are more buckets in debt
// than there is room for, a new one takes the place of the one that is nearest to
// full among the fourteen whose place it could have, so that a flood of fresh
// buckets does not reset the exhausted ones. Debt is compared as time: of an
// hourly limit and a limit per second, the latter is forgotten first. Where that
// matters, give each its own Memory.
//
// Buckets are kept by a 64-bit hash with a random seed. Two of 100,000 buckets
// share a counter by accident once in 3 billion processes.
//
// Take does not allocate, starts nothing, never looks at its context, and works
// on the monotonic clock: setting the time of day changes no limit. Its only
// errors are those of Check.
type Memory struct {
	seed      maphash.Seed
	start     time.Time
	table     table
	forgotten atomic.Int64
}

// NewMemory returns a Memory for DefaultKeys keys: 3.2 MB, of which the operating
// system hands out what is touched.
func NewMemory() *Memory { return NewMemorySize(DefaultKeys) }

// NewMemorySize returns a Memory for the given number of buckets in debt at one
// time, 32 bytes each. It panics if keys is not positive.
func NewMemorySize(keys int) *Memory {
	if keys <= 0 {
		panic("ratelimit: NewMemorySize: not a positive number of keys")
	}
	return &Memory{
		seed:  maphash.MakeSeed(),
		start: time.Now(),
		table: make(table, (keys+3)/4),
	}
}

// Forgotten counts the buckets that were dropped while in debt, each of which
// then began with a full burst. If it keeps growing, the Memory is too small.
func (m *Memory) Forgotten() int64 { return m.forgotten.Load() }

// demand is a take on its way to a decision.
type demand struct {
	pace
	place
	first int // the first demand of the same key, often this one
	cost  int64
	tat   int64 // before this take
	next  int64 // after it; in the first of a key, after all takes of that key
	wait  time.Duration
}

func (m *Memory) Take(_ context.Context, takes []Take) (d Decision, err error) {
	if len(takes) > MaxTakes {
		return d, Check(takes)
	}
	var array [MaxTakes]demand
	demands, spends := array[:len(takes)], false
	for i := range demands {
		if demands[i].pace, err = takes[i].pace(); err != nil {
			return d, err
		}
		demands[i].cost, demands[i].key = takes[i].Cost, m.key(&takes[i])
		spends = spends || takes[i].Cost > 0
	}
	for {
		now := int64(time.Since(m.start))
		if !m.read(demands) {
			runtime.Gosched() // to whoever holds the tat
			continue
		}
		admitted := admit(now, demands)
		if admitted && spends && !m.charge(now, demands) {
			continue
		}
		if !admitted {
			m.trim(demands)
		}
		for i := range demands {
			first := &demands[demands[i].first]
			tat := first.tat
			if admitted {
				tat = first.next
			}
			d.States[i] = demands[i].state(now, tat)
			d.States[i].Wait = demands[i].wait
		}
		d.judge(takes)
		return d, nil
	}
}

// Refund gives back what an admitted take charged, as if it had never been made.
// It is for a take that reserved what was then not needed.
func (m *Memory) Refund(t Take) {
	pace, err := t.pace()
	if err != nil {
		return // it was never admitted
	}
	p := place{key: m.key(&t)}
	for m.table.find(&p); p.found(); m.table.find(&p) {
		now := int64(time.Since(m.start))
		tat, ok := m.table.tat(&p)
		if !ok {
			runtime.Gosched() // to whoever holds the tat
			continue
		}
		debt := pace.debt(now, tat)
		back := min(debt, pace.interval*uint64(t.Cost))
		if back == 0 || m.table.swap(&p, tat, now+int64(debt-back)) {
			return
		}
	}
}

// read finds each key and its tat. It reports false when a tat is not to be had
// for the moment.
func (m *Memory) read(demands []demand) bool {
	for i := range demands {
		d := &demands[i]
		m.table.find(&d.place)
		d.tat = 0
		if d.found() {
			var ok bool
			if d.tat, ok = m.table.tat(&d.place); !ok {
				return false
			}
		}
	}
	return true
}

// admit says whether every take fits, each after those before it.
func admit(now int64, demands []demand) bool {
	admitted := true
	for i := range demands {
		d := &demands[i]
		for d.first = 0; demands[d.first].key != d.key; d.first++ {
		}
		if d.first < i {
			d.tat = demands[d.first].next
		}
		d.next, d.wait = d.advance(now, d.tat, d.cost)
		demands[d.first].next = d.next
		admitted = admitted && d.wait == 0
	}
	return admitted
}

// charge writes what admit has decided, if every tat is still the one it saw, and
// reports false with nothing charged if one is not.
func (m *Memory) charge(now int64, demands []demand) bool {
	if d := &demands[0]; len(demands) == 1 && d.found() {
		return m.table.swap(&d.place, d.tat, d.next)
	}
	for i := range demands {
		if d := &demands[i]; d.spends(i) && !m.hold(d, now) {
			for j := range i {
				if d := &demands[j]; d.spends(j) {
					m.table.release(&d.place, d.tat)
				}
			}
			runtime.Gosched() // to whoever else holds one of them
			return false
		}
	}
	for i := range demands {
		if d := &demands[i]; d.spends(i) {
			m.table.release(&d.place, d.next)
		}
	}
	return true
}

// trim brings a tat beyond a full burst, which a larger plan left behind, down to
// one, so that the wait of its denial is true. Nothing else is written at a denial.
func (m *Memory) trim(demands []demand) {
	for i := range demands {
		if d := &demands[i]; d.wait > 0 && d.next != d.tat {
			m.table.swap(&demands[d.first].place, d.tat, d.next)
		}
	}
}

// hold keeps everybody else from the tat of d until it is released.
func (m *Memory) hold(d *demand, now int64) bool {
	if d.found() {
		return m.table.swap(&d.place, d.tat, busy)
	}
	fresh, forgot, ok := m.table.insert(&d.place, now)
	if ok {
		d.tat = fresh
	}
	if forgot {
		m.forgotten.Add(1)
	}
	return ok
}

// spends says whether d, at index i, is the demand by which its key is written.
func (d *demand) spends(i int) bool { return d.first == i && d.next != d.tat }

// key is never 0, which the table has for an empty place.
func (m *Memory) key(t *Take) uint64 {
	type name struct{ policy, bucket string }
	return max(1, maphash.Comparable(m.seed, name{t.Policy.Name, t.Bucket}))
}
