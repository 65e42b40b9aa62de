package reference

import (
	"fmt"
	"net/http"
	"time"
)

// window is one period of a limit.
type window struct {
	start, end time.Time
	used       int
	denied     bool
}

// admit counts the request, or answers 429.
func (s *Server) admit(x *exchange) bool {
	if s.Limit == 0 {
		return true
	}
	left, elapsed, first, ok := s.take(x)
	if ok {
		return true
	}
	if s.has("rate-creates") && x.r.Method == "POST" {
		s.insert(x, x.r.URL.Path, s.title(x))
	}
	if s.has("rate-dropped") {
		panic(http.ErrAbortHandler)
	}
	seconds := int((left + time.Second - 1) / time.Second)
	value := fmt.Sprint(seconds)
	switch {
	case s.has("rate-word"):
		value = "soon"
	case s.has("rate-fraction"):
		value = fmt.Sprintf("%.1f", left.Seconds())
	case s.has("rate-negative"):
		value = fmt.Sprint(-seconds)
	case s.has("rate-zero"):
		value = "0"
	case s.has("rate-short"), s.has("rate-short-post") && x.r.Method == "POST":
		value = "1"
	case s.has("rate-past"):
		value = time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat)
	case s.has("rate-timestamp"):
		value = fmt.Sprint(time.Now().Add(left).Unix())
	case s.has("rate-milliseconds"):
		value = fmt.Sprint(left.Milliseconds())
	case s.has("rate-grows"):
		value = fmt.Sprint(int(elapsed/time.Second) + 1)
	}
	x.Header().Set("Retry-After", value)
	if s.has("rate-twice") {
		x.Header().Add("Retry-After", fmt.Sprint(seconds+7))
	}
	if s.has("rate-bare") || s.has("rate-bare-post") && x.r.Method == "POST" || s.has("rate-bare-later") && !first {
		x.Header().Del("Retry-After")
	}
	status := s.status("rate", http.StatusTooManyRequests)
	x.refuse(status, "rate_limited")
	if s.has("idem-429-stored") && x.r.Method == "POST" {
		s.store(x, status, "rate_limited")
	}
	return false
}

func (s *Server) take(x *exchange) (left, elapsed time.Duration, first, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bucket := x.key.org + x.key.env
	if s.has("rate-shared") {
		bucket = ""
	}
	now := time.Now()
	w := s.windows[bucket]
	if w == nil || !now.Before(w.end) && !(s.has("rate-for-ever") && w.denied) {
		w = &window{start: now, end: now.Add(s.Window)}
		s.windows[bucket] = w
	}
	w.used++
	if w.used <= s.Limit {
		return 0, 0, false, true
	}
	first = !w.denied
	w.denied = true
	return max(w.end.Sub(now), time.Millisecond), now.Sub(w.start), first, false
}
