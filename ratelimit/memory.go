package ratelimit

import (
	"context"
	"hash/maphash"
	"math/bits"
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

func (m *Memory) Take(_ context.Context, takes []Take) (d Decision, err error) {
	if len(takes) != 1 {
		return m.several(takes)
	}
	t := &takes[0]
	now := m.now()
	pace, err := t.pace()
	if err != nil {
		return d, err
	}
	p := place{key: m.key(t)}
	for {
		tat, ok := m.table.look(&p)
		if !ok {
			runtime.Gosched() // to whoever holds the tat
			now = m.now()
			continue
		}
		// A denial or a look leaves the tat as it is and writes nothing.
		next, wait := pace.advance(now, tat, t.Cost)
		if next != tat && !m.replace(&p, now, tat, next) {
			continue
		}
		d.Allowed, d.Takes = wait == 0, 1
		d.States[0] = pace.state(now, next)
		d.States[0].Wait = wait
		return d, nil
	}
}

// replace writes next if the tat at p, as look said it, still stands.
func (m *Memory) replace(p *place, now, tat, next int64) bool {
	if p.found() {
		return m.table.swap(p, tat, next)
	}
	_, ok := m.insert(p, now)
	if ok {
		m.table.release(p, next)
	}
	return ok
}

// insert is that of the table, and counts who was forgotten.
func (m *Memory) insert(p *place, now int64) (fresh int64, ok bool) {
	fresh, forgot, ok := m.table.insert(p, now)
	if forgot {
		m.forgotten.Add(1)
	}
	if !ok {
		runtime.Gosched() // to whoever was first
	}
	return fresh, ok
}

// Refund gives back what an admitted take charged, as if it had never been made.
// It is for a take that reserved what was then not needed.
func (m *Memory) Refund(t Take) {
	pace, err := t.pace()
	if err != nil {
		return // it was never admitted
	}
	p := place{key: m.key(&t)}
	for {
		now := m.now()
		tat, ok := m.table.look(&p)
		if !ok {
			runtime.Gosched() // to whoever holds the tat
			continue
		}
		debt := pace.debt(now, tat) // none when the key was not found
		back := min(debt, pace.interval*uint64(t.Cost))
		if back == 0 || m.table.swap(&p, tat, now+int64(debt-back)) {
			return
		}
	}
}

// key is never 0, which the table has for an empty place.
func (m *Memory) key(t *Take) uint64 {
	return max(1, maphash.String(m.seed, t.Bucket)^bits.RotateLeft64(maphash.String(m.seed, t.Policy.Name), 17))
}

func (m *Memory) now() int64 { return int64(time.Since(m.start)) }
