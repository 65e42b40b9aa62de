package idem

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// entry is one key of a Memory. It is found in Memory.claims while it is held, and on a shelf of its partition afterwards.
type entry struct {
	key         Key
	token       Token
	fingerprint Sum
	held        bool
	outcome     Outcome // once settled
	retained    bool    // once settled: payload is all of it
	attempt     int
	lease       int64 // when it ends
	place       int   // in the expiryQueue
	cost        int64 // what it is charged
	payload     []byte
	summary     []byte
	home        *partition
}

// settledAs reports whether e says what s says. Of a payload that was given up, the summary decides.
func (e *entry) settledAs(s *Settlement) bool {
	if e.outcome != s.Outcome {
		return false
	}
	if !e.retained {
		return string(e.summary) == string(s.Summary)
	}
	return string(e.payload) == string(s.Payload)
}

// partition is what a Memory holds for one Key.Partition.
type partition struct {
	id     Sum
	claims int
	used   int64
	// whole has the settled entries with a payload to give up, facts those without, each in the order of their last use. The
	// lists never evict by their length: room is counted in bytes, by Memory.
	whole, facts *simplelru.LRU[Sum, *entry]
}

func newShelf() *simplelru.LRU[Sum, *entry] {
	shelf, err := simplelru.NewLRU[Sum, *entry](math.MaxInt, nil)
	if err != nil {
		panic("idem: " + err.Error()) // only for a length that is not positive
	}
	return shelf
}

// find returns a settled entry, which is by that the last used.
func (p *partition) find(digest Sum) *entry {
	if p.whole != nil {
		if e, ok := p.whole.Get(digest); ok {
			return e
		}
	}
	if p.facts != nil {
		if e, ok := p.facts.Get(digest); ok {
			return e
		}
	}
	return nil
}

func (p *partition) shelf(e *entry) **simplelru.LRU[Sum, *entry] {
	if len(e.payload) > 0 {
		return &p.whole
	}
	return &p.facts
}

func (p *partition) add(e *entry) {
	shelf := p.shelf(e)
	if *shelf == nil {
		*shelf = newShelf()
	}
	(*shelf).Add(e.key.Digest, e)
}

func (p *partition) remove(e *entry) { (*p.shelf(e)).Remove(e.key.Digest) }

// oldestWhole returns the entry that gives up its payload first, or nil.
func (p *partition) oldestWhole() *entry { return oldest(p.whole) }

// oldestFact returns the entry that is forgotten first, or nil.
func (p *partition) oldestFact() *entry { return oldest(p.facts) }

func oldest(shelf *simplelru.LRU[Sum, *entry]) *entry {
	if shelf == nil {
		return nil
	}
	_, e, _ := shelf.GetOldest()
	return e
}

func (p *partition) empty() bool {
	return p.claims == 0 && p.oldestWhole() == nil && p.oldestFact() == nil
}
