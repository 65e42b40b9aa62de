package idem

// What keys are charged beside their payload and summary: what they measurably take in maps, lists and the queue, rounded up.
const (
	entryCost     = 448
	partitionCost = 1024
	// claimCost sets aside the room for the summary of a settlement, so that settling finds at least that.
	claimCost = entryCost + 1024
)

// donors is how many of the partitions that have payloads are looked at for one that gives up a payload to another. A map hands
// them out in random order; looking at all of them would make each Begin on a full store slow.
const donors = 32

// admit makes room for n bytes more in a partition and counts a claim in it, which keeps the partition in place.
func (m *Memory) admit(id Sum, n, now int64) (*partition, error) {
	p := m.partitions[id]
	if p == nil {
		p = &partition{id: id}
		m.partitions[id] = p
		m.charge(p, partitionCost)
	}
	p.claims++
	if len(m.claims) < m.options.Claims && p.claims <= max(m.options.Claims/4, 1) && m.makeRoom(p, n, now) {
		return p, nil
	}
	m.stats.Refused++
	m.dismiss(p)
	return nil, ErrFull
}

// dismiss takes back a claim that admit counted.
func (m *Memory) dismiss(p *partition) {
	p.claims--
	m.discardEmpty(p)
}

func (m *Memory) discardEmpty(p *partition) {
	if p.empty() {
		m.charge(p, -partitionCost)
		delete(m.partitions, p.id)
	}
}

func (m *Memory) charge(p *partition, n int64) {
	p.used += n
	m.stats.Bytes += n
}

// recharge sets what an entry is charged.
func (m *Memory) recharge(e *entry, cost int64) {
	m.charge(e.home, cost-e.cost)
	e.cost = cost
}

// makeRoom reports whether there are n bytes more for p, once that was given up which may be given up for them.
func (m *Memory) makeRoom(p *partition, n, now int64) bool {
	if n > m.options.Share {
		return false // and nothing is given up in vain
	}
	for {
		overShare := p.used+n > m.options.Share
		if !overShare && m.stats.Bytes+n <= m.options.Budget {
			return true
		}
		if m.dropExpired(now) {
			continue
		}
		donor := p
		if !overShare {
			donor = m.donor(p)
		}
		if !m.shorten(donor) && !m.forget(p) {
			return false
		}
	}
}

// dropExpired drops one entry whose time has come.
func (m *Memory) dropExpired(now int64) bool {
	e := m.expiries.expired(now)
	if e != nil {
		m.drop(e)
	}
	return e != nil
}

// donor returns who gives up a payload so that p gets room: of the partitions looked at the one that holds most, if that is
// more than p holds, else p.
func (m *Memory) donor(p *partition) *partition {
	most, left := p, donors
	for q := range m.donors {
		if q.used > most.used {
			most = q
		}
		if left--; left == 0 {
			break
		}
	}
	return most
}

// shorten gives up one payload of p.
func (m *Memory) shorten(p *partition) bool {
	e := p.oldestWhole()
	if e == nil {
		return false
	}
	m.unshelve(e)
	e.payload, e.retained = nil, false
	m.recharge(e, entryCost+int64(len(e.summary)))
	m.shelve(e)
	return true
}

// forget drops one settled key of p, if that is allowed.
func (m *Memory) forget(p *partition) bool {
	if !m.options.ForgetUnexpired {
		return false
	}
	e := p.oldestFact()
	if e == nil {
		return false
	}
	m.stats.Forgotten++
	m.drop(e)
	return true
}

// nearlyFull reports, once until half of the budget is free again, that four fifths of it are taken.
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
