package idemredis

import "time"

// Waiting returns how many commands wait for a trip.
func (s *Store) Waiting() (n int) {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	for _, g := range s.sender.waiting {
		for _, c := range g.calls {
			if !c.left {
				n++
			}
		}
	}
	return n
}

// Trips returns how many trips are under way.
func (s *Store) Trips() int {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	return s.sender.trips
}

// SetStall sets how long no trip may begin or end before there is one more.
func (s *Store) SetStall(d time.Duration) { s.sender.stall = d }
