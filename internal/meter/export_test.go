package meter

// Gauges returns how many gauges there are, in the map and in the list.
func (m *Meter) Gauges() (mapped, listed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.gauges), m.asked.Len()
}

// SetSlots bounds the calls of the store by n.
func (m *Meter) SetSlots(n int) { m.slots = make(chan struct{}, n) }
