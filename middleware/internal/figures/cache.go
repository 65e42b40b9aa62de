package figures

import "sync"

// A Cache keeps what was made for each key. A look-up of a known key does not
// allocate. Beyond its room, keys share what is made for their Folded one.
type Cache[K folder[K], V any] struct {
	room int
	make func(K) V

	mu    sync.RWMutex
	known map[K]V
}

type folder[K any] interface {
	comparable
	Folded() K
}

// NewCache returns an empty Cache with room for so many keys.
func NewCache[K folder[K], V any](room int, make func(K) V) *Cache[K, V] {
	return &Cache[K, V]{room: room, make: make, known: map[K]V{}}
}

// Get returns what was made for k.
func (c *Cache[K, V]) Get(k K) V {
	c.mu.RLock()
	v, ok := c.known[k]
	c.mu.RUnlock()
	if ok {
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= c.room {
		k = k.Folded()
	}
	if v, ok = c.known[k]; !ok {
		v = c.make(k)
		c.known[k] = v
	}
	return v
}
