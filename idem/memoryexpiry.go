package idem

import (
	"container/heap"
	"math"
	"slices"
	"time"
)

// expiryQueue is a heap of the numbers of entries, the one that expires first
// on top. It knows the place of each, so that a freed key is taken out at once.
//
// New entries nearly always expire last, and moving one of those there takes one
// comparison.
type expiryQueue struct {
	expiring []expiring
	places   []uint32 // in expiring, by the number of the entry
}

// expiring holds the time beside the number: comparing two of them does not
// touch the entries.
type expiring struct {
	at     int64
	number uint32
}

// Len, Less, Swap, Push and Pop are for package heap. Push is not used: its
// argument would be allocated.
func (q *expiryQueue) Len() int           { return len(q.expiring) }
func (q *expiryQueue) Less(i, j int) bool { return q.expiring[i].at < q.expiring[j].at }
func (q *expiryQueue) Push(any)           {}

func (q *expiryQueue) Swap(i, j int) {
	x, y := q.expiring[i], q.expiring[j]
	q.expiring[i], q.expiring[j] = y, x
	q.places[x.number], q.places[y.number] = uint32(j), uint32(i)
}

func (q *expiryQueue) Pop() any {
	q.expiring = q.expiring[:len(q.expiring)-1]
	return nil
}

// add adds an entry that never expires, as long as it is not moved.
func (q *expiryQueue) add(number uint32) {
	if n := int(number) + 1; n > len(q.places) {
		q.places = slices.Grow(q.places, n-len(q.places))[:n]
	}
	q.places[number] = uint32(len(q.expiring))
	q.expiring = append(q.expiring, expiring{math.MaxInt64, number})
}

// move gives an entry of the queue another time.
func (q *expiryQueue) move(number uint32, at int64) {
	place := int(q.places[number])
	q.expiring[place].at = at
	heap.Fix(q, place)
}

func (q *expiryQueue) remove(number uint32) { heap.Remove(q, int(q.places[number])) }

// renumber tells the queue that an entry has another number.
func (q *expiryQueue) renumber(from, to uint32) {
	q.places[to] = q.places[from]
	q.expiring[q.places[to]].number = to
}

// clip frees the room that entries from 1 to last do not need.
func (q *expiryQueue) clip(last uint32) {
	q.expiring, q.places = slices.Clone(q.expiring), slices.Clone(q.places[:last+1])
}

// expired returns the number of an entry whose time has come, or 0.
func (q *expiryQueue) expired(now int64) uint32 {
	if len(q.expiring) == 0 || q.expiring[0].at > now {
		return 0
	}
	return q.expiring[0].number
}

// next returns how long it is until an entry expires, or 0 if none does.
func (q *expiryQueue) next(now int64) time.Duration {
	if len(q.expiring) == 0 || q.expiring[0].at == math.MaxInt64 {
		return 0
	}
	return time.Duration(max(q.expiring[0].at-now, 1))
}

func (q *expiryQueue) at(number uint32) int64 { return q.expiring[q.places[number]].at }
