package reference

import "time"

// flight is the key of a request, which others at the same time take over.
type flight struct {
	key *key
	at  time.Time
}

// beside returns the request's own key, and when there is none that of another
// request with the mark at the same time.
func (s *Server) beside(mark string, own *key) *key {
	if own != nil {
		s.flights.Store(mark, flight{own, time.Now()})
		time.Sleep(time.Millisecond)
		return own
	}
	time.Sleep(time.Millisecond / 2)
	if other, ok := s.flights.Load(mark); ok && time.Since(other.(flight).at) < time.Millisecond {
		return other.(flight).key
	}
	return nil
}
