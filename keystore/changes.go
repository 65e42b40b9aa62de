package keystore

import (
	"slices"
	"sync"
	"sync/atomic"
)

// changes number the calls of Invalidate. An answer about a child is not found
// under the digest of an ancestor. So a question notes the number before it asks
// the store, and its answer is used while no ancestor has a higher one.
//
// Several digests share a place: the children of one in some thousand keys are
// asked for again without need, and nothing has to be known of who has children.
type changes struct {
	number atomic.Uint64

	mu   sync.Mutex // under which numbers are drawn and written, so none gets lower
	last [1 << changeBits]atomic.Uint64
}

const changeBits = 12

func (c *changes) of(d Digest) *atomic.Uint64 { return &c.last[place(d, changeBits)] }

// note notes that a key has changed.
func (c *changes) note(d Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(d).Store(c.number.Add(1))
}

// since reports whether one of the keys may have changed after the number.
func (c *changes) since(number uint64, keys []*Key) bool {
	return slices.ContainsFunc(keys, func(k *Key) bool { return c.of(k.Digest).Load() > number })
}
