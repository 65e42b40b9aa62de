package idem

import (
	"context"
	"crypto/rand"
)

// sharded is a Store with several shards, as its documentation says.
type sharded interface{ Shard(Key) string }

// shard is what can be away by itself.
type shard struct {
	name   string
	begins slots
	outage outage

	// backend.mu guards these.
	undoing int // claims that are being undone
	missed  int // probes in a row that found no key of it
}

// mostMissed is after how many probes a shard has no keys. One with 1 of 1000
// has none in 1000 tries for a third of them.
const mostMissed = 30

// shard returns the shard of a key.
func (b *backend) shard(key Key) (s *shard) {
	s = b.whole
	if b.sharder != nil {
		b.guard(context.Background(), func() { s = b.named(b.sharder.Shard(key)) })
	}
	return s
}

func (b *backend) named(name string) *shard {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.shards[name]
	if s == nil {
		s = &shard{name: name, begins: make(slots, slotsPerKind)}
		s.outage.probe = func() { b.probeLater(s) }
		b.shards[name] = s
	}
	return s
}

// gone notes whether a probe has found a key of a shard, and reports whether its
// keys are elsewhere: then it is forgotten.
func (b *backend) gone(s *shard, found bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.missed++; found {
		s.missed = 0
	}
	gone := s.missed >= mostMissed && s.undoing == 0
	if gone {
		delete(b.shards, s.name)
	}
	return gone
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
