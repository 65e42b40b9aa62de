package idem

import (
	"maps"
	"slices"
)

// entry is one key of a Memory: a claim while it is held, a settled record
// afterwards. There may be hundreds of thousands, and each cycle of the garbage
// collector marks all that they point to. So entries lie in slabs and refer to
// each other by number: maps, lists and queues of numbers are not scanned. The
// pointers come first, to be in one cache line.
type entry struct {
	payload      []byte // once settled
	summary      []byte // once settled
	owner        *account
	key          Key
	fingerprint  Fingerprint
	token        ClaimToken
	leaseEnds    int64
	number       uint32
	older, newer uint32 // once settled: neighbours in a useList
	attempt      int32
	held         bool
	outcome      Outcome // once settled
	retained     bool    // once settled: payload is all of it
}

// slabSize is how many entries are allocated at once.
const slabSize = 128

// entryTable holds the entries of a Memory. Their numbers are 1 to last, so
// that 0 is none.
type entryTable struct {
	numbers map[Key]uint32
	slabs   []*[slabSize]entry
	last    uint32
	peak    uint32   // of last since compact made the maps and slices smaller
	dropped []uint32 // numbers without an entry; compact fills them
}

func (t *entryTable) at(number uint32) *entry {
	return &t.slabs[number/slabSize][number%slabSize]
}

// add returns a new entry.
func (t *entryTable) add(key Key) *entry {
	if len(t.dropped) == 0 {
		t.last++
		t.peak = max(t.peak, t.last)
		t.dropped = append(t.dropped, t.last)
		if int(t.last/slabSize) == len(t.slabs) {
			t.slabs = append(t.slabs, new([slabSize]entry))
		}
	}
	number := t.dropped[len(t.dropped)-1]
	t.dropped = t.dropped[:len(t.dropped)-1]
	t.numbers[key] = number
	e := t.at(number)
	e.key, e.number = key, number
	return e
}

func (t *entryTable) remove(e *entry) {
	delete(t.numbers, e.key)
	t.dropped = append(t.dropped, e.number)
	*e = entry{}
}

// compact gives dropped numbers to the last entries, and frees what a peak has
// left. Each call of the Store ends with it. Nothing else moves an entry, so
// until then a pointer to one stays good.
func (m *Memory) compact() {
	t := &m.entries
	// From the highest on: then last is either dropped itself or in use.
	slices.Sort(t.dropped)
	for _, number := range slices.Backward(t.dropped) {
		if number != t.last {
			m.move(t.at(t.last), number)
		}
		t.last--
	}
	t.dropped = t.dropped[:0]
	// One slab is spare: a claim that comes and goes allocates none.
	if needed := int(t.last/slabSize) + 2; needed < len(t.slabs) {
		t.slabs = slices.Delete(t.slabs, needed, len(t.slabs))
	}
	// Maps and slices never shrink by themselves, and maps.Clone keeps their
	// size. For the last quarter of 300,000 keys this takes 8 ms.
	if t.last+slabSize < t.peak/4 {
		t.peak = t.last
		t.numbers = maps.Collect(maps.All(t.numbers))
		m.owners = maps.Collect(maps.All(m.owners))
		m.withPayloads = maps.Collect(maps.All(m.withPayloads))
		m.expiry.clip(t.last)
	}
}

// move gives an entry a number that no entry has.
func (m *Memory) move(e *entry, number uint32) {
	t := &m.entries
	t.numbers[e.key] = number
	m.expiry.renumber(e.number, number)
	if !e.held {
		older, newer := t.at(e.older), t.at(e.newer)
		older.newer, newer.older = number, number
		if l := e.owner.list(e); *l == e.number {
			*l = number
		}
	}
	e.number = number
	*t.at(number) = *e
	*e = entry{}
}

// useList orders settled entries by their last use, in a ring: it is the number
// of the one used last, whose newer neighbour is the one not used for longest.
// The zero useList is empty.
type useList = uint32

// push adds an entry to l as the one used last.
func (t *entryTable) push(l *useList, e *entry) {
	e.older, e.newer = e.number, e.number
	if *l != 0 {
		newest := t.at(*l)
		e.older, e.newer = newest.number, newest.newer
		t.at(newest.newer).older = e.number
		newest.newer = e.number
	}
	*l = e.number
}

func (t *entryTable) unlink(l *useList, e *entry) {
	t.at(e.older).newer = e.newer
	t.at(e.newer).older = e.older
	switch {
	case e.newer == e.number:
		*l = 0
	case *l == e.number:
		*l = e.older
	}
}

// oldest returns the entry that was not used for longest, or nil.
func (t *entryTable) oldest(l useList) *entry {
	if l == 0 {
		return nil
	}
	return t.at(t.at(l).newer)
}
