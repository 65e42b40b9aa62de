package idem

import "time"

// What is charged beside payloads and summaries: the measured bytes of a key,
// and of an owner, in maps, lists and queues, rounded up.
const (
	entryCost = 320
	ownerCost = 256
	// claimCost reserves 1 KiB for the summary, so that settling always finds
	// that much room.
	claimCost = entryCost + 1024
)

// account is what one owner has in a Memory.
type account struct {
	owner   string
	entries int
	bytes   int64 // that are charged
	bodies  int64 // those of them for payloads
	// Settled entries in the order of settling: the first, the last, and the
	// first that has a payload.
	oldest, newest, oldestBody uint32
	place                      uint32 // in Memory.largest
}

// account returns an owner's account, and opens it.
func (m *Memory) account(owner string) *account {
	a := m.accounts[owner]
	if a == nil {
		a = &account{owner: owner, bytes: ownerCost}
		m.accounts[owner] = a
		m.stats.Bytes += ownerCost
		m.largest.add(a, -a.bytes)
	}
	return a
}

// charge sets how many bytes an entry is charged for.
func (m *Memory) charge(e *entry, bytes int64) {
	more := bytes - e.charged
	e.charged = bytes
	e.owner.bytes += more
	m.stats.Bytes += more
	m.largest.move(e.owner, -e.owner.bytes)
}

// cost is what a settled entry is charged for.
func (e *entry) cost() int64 { return entryCost + int64(cap(e.summary)+cap(e.payload)) }

// settledAs reports whether e was settled by s. When the payload was evicted,
// the summaries are compared.
func (e *entry) settledAs(s *Settlement) bool {
	if e.outcome != s.Outcome {
		return false
	}
	if !e.retained {
		return string(e.summary) == string(s.Summary)
	}
	return string(e.payload) == string(s.Payload)
}

// drop forgets an entry, and closes the account of an owner that has no other.
func (m *Memory) drop(e *entry) {
	a := e.owner
	if !e.held {
		m.unlist(e)
	}
	m.charge(e, 0)
	m.expiry.remove(e.number)
	m.entries.remove(e)
	if a.entries--; a.entries == 0 {
		m.stats.Bytes -= ownerCost
		m.largest.remove(a)
		delete(m.accounts, a.owner)
	}
}

// list adds a settled entry to those of its owner, as the newest.
func (m *Memory) list(e *entry) {
	a := e.owner
	e.older, e.newer = a.newest, 0
	*m.newer(a, a.newest), a.newest = e.number, e.number
	a.bodies += int64(cap(e.payload))
	if a.oldestBody == 0 && len(e.payload) > 0 {
		a.oldestBody = e.number
	}
	m.stats.Settled++
}

func (m *Memory) unlist(e *entry) {
	m.shorten(e)
	a := e.owner
	*m.newer(a, e.older) = e.newer
	if e.newer == 0 {
		a.newest = e.older
	} else {
		m.entries.at(e.newer).older = e.older
	}
	m.stats.Settled--
}

// newer returns where the number is of what comes after an entry of a, or first
// if there is no such entry.
func (m *Memory) newer(a *account, number uint32) *uint32 {
	if number == 0 {
		return &a.oldest
	}
	return &m.entries.at(number).newer
}

// shorten takes from a settled entry the payload, if it has one.
func (m *Memory) shorten(e *entry) {
	if len(e.payload) == 0 {
		return
	}
	a := e.owner
	a.bodies -= int64(cap(e.payload))
	if a.oldestBody == e.number {
		next := e.newer
		for next != 0 && len(m.entries.at(next).payload) == 0 {
			next = m.entries.at(next).newer
		}
		a.oldestBody = next
	}
	e.payload, e.retained = nil, false
	m.charge(e, e.cost())
}

// makeRoom frees bytes until an owner may hold what it is charged for. It
// returns false if it may not.
func (m *Memory) makeRoom(a *account, now int64) bool {
	for m.stats.Bytes > m.options.Budget-a.bytes/8 {
		if !m.dropExpired(now) && !m.shrink(m.victim(a, now), now) {
			return false
		}
	}
	return true
}

// dropExpired drops one expired entry, if there is one.
func (m *Memory) dropExpired(now int64) bool {
	if len(m.expiry.items) == 0 || m.expiry.items[0].rank > now {
		return false
	}
	m.drop(m.entries.at(m.expiry.items[0].element))
	return true
}

// victim returns the owner that makes room for a: the one that holds most, or a
// itself if no other holds more. Owners with nothing to give are passed over.
// Only a few are looked at, so that Begin takes a bounded time.
func (m *Memory) victim(a *account, now int64) *account {
	most := a
	for i, item := range m.largest.items[:min(len(m.largest.items), 32)] {
		b := item.element
		if b.bytes > most.bytes && (b.oldestBody != 0 || m.old(b.oldest, now)) {
			most = b
			if i == 0 {
				break
			}
		}
	}
	return most
}

// old reports whether there is such an entry and it may be forgotten.
func (m *Memory) old(number uint32, now int64) bool {
	return number != 0 && m.entries.at(number).settled <= now-int64(m.options.MinRetention)
}

// shrink takes from an owner the body or the record that goes first. It returns
// false if there is none.
func (m *Memory) shrink(a *account, now int64) bool {
	switch {
	case a.oldestBody != 0 && (a.bodies > a.bytes/2 || m.old(a.oldestBody, now)):
		m.shorten(m.entries.at(a.oldestBody))
	case m.old(a.oldest, now):
		m.forget(m.entries.at(a.oldest), now)
	case a.oldestBody != 0:
		m.shorten(m.entries.at(a.oldestBody))
	default:
		return false
	}
	return true
}

// forget drops a record before its retention is over.
func (m *Memory) forget(e *entry, now int64) {
	m.stats.Forgotten++
	m.stats.Kept = time.Duration(now - e.settled)
	if now >= m.nextWarn {
		m.nextWarn = after(now, time.Hour)
		m.lost = time.Duration(m.expiry.rank(e.number) - e.settled)
	}
	m.drop(e)
}
