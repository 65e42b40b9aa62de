package idem

import (
	"math"
	"time"
)

// expiryQueue is a binary heap of entries, the one that expires first on top.
// Each entry knows its place, so that a freed key is taken out at once.
//
// New entries nearly always expire last, and adding one of those takes one
// comparison.
type expiryQueue []expiring

// expiring holds the time beside the pointer: comparing two of them does not
// touch the entries.
type expiring struct {
	at    int64
	entry *entry
}

func (q *expiryQueue) add(e *entry, at int64) {
	*q = append(*q, expiring{})
	q.up(len(*q)-1, expiring{at, e})
}

// move gives an entry of the queue another time.
func (q expiryQueue) move(e *entry, at int64) {
	i := int(e.place)
	if at < q[i].at {
		q.up(i, expiring{at, e})
	} else {
		q.down(i, expiring{at, e})
	}
}

func (q *expiryQueue) remove(e *entry) {
	last := len(*q) - 1
	moved := (*q)[last]
	(*q)[last] = expiring{}
	*q = (*q)[:last]
	if e != moved.entry {
		// The last entry takes the place of e. It is from another branch of the
		// heap, so it may belong above or below.
		moved.entry.place = e.place
		q.move(moved.entry, moved.at)
	}
}

// expired returns an entry whose time has come, or nil.
func (q expiryQueue) expired(now int64) *entry {
	if len(q) == 0 || q[0].at > now {
		return nil
	}
	return q[0].entry
}

// next returns how long it is until an entry expires, or 0 if none does.
func (q expiryQueue) next(now int64) time.Duration {
	if len(q) == 0 || q[0].at == math.MaxInt64 {
		return 0
	}
	return time.Duration(max(q[0].at-now, 1))
}

func (q expiryQueue) at(e *entry) int64 { return q[e.place].at }

func (q expiryQueue) set(i int, x expiring) {
	q[i] = x
	x.entry.place = int32(i)
}

// up puts x at place i or nearer to the top.
func (q expiryQueue) up(i int, x expiring) {
	for i > 0 {
		parent := (i - 1) / 2
		if q[parent].at <= x.at {
			break
		}
		q.set(i, q[parent])
		i = parent
	}
	q.set(i, x)
}

// down puts x at place i or farther from the top.
func (q expiryQueue) down(i int, x expiring) {
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if right := child + 1; right < len(q) && q[right].at < q[child].at {
			child = right
		}
		if x.at <= q[child].at {
			break
		}
		q.set(i, q[child])
		i = child
	}
	q.set(i, x)
}
