package bare

import (
	"net/http"
	"time"
)

// window is one second of an organization's environment.
type window struct {
	end  time.Time
	used int
}

// RateLimit counts requests in windows of one second, so that a wait of one second always helps.
func RateLimit(s *Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Limit > 0 && !s.admit(s.Partition(r, keyOf(r))) {
			w.Header().Set("Retry-After", "1")
			Refuse(w, 429, "rate_limited")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) admit(bucket string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.windows[bucket] == nil || !now.Before(s.windows[bucket].end) {
		s.windows[bucket] = &window{end: now.Add(time.Second)}
	}
	s.windows[bucket].used++
	return s.windows[bucket].used <= s.Limit
}
