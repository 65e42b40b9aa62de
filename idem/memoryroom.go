package idem

// What is charged beside payloads and summaries: the measured bytes of a key,
// and of an owner, in maps, lists and the queue, rounded up.
const (
	entryCost = 320
	ownerCost = 256
	// claimCost reserves 1 KiB for the summary, so that settling always finds
	// that much room.
	claimCost = entryCost + 1024
)

// victims is how many owners with payloads are looked at for one to evict from.
// A map hands them out in random order; looking at all of them would make each
// Begin on a full store slow.
const victims = 32

// fixed is how many bytes an entry is charged apart from its payload. Only the
// payload can be evicted.
func (e *entry) fixed() int64 {
	if e.held {
		return claimCost
	}
	return entryCost + int64(cap(e.summary))
}

// evictable reports whether a settled entry has a payload to evict.
func (e *entry) evictable() bool { return len(e.payload) > 0 }

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

// account is what one owner has in a Memory.
type account struct {
	owner   string
	entries int
	claims  int // those of the entries that are held

	// Bytes that are charged: for payloads, which can be evicted, and for
	// everything else, which cannot.
	fixed, payloads int64
	// Settled entries, by whether they have a payload to evict.
	withPayload, withoutPayload useList
}

// account returns an owner's account, and opens it.
func (m *Memory) account(owner string) *account {
	a := m.owners[owner]
	if a == nil {
		a = &account{owner: owner}
		m.owners[owner] = a
		m.charge(a, ownerCost, 0)
	}
	return a
}

// leave counts one entry less, and closes an account that has none.
func (m *Memory) leave(a *account) {
	if a.entries--; a.entries == 0 {
		delete(m.owners, a.owner)
		m.charge(a, -ownerCost, 0)
	}
}

// list returns the list that a settled entry belongs to.
func (a *account) list(e *entry) *useList {
	if e.evictable() {
		return &a.withPayload
	}
	return &a.withoutPayload
}

// list makes a settled entry one that can be evicted.
func (m *Memory) list(e *entry) {
	m.entries.push(e.owner.list(e), e)
	*m.count(e)++
	if e.evictable() {
		m.withPayloads[e.owner] = struct{}{}
	}
}

func (m *Memory) unlist(e *entry) {
	m.entries.unlink(e.owner.list(e), e)
	*m.count(e)--
	if e.owner.withPayload == 0 {
		delete(m.withPayloads, e.owner)
	}
}

// count returns the figure of MemoryStats that counts a settled entry.
func (m *Memory) count(e *entry) *int {
	switch {
	case e.outcome == OutcomeUnknown:
		return &m.stats.Unknown
	case e.retained:
		return &m.stats.Whole
	}
	return &m.stats.Evicted
}

// charge charges an owner for more bytes, or for fewer.
func (m *Memory) charge(a *account, fixed, payloads int64) {
	a.fixed += fixed
	a.payloads += payloads
	m.fixed += fixed
	m.stats.Bytes += fixed + payloads
}

// admit makes room for one more claim of an owner, which is charged n bytes. It
// returns false if the owner may not have one.
func (m *Memory) admit(a *account, n, now int64) bool {
	if !fair(int64(a.claims), 1, int64(m.stats.Claims), int64(m.options.Claims)) {
		return false
	}
	for !fair(a.fixed-ownerCost, n, m.fixed, m.options.Budget) {
		if !m.dropExpired(now) && !m.forget(a) {
			return false
		}
	}
	return m.makeRoom(a, n, now)
}

// fair reports whether an owner that holds own of a resource may hold n more,
// when all owners together hold used of limit. It may while it then has no more
// than a quarter of what the others leave. An owner that takes all that it may
// leaves three quarters of the rest, so the next one always finds room; with
// equal shares of the whole, as many owners as there are shares would shut out
// all others. The first claim of an owner is admitted while there is any room
// at all.
func fair(own, n, used, limit int64) bool {
	return used+n <= limit && (own == 0 || own+n <= (limit-(used-own))/4)
}

// makeRoom evicts until n bytes are free for an owner. It returns false if too
// little may be evicted.
func (m *Memory) makeRoom(a *account, n, now int64) bool {
	for m.stats.Bytes+n > m.options.Budget {
		switch {
		case m.dropExpired(now):
		case m.fixed+n > m.options.Budget: // evicting payloads would not help
			return false
		case !m.evictPayload(m.victim(a)):
			return false
		}
	}
	return true
}

// victim returns the owner that loses a payload so that a gets room: of those
// looked at the one that holds most, if that is more than a holds, else a.
func (m *Memory) victim(a *account) *account {
	most, left := a, victims
	for b := range m.withPayloads {
		if b.fixed+b.payloads > most.fixed+most.payloads {
			most = b
		}
		if left--; left == 0 {
			break
		}
	}
	return most
}

// evictPayload evicts the least recently used payload of an owner, if it has
// one.
func (m *Memory) evictPayload(a *account) bool {
	e := m.entries.oldest(a.withPayload)
	if e == nil {
		return false
	}
	m.unlist(e)
	m.charge(a, 0, -int64(cap(e.payload)))
	e.payload, e.retained = nil, false
	m.list(e)
	return true
}

// forget drops one settled key of an owner, if that is allowed.
func (m *Memory) forget(a *account) bool {
	if !m.options.ForgetUnexpired {
		return false
	}
	e := m.entries.oldest(a.withoutPayload)
	if e == nil {
		e = m.entries.oldest(a.withPayload)
	}
	if e == nil {
		return false
	}
	m.stats.Forgotten++
	m.drop(e)
	return true
}

// dropExpired drops one expired entry, if there is one.
func (m *Memory) dropExpired(now int64) bool {
	number := m.expiry.expired(now)
	if number != 0 {
		m.drop(m.entries.at(number))
	}
	return number != 0
}

// nearlyFull reports that four fifths of the budget are taken. It reports that
// once, and again only after more than half of the budget was free.
func (m *Memory) nearlyFull() bool {
	switch {
	case m.stats.Bytes < m.options.Budget/2:
		m.warned = false
	case !m.warned && m.stats.Bytes >= m.options.Budget/5*4:
		m.warned = true
		return true
	}
	return false
}
