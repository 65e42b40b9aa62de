package idem

import "container/heap"

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
