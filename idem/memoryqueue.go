package idem

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

func (q *queue[E]) add(e E, rank int64) {
	q.items = append(q.items, ranked[E]{})
	q.sift(len(q.items)-1, ranked[E]{rank, e})
}

// move gives an element of the queue another rank.
func (q *queue[E]) move(e E, rank int64) { q.sift(int(*q.place(e)), ranked[E]{rank, e}) }

func (q *queue[E]) remove(e E) {
	last := len(q.items) - 1
	place, moved := int(*q.place(e)), q.items[last]
	q.items[last] = ranked[E]{}
	if q.items = q.items[:last]; place < last {
		q.sift(place, moved)
	}
}

func (q *queue[E]) rank(e E) int64 { return q.items[*q.place(e)].rank }

// sift puts an item into the heap, of which place i is free.
func (q *queue[E]) sift(i int, item ranked[E]) {
	for i > 0 && item.rank < q.items[(i-1)/2].rank {
		q.put(i, q.items[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child+1 < len(q.items) && q.items[child+1].rank < q.items[child].rank {
			child++
		}
		if child >= len(q.items) || q.items[child].rank >= item.rank {
			break
		}
		q.put(i, q.items[child])
		i = child
	}
	q.put(i, item)
}

func (q *queue[E]) put(i int, item ranked[E]) {
	q.items[i] = item
	*q.place(item.element) = uint32(i)
}
