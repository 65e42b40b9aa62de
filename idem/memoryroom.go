package idem

import (
	"hash/maphash"
	"time"

	"github.com/sallyport-go/sallyport/idem/internal/token"
)

// What is charged beside payloads and summaries: the measured bytes of a key,
// and of a tenant, in maps, lists and queues, rounded up.
const (
	entryCost  = 300
	tenantCost = 192
	// claimCost reserves 1 KiB for the summary, so that settling always finds
	// that much room.
	claimCost = entryCost + 1024
)

// account is what one tenant has in a Memory.
type account struct {
	id      uint64  // in Memory.accounts
	prefix  [8]byte // token.Prefix of its organization
	entries int
	bytes   int64 // that are charged
	bodies  int64 // those of them for payloads
	// Settled entries in the order of settling: the first, the last, and the
	// first that has a payload.
	oldest, newest, oldestBody uint32
	place                      uint32 // in Memory.largest
}

// account returns the account of a claim's tenant, and opens it.
func (m *Memory) account(c *Claim) *account {
	id := maphash.String(m.seed, c.Tenant)
	a := m.accounts[id]
	if a == nil {
		a = &account{id: id, prefix: token.Prefix(c.organization()), bytes: tenantCost}
		m.accounts[id] = a
		m.stats.Bytes += tenantCost
		m.largest.add(a, -a.bytes)
	}
	return a
}

// charge charges a tenant for more bytes, or for fewer.
func (m *Memory) charge(a *account, bytes int) {
	a.bytes += int64(bytes)
	m.stats.Bytes += int64(bytes)
	m.largest.move(a, -a.bytes)
}

// cost is what an entry is charged for.
func (e *entry) cost() int {
	if e.held {
		return claimCost
	}
	return entryCost + cap(e.summary) + cap(e.payload) + e.use.cost()
}

// settledAs reports whether e was settled by s. When the payload was evicted,
// the summaries are compared.
func (e *entry) settledAs(s *Settlement) bool {
	if e.outcome == s.Outcome && !e.retained {
		return string(e.summary) == string(s.Summary)
	}
	return e.outcome == s.Outcome && string(e.payload) == string(s.Payload)
}

// drop forgets an entry, and closes the account of a tenant that has no other. A
// charge that is uncertain becomes final.
func (m *Memory) drop(e *entry) {
	a := e.tenant
	if !e.held {
		m.unlist(e)
	}
	m.charge(a, -e.cost())
	if e.use != nil && e.uncertain(m.now()) {
		m.conclude(e, e.use.units, true)
	}
	m.discard(e)
	m.expiry.remove(e.number)
	m.entries.remove(e)
	if a.entries--; a.entries == 0 {
		m.stats.Bytes -= tenantCost
		m.largest.remove(a)
		delete(m.accounts, a.id)
	}
}

// list adds a settled entry to those of its tenant, as the newest.
func (m *Memory) list(e *entry) {
	a := e.tenant
	e.older, e.newer = a.newest, 0
	m.entries.at(a.newest).newer = e.number
	if a.newest = e.number; a.oldest == 0 {
		a.oldest = e.number
	}
	if a.bodies += int64(cap(e.payload)); a.oldestBody == 0 && len(e.payload) > 0 {
		a.oldestBody = e.number
	}
}

func (m *Memory) unlist(e *entry) {
	m.shorten(e)
	a := e.tenant
	m.entries.at(e.older).newer, m.entries.at(e.newer).older = e.newer, e.older
	if a.oldest == e.number {
		a.oldest = e.newer
	}
	if a.newest == e.number {
		a.newest = e.older
	}
}

// shorten takes from a settled entry the payload, if it has one.
func (m *Memory) shorten(e *entry) {
	if len(e.payload) == 0 {
		return
	}
	a, body := e.tenant, cap(e.payload)
	a.bodies -= int64(body)
	m.charge(a, -body)
	e.payload, e.retained = nil, false
	for a.oldestBody != 0 && len(m.entries.at(a.oldestBody).payload) == 0 {
		a.oldestBody = m.entries.at(a.oldestBody).newer
	}
}

// makeRoom frees bytes until a tenant may hold what it is charged for. It
// returns false if it may not.
func (m *Memory) makeRoom(a *account, now int64) bool {
	for m.stats.Bytes > m.budget-a.bytes/16 {
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

// victim returns the tenant that makes room for a: the one that holds most, or
// a itself if no other holds more. Tenants with nothing to give are passed
// over. Only a few are looked at, so that Begin takes a bounded time.
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
	return number != 0 && m.entries.at(number).settled <= now-int64(m.minRetention)
}

// shrink takes from a tenant the body or the record that goes first. It returns
// false if there is none.
func (m *Memory) shrink(a *account, now int64) bool {
	body, record := a.oldestBody, m.old(a.oldest, now)
	switch {
	case body != 0 && (!record || m.old(body, now) || a.bodies > a.bytes/2):
		m.shorten(m.entries.at(body))
	case record:
		m.forget(m.entries.at(a.oldest), now)
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
