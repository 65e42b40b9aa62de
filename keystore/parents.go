package keystore

import (
	"maps"
	"sync"
	"sync/atomic"
	"weak"
)

// parents are the keys that children in a [Cached] have above them. An answer
// about a child is not found under the digest of an ancestor. So a change of a
// key draws a number and writes it into its parent, and a question notes the
// highest number before it asks the store. An answer is used while its parents
// have none that is higher.
//
// A change whose key no child in memory has above it finds no parent to write
// to. What it may mean to a question that is open shows in the first number of
// a parent: the highest at that time. The worst is that such a child is asked
// for twice.
type parents struct {
	number atomic.Uint64 // calls of Invalidate

	mu    sync.Mutex // under which numbers are drawn and written, so none gets lower
	known map[Digest]weak.Pointer[parent]
	room  int // how many may be known until those are dropped that no child refers to
}

// A parent lives as long as a child in memory refers to it.
type parent struct {
	digest  Digest
	changed atomic.Uint64 // the number of its last change
}

// of returns the parents of a child with these ancestors.
func (p *parents) of(ancestors []*Key) (above []*parent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range ancestors {
		k := p.known[a.Digest].Value()
		if k == nil {
			if len(p.known) >= p.room {
				maps.DeleteFunc(p.known, func(_ Digest, w weak.Pointer[parent]) bool { return w.Value() == nil })
				p.room = 2*len(p.known) + 64
			}
			k = &parent{digest: a.Digest}
			k.changed.Store(p.number.Load())
			p.known[a.Digest] = weak.Make(k)
		}
		above = append(above, k)
	}
	return above
}

// change notes that a key has changed.
func (p *parents) change(d Digest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number := p.number.Add(1)
	if k := p.known[d].Value(); k != nil {
		k.changed.Store(number)
	}
}
