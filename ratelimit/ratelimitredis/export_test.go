package ratelimitredis

import "github.com/sallyport-go/sallyport/ratelimit"

// Counters is what asks Redis, without what surrounds it.
func (s *Store) Counters() ratelimit.Store { return s.counters }
