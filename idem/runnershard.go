package idem

import (
	"crypto/rand"
	"maps"
	"time"
)

// Sharded is a Store whose keys lie on several servers, as in a Redis Cluster.
// While one of them is away, a [Runner] goes on asking the others.
type Sharded interface {
	Store
	// Shard names the server that has a key now, or is "" when that is not
	// known. It asks no server.
	Shard(Key) string
}

// shard is what can be away by itself.
type shard struct {
	name    string
	begins  slots
	outage  outage
	undoing int // keys with claims that are being undone; backend.mu guards it
}

// mostShards is how many are kept that answer: servers come and go.
const mostShards = 1024

// shard returns the shard of a key.
func (b *backend) shard(key Key) *shard {
	if b.sharder == nil {
		return b.whole
	}
	return b.named(b.sharder.Shard(key))
}

func (b *backend) named(name string) *shard {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.shards[name]
	if s == nil {
		if len(b.shards) >= mostShards {
			maps.DeleteFunc(b.shards, func(_ string, s *shard) bool { return s.undoing == 0 && !s.outage.lasts() })
		}
		s = &shard{name: name, begins: make(slots, slotsPerKind)}
		s.outage.now = func() time.Duration { return b.now() }
		s.outage.probe = func() { b.probeLater(s) }
		b.shards[name] = s
	}
	return s
}

func (b *backend) forget(s *shard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.shards, s.name)
}

// keyOf returns a key of nobody that lies on a shard.
func (b *backend) keyOf(s *shard) (key Key, found bool) {
	for range 1000 {
		var name [16]byte
		rand.Read(name[:])
		if key = NewKey("probe", string(name[:])); b.shard(key) == s {
			return key, true
		}
	}
	return key, false
}

// down reports whether a shard is not asked.
func (b *backend) down() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.shards {
		if s.outage.lasts() {
			return true
		}
	}
	return false
}
