package meter

// Gauges returns how many gauges there are, in the map and in the list.
func (m *Meter) Gauges() (mapped, listed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.gauges), m.asked.Len()
}

const Slots = slots
