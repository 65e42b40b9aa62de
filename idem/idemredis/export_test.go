package idemredis

// Waiting returns how many commands wait for a trip.
func (s *Store) Waiting() (n int) {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	for _, g := range s.sender.waiting {
		n += len(g.cmds)
	}
	return n
}

// Trips returns how many trips are under way.
func (s *Store) Trips() int {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	return s.sender.trips
}
