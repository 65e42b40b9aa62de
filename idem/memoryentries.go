package idem

import (
	"maps"
	"slices"
	"unsafe"
)

// entry is one key of a Memory: a claim while it is held, a settled record
// afterwards. There may be hundreds of thousands, and each cycle of the garbage
// collector marks all that they point to. So entries lie in slabs and refer to
// each other by number: maps, lists and queues of numbers are not scanned.
type entry struct {
	payload, summary []byte // once settled
	tenant           *account
	use              *use // while it is held or unknown, if the claim has an Account
	key              Key
	fingerprint      [32]byte
	token            ClaimToken
	leaseEnds        int64
	settled          int64  // when that was
	number, place    uint32 // place is that in Memory.expiry
	older, newer     uint32 // once settled: the tenant's neighbours; 0 is none
	attempt          int32
	held             bool
	outcome          Outcome // once settled
	retained         bool    // once settled: payload is all of it
}

// entryTable holds the entries of a Memory. Their numbers are 1 to last. Entry 0
// stands for none: what is written to it counts for nothing.
type entryTable struct {
	numbers map[Key]uint32
	slabs   []*[slabSize]entry
	last    uint32
	free    uint32 // the first of the dropped entries, chained by newer
	peak    int    // of entries, since the table was made
}

// slabSize is how many entries are allocated at once: as many as 32 KiB hold,
// which the allocator does not round up.
const slabSize = 32 << 10 / uint32(unsafe.Sizeof(entry{}))

func (t *entryTable) at(number uint32) *entry { return &t.slabs[number/slabSize][number%slabSize] }

func (t *entryTable) add(key Key) *entry {
	number := t.free
	if number != 0 {
		t.free = t.at(number).newer
	} else {
		t.last++
		number = t.last
		if int(number/slabSize) == len(t.slabs) {
			t.slabs = append(t.slabs, new([slabSize]entry))
		}
	}
	t.numbers[key] = number
	t.peak = max(t.peak, len(t.numbers))
	e := t.at(number)
	*e = entry{key: key, number: number}
	return e
}

func (t *entryTable) remove(e *entry) {
	delete(t.numbers, e.key)
	*e = entry{newer: t.free, number: e.number}
	t.free = e.number
}

// compact gives back the memory of a peak: maps and slices never shrink by
// themselves. Each call of the Store ends with it. Nothing else moves an entry,
// so until then a pointer to one stays good.
func (m *Memory) compact() {
	old := m.entries
	if len(old.numbers)+int(slabSize) > old.peak/4 {
		return
	}
	m.entries = entryTable{numbers: make(map[Key]uint32, len(old.numbers))}
	moved := make([]uint32, old.last+1) // the new numbers, by the old ones
	for i, item := range m.expiry.items {
		from := old.at(item.element)
		e := m.entries.add(from.key)
		moved[from.number], from.number = e.number, e.number
		*e = *from
		if e.use != nil {
			e.use.entry = e.number
		}
		m.expiry.items[i].element = e.number
	}
	for i := range m.expiry.items {
		e := m.entries.at(m.expiry.items[i].element)
		e.older, e.newer = moved[e.older], moved[e.newer]
	}
	for _, a := range m.accounts {
		a.oldest, a.newest, a.oldestBody = moved[a.oldest], moved[a.newest], moved[a.oldestBody]
	}
	m.accounts = maps.Collect(maps.All(m.accounts)) // maps.Clone would keep the size
	m.expiry.items, m.largest.items = slices.Clone(m.expiry.items), slices.Clone(m.largest.items)
}
