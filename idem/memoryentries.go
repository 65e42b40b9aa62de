package idem

import (
	"container/heap"
	"maps"
	"slices"
)

// entry is one key of a Memory: a claim while it is held, a settled record
// afterwards. There may be hundreds of thousands, and each cycle of the garbage
// collector marks all that they point to. So entries lie in slabs and refer to
// each other by number: maps, lists and queues of numbers are not scanned.
type entry struct {
	payload, summary []byte // once settled
	owner            *account
	key              Key
	fingerprint      Fingerprint
	token            ClaimToken
	leaseEnds        int64
	settled          int64  // when that was
	charged          int64  // bytes
	number, place    uint32 // place is that in Memory.expiry
	older, newer     uint32 // once settled: the owner's neighbours; 0 is none
	attempt          int32
	held             bool
	outcome          Outcome // once settled
	retained         bool    // once settled: payload is all of it
}

// entryTable holds the entries of a Memory. Their numbers are 1 to last, so
// that 0 is none.
type entryTable struct {
	numbers map[Key]uint32
	slabs   []*[slabSize]entry
	last    uint32
	free    uint32 // the first of the dropped entries, chained by newer
	peak    int    // of entries, since the table was made
}

// slabSize is how many entries are allocated at once.
const slabSize = 128

func (t *entryTable) at(number uint32) *entry {
	return &t.slabs[number/slabSize][number%slabSize]
}

// add returns a new entry.
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
	if len(old.numbers)+slabSize > old.peak/4 {
		return
	}
	m.entries = entryTable{numbers: make(map[Key]uint32, len(old.numbers))}
	moved := make([]uint32, old.last+1) // the new numbers, by the old ones
	for i, item := range m.expiry.items {
		from := old.at(item.element)
		e := m.entries.add(from.key)
		moved[from.number], from.number = e.number, e.number
		*e = *from
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

// queue is a heap: the element with the lowest rank is the first of it.
type queue[E any] struct {
	items []ranked[E]
	place func(E) *uint32 // where an element keeps its index in items
}

// ranked has the rank beside the element: comparing two of them does not touch
// the elements.
type ranked[E any] struct {
	rank    int64
	element E
}

// Len, Less, Swap, Push and Pop are for package heap. Push is not used: its
// argument would be allocated.
func (q *queue[E]) Len() int           { return len(q.items) }
func (q *queue[E]) Less(i, j int) bool { return q.items[i].rank < q.items[j].rank }
func (q *queue[E]) Push(any)           {}

func (q *queue[E]) Swap(i, j int) {
	q.items[i], q.items[j] = q.items[j], q.items[i]
	*q.place(q.items[i].element), *q.place(q.items[j].element) = uint32(i), uint32(j)
}

func (q *queue[E]) Pop() any {
	last := len(q.items) - 1
	q.items[last] = ranked[E]{}
	q.items = q.items[:last]
	return nil
}

func (q *queue[E]) add(e E, rank int64) {
	*q.place(e) = uint32(len(q.items))
	q.items = append(q.items, ranked[E]{rank, e})
	heap.Fix(q, len(q.items)-1)
}

// move gives an element of the queue another rank.
func (q *queue[E]) move(e E, rank int64) {
	place := int(*q.place(e))
	q.items[place].rank = rank
	heap.Fix(q, place)
}

func (q *queue[E]) remove(e E) { heap.Remove(q, int(*q.place(e))) }

func (q *queue[E]) rank(e E) int64 { return q.items[*q.place(e)].rank }
