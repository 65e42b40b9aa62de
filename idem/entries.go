package idem

// This file moves the entries of a Memory between its claims and the shelves of its partitions.

// find returns the entry of a key unless its time has come.
func (m *Memory) find(key Key, now int64) *entry {
	e := m.claims[key]
	if e == nil {
		if p := m.partitions[key.Partition]; p != nil {
			e = p.find(key.Digest)
		}
	}
	if e != nil && m.expiries.at(e) <= now {
		m.drop(e)
		return nil
	}
	return e
}

// hold puts an entry among the claims, where nothing is given up. admit has counted it.
func (m *Memory) hold(e *entry) {
	e.held = true
	m.claims[e.key] = e
	m.recharge(e, claimCost)
}

// letGo takes an entry from the claims.
func (m *Memory) letGo(e *entry) {
	e.held = false
	delete(m.claims, e.key)
	m.dismiss(e.home)
}

// shelve puts a settled entry among those that may be given up.
func (m *Memory) shelve(e *entry) {
	e.home.add(e)
	*m.count(e)++
	if len(e.payload) > 0 {
		m.donors[e.home] = struct{}{}
	}
}

func (m *Memory) unshelve(e *entry) {
	e.home.remove(e)
	*m.count(e)--
	if e.home.oldestWhole() == nil {
		delete(m.donors, e.home)
	}
}

func (m *Memory) count(e *entry) *int {
	switch {
	case e.outcome == OutcomeUnknown:
		return &m.stats.Unknown
	case e.retained:
		return &m.stats.Whole
	}
	return &m.stats.Shortened
}

// drop forgets an entry.
func (m *Memory) drop(e *entry) {
	m.expiries.remove(e)
	m.recharge(e, 0)
	if e.held {
		m.letGo(e)
		return
	}
	m.unshelve(e)
	m.discardEmpty(e.home)
}
