package ratelimit

import (
	"runtime"
	"time"
)

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

// several is Take for other than one take.
//
// It is optimistic: it reads every tat, decides, holds every tat that is still the
// one it read, and only then writes. Nobody waits for one while holding another, so
// no two calls wait for each other.
func (m *Memory) several(takes []Take) (d Decision, err error) {
	if err := Check(takes); err != nil {
		return d, err
	}
	var array [MaxTakes]demand
	demands := array[:len(takes)]
	for i := range demands {
		d := &demands[i]
		d.pace, _ = takes[i].pace() // Check has seen the error
		d.cost, d.key = takes[i].Cost, m.key(&takes[i])
	}
	for {
		now := m.now()
		admitted, ok := m.weigh(now, demands)
		if !ok {
			runtime.Gosched() // to whoever holds the tat
			continue
		}
		// A denial or a look writes nothing, and what was read is enough for it.
		if admitted && !m.charge(now, demands) {
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

// weigh reads the tat of each take and says whether all of them fit, each after
// those before it. It reports false when a tat is not to be had for the moment.
func (m *Memory) weigh(now int64, demands []demand) (admitted, ok bool) {
	admitted = true
	for i := range demands {
		d := &demands[i]
		for d.first = 0; demands[d.first].key != d.key; d.first++ {
		}
		if d.first < i {
			d.tat = demands[d.first].next
		} else if d.tat, ok = m.table.look(&d.place); !ok {
			return false, false
		}
		d.next, d.wait = d.advance(now, d.tat, d.cost)
		demands[d.first].next = d.next
		admitted = admitted && d.wait == 0
	}
	return admitted, true
}

// charge writes what weigh has decided, if every tat is still the one it saw, and
// reports false with nothing charged if one is not.
func (m *Memory) charge(now int64, demands []demand) bool {
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
	fresh, ok := m.insert(&d.place, now)
	if ok {
		d.tat = fresh
	}
	return ok
}

// spends says whether d, at index i, is the demand by which its key is written.
func (d *demand) spends(i int) bool { return d.first == i && d.next != d.tat }
