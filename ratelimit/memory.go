package ratelimit

import (
	"context"
	"hash/maphash"
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
	cost int64
	tat  int64
	next int64
}

func (m *Memory) Take(_ context.Context, takes []Take) (Decision, error) {
	if len(takes) > MaxTakes {
		return Decision{}, Check(takes)
	}
	var array [MaxTakes]demand
	demands := array[:len(takes)]
	for i := range takes {
		pace, err := takes[i].pace()
		if err != nil {
			return Decision{}, err
		}
		demands[i].pace, demands[i].cost = pace, takes[i].Cost
		demands[i].key = m.key(&takes[i])
	}

	now := int64(time.Since(m.start))
	for {
		certain, spends := true, false
		for i := range demands {
			d := &demands[i]
			d.place, d.tat = m.table.find(d.key), now
			if d.way >= 0 {
				var ok bool
				d.tat, ok = m.table.peek(d.place)
				certain = certain && ok
			}
			spends = spends || d.cost > 0
		}
		// Denials and peeks write nothing, so they lock nothing: what was read
		// of one bucket is enough to deny.
		if certain {
			if d := decide(now, takes, demands); !d.Allowed || !spends {
				return d, nil
			}
		}
		if d, ok := m.charge(now, takes, demands); ok {
			return d, nil
		}
	}
}

// charge decides and writes in one step. It reports false, with nothing written,
// when a key came or went after it was found.
func (m *Memory) charge(now int64, takes []Take, demands []demand) (Decision, bool) {
	var held locks
	for i := range demands {
		held.add(demands[i].place)
	}
	m.table.lock(&held)
	defer m.table.unlock(&held)
	for i := range demands {
		d := &demands[i]
		if !m.table.held(d.place) {
			return Decision{}, false
		}
		if d.way >= 0 {
			d.tat = m.table.at(d.place).Load()
		}
	}
	decision := decide(now, takes, demands)
	if !decision.Allowed {
		return decision, true
	}
	for i := range demands {
		if d := &demands[i]; d.cost > 0 && m.table.put(d.place, d.next, now) {
			m.forgotten.Add(1)
		}
	}
	return decision, true
}

// decide sets each demand's next from its tat.
func decide(now int64, takes []Take, demands []demand) Decision {
	var states [MaxTakes]State
	for i := range demands {
		d := &demands[i]
		for j := range i {
			if demands[j].key == d.key {
				d.tat = demands[j].next
			}
		}
		d.next, states[i] = d.take(now, d.tat, d.cost)
	}
	decision := Decide(takes, states)
	if !decision.Allowed {
		for i := range demands {
			if d := &demands[i]; states[i].Wait == 0 {
				_, decision.States[i] = d.take(now, d.tat, 0)
			}
		}
	}
	return decision
}

// key is never 0, which the table has for an empty place.
func (m *Memory) key(t *Take) uint64 {
	type name struct{ policy, bucket string }
	return max(1, maphash.Comparable(m.seed, name{t.Policy.Name, t.Bucket}))
}
