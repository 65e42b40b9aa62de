package reference

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// window is one period of a limit.
type window struct {
	end    time.Time
	used   int
	denied bool // a request
}

// seconds rounds up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// waits are the values that a defect or a freedom gives Retry-After, by what is
// left of the window.
var waits = map[string]func(left time.Duration) string{
	"rate-zero":             func(time.Duration) string { return "0" },
	"rate-short":            func(time.Duration) string { return "1" },
	"rate-long":             func(left time.Duration) string { return fmt.Sprint(20 * seconds(left)) },
	"rate-milliseconds":     func(left time.Duration) string { return fmt.Sprint(left.Milliseconds()) },
	"rate-date-utc":         func(left time.Duration) string { return date(left, time.RFC1123) },
	"rate-bare-last-second": func(left time.Duration) string { return fmt.Sprint(int(left / time.Second)) },
	"free-date":             func(left time.Duration) string { return date(left, http.TimeFormat) },
	"free-floor":            func(left time.Duration) string { return fmt.Sprint(int(left / time.Second)) },
}

func date(left time.Duration, layout string) string {
	return time.Now().Add(left + time.Second - 1).UTC().Format(layout)
}

// bare are the defects that leave Retry-After out.
var bare = map[string]when{
	"rate-bare":      func(x *exchange) bool { return true },
	"rate-bare-post": func(x *exchange) bool { return x.r.Method == "POST" },
}

// admit counts the request, or answers 429.
func (s *Server) admit(x *exchange) bool {
	if s.Limit == 0 {
		return true
	}
	left := s.take(x)
	if left == 0 {
		return true
	}
	if s.has("rate-captcha") && strings.Contains(x.r.Header.Get("Accept"), "text/html") {
		x.Header().Set("Location", "/captcha")
		x.refuse(http.StatusFound, "captcha")
		return false
	}
	if s.has("rate-dropped") {
		panic(http.ErrAbortHandler)
	}
	value := fmt.Sprint(seconds(left))
	if other := pick(s, waits); other != nil {
		value = other(left)
	}
	late := s.has("rate-bare-last-second") && left < time.Second
	if !s.any(bare, x) && !late {
		x.Header().Set("Retry-After", value)
	}
	status := s.status("rate", http.StatusTooManyRequests)
	if s.has("rate-body-left") && x.r.ProtoMajor == 1 && x.r.ContentLength != 0 {
		x.conn.left.Store(true) // the next request begins with the body of this one
	}
	x.refuse(status, "rate_limited")
	if x.r.Method == "POST" && s.has("idem-429-409") {
		s.store(x, http.StatusConflict, "conflict")
	}
	return false
}

// take counts the request and returns 0, or how long the window still is.
func (s *Server) take(x *exchange) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	bucket := x.key.org + x.key.env
	if s.has("rate-shared") {
		bucket = ""
	}
	now := time.Now()
	w := s.windows[bucket]
	if s.has("free-drip") {
		return s.drip(bucket, w, now)
	}
	if w == nil || !now.Before(w.end) && !(s.has("rate-for-ever") && w.denied) {
		if w != nil && s.has("idem-flushed-by-window") {
			clear(s.replies)
		}
		w = &window{end: now.Add(s.Window)}
		if s.has("free-clock") {
			w.end = now.Truncate(s.Window).Add(s.Window)
		}
		s.windows[bucket] = w
	}
	w.used++
	if w.used <= s.Limit {
		return 0
	}
	w.denied = true
	return max(w.end.Sub(now), time.Millisecond)
}

// drip admits one request in each part of the window, and a window's at the
// beginning.
func (s *Server) drip(bucket string, w *window, now time.Time) time.Duration {
	if w == nil || w.end.Before(now) {
		w = &window{end: now}
		s.windows[bucket] = w
	}
	every := s.Window / time.Duration(s.Limit)
	if wait := w.end.Add(every - s.Window).Sub(now); wait > 0 {
		return wait
	}
	w.end = w.end.Add(every)
	return 0
}
