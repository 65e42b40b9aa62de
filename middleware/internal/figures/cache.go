package figures

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A Cache keeps what was made for each key. A look-up takes no lock and does
// not allocate. Beyond its room, keys share what is made for their Folded one.
type Cache[K folder[K], V any] struct {
	room int
	make func(K) V

	mu    sync.Mutex // of who adds a key
	known atomic.Pointer[map[K]V]
}

type folder[K any] interface {
	comparable
	Folded() K
}

// NewCache returns an empty Cache with room for so many keys.
func NewCache[K folder[K], V any](room int, make func(K) V) *Cache[K, V] {
	c := &Cache[K, V]{room: room, make: make}
	c.known.Store(&map[K]V{})
	return c
}

// Get returns what was made for k.
func (c *Cache[K, V]) Get(k K) V {
	if v, ok := (*c.known.Load())[k]; ok {
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := *c.known.Load()
	if len(known) >= c.room {
		k = k.Folded()
	}
	v, ok := known[k]
	if !ok {
		v = c.make(k)
		more := maps.Clone(known)
		more[k] = v
		c.known.Store(&more)
	}
	return v
}
