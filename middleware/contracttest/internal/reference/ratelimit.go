package reference

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"
)

// window is one period of a limit.
type window struct {
	start, end time.Time
	used       int
	denied     int // requests
}

// denial is a request over the limit.
type denial struct {
	left time.Duration // of the window
	nth  int           // in the window
}

func (d denial) seconds() int { return int((d.left + time.Second - 1) / time.Second) }

func (d denial) first() bool { return d.nth == 1 }

// waits are the values that a defect or a freedom gives Retry-After.
var waits = map[string]func(d denial) string{
	"rate-empty":        func(denial) string { return "" },
	"rate-zero":         func(denial) string { return "0" },
	"rate-short":        func(denial) string { return "1" },
	"rate-long":         func(d denial) string { return fmt.Sprint(20 * d.seconds()) },
	"rate-past":         func(denial) string { return date(-time.Minute) },
	"rate-timestamp":    func(d denial) string { return fmt.Sprint(time.Now().Add(d.left).Unix()) },
	"rate-milliseconds": func(d denial) string { return fmt.Sprint(d.left.Milliseconds()) },
	"rate-date-utc": func(d denial) string {
		return time.Now().Add(d.left + time.Second - 1).UTC().Format(time.RFC1123)
	},
	"free-date":  func(d denial) string { return date(d.left + time.Second - 1) },
	"free-floor": func(d denial) string { return fmt.Sprint(int(d.left / time.Second)) },
	"rate-bare-last-second": func(d denial) string {
		return fmt.Sprint(int(d.left / time.Second))
	},
	"rate-short-later": func(d denial) string {
		if d.first() {
			return fmt.Sprint(d.seconds())
		}
		return "1"
	},
}

func date(from time.Duration) string { return time.Now().Add(from).UTC().Format(http.TimeFormat) }

// bare are the defects that leave Retry-After out.
var bare = map[string]when{
	"rate-bare":       func(x *exchange) bool { return true },
	"rate-bare-head":  func(x *exchange) bool { return x.r.Method == "HEAD" },
	"rate-bare-post":  func(x *exchange) bool { return x.r.Method == "POST" },
	"rate-bare-list":  func(x *exchange) bool { return x.r.URL.Path == Tasks && x.r.Method == "GET" },
	"rate-bare-http2": func(x *exchange) bool { return x.r.ProtoMajor == 2 },
	"rate-bare-none":  func(x *exchange) bool { return len(x.key.scopes) == 0 },
	"rate-bare-html":  acceptsHTML,
	"rate-bare-replay": func(x *exchange) bool {
		return x.r.Method == "POST" && x.s.isDone(x, x.r.URL.Path)
	},
}

// admit counts the request, or answers 429.
func (s *Server) admit(x *exchange) bool {
	if s.Limit == 0 {
		return true
	}
	d, ok := s.take(x)
	if ok {
		return true
	}
	switch {
	case s.has("rate-captcha") && acceptsHTML(x):
		x.Header().Set("Location", "/captcha")
		x.refuse(http.StatusFound, "captcha")
		return false
	case s.has("rate-deletes") && x.r.Method == "DELETE":
		unseen := x.as(x.key)
		unseen.ResponseWriter = httptest.NewRecorder()
		s.route(unseen)
	}
	if s.has("rate-creates") && x.r.Method == "POST" {
		s.insert(x, x.r.URL.Path, s.title(x))
	}
	if s.has("rate-queued") && x.r.Method == "POST" {
		later := x.as(x.key)
		title := s.title(later)
		time.AfterFunc(d.left, func() { s.insert(later, x.r.URL.Path, title) })
	}
	if s.has("idem-forgets-limited") {
		s.forget(x, x.r.URL.Path)
	}
	if s.has("rate-large-reset") && x.r.ContentLength > 64<<10 {
		panic(http.ErrAbortHandler)
	}
	if s.has("rate-dropped") || s.has("rate-reset-http2") && x.r.ProtoMajor == 2 {
		panic(http.ErrAbortHandler)
	}
	value := fmt.Sprint(d.seconds())
	if other := pick(s, waits); other != nil {
		value = other(d)
	}
	late := s.has("rate-bare-last-second") && d.left < time.Second
	if !s.any(bare, x) && !late && (!s.has("rate-bare-later") || d.first()) {
		x.Header().Set("Retry-After", value)
	}
	if s.has("rate-twice") {
		x.Header().Add("Retry-After", fmt.Sprint(d.seconds()+7))
	}
	status := s.status("rate", http.StatusTooManyRequests)
	if s.has("rate-banned") && d.nth > 5 {
		status = http.StatusForbidden
	}
	if s.has("rate-body-left") && x.r.Method == "POST" {
		x.leave()
	}
	x.refuse(status, "rate_limited")
	if x.r.Method == "POST" && s.has("idem-429-stored") {
		s.store(x, status, "rate_limited")
	}
	if x.r.Method == "POST" && s.has("idem-429-409") {
		s.store(x, http.StatusConflict, "conflict")
	}
	return false
}

func acceptsHTML(x *exchange) bool { return strings.Contains(x.r.Header.Get("Accept"), "text/html") }

func (s *Server) take(x *exchange) (denial, bool) {
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
	if w == nil || !now.Before(w.end) && !(s.has("rate-for-ever") && w.denied > 0) {
		if w != nil && s.has("idem-flushed-by-window") {
			clear(s.replies)
		}
		w = &window{start: now, end: now.Add(s.Window)}
		if s.has("free-clock") {
			w.end = now.Truncate(s.Window).Add(s.Window)
		}
		s.windows[bucket] = w
	}
	w.used++
	if w.used <= s.Limit {
		return denial{}, true
	}
	w.denied++
	d := denial{max(w.end.Sub(now), time.Millisecond), w.denied}
	if s.has("rate-first-window") {
		for _, other := range s.windows {
			if left := other.end.Sub(now); left > 0 {
				d.left = min(d.left, left)
			}
		}
	}
	return d, false
}

// drip admits one request in each part of the window, and a window's at the
// beginning.
func (s *Server) drip(bucket string, w *window, now time.Time) (denial, bool) {
	if w == nil || w.end.Before(now) {
		w = &window{end: now}
		s.windows[bucket] = w
	}
	every := s.Window / time.Duration(s.Limit)
	if wait := w.end.Add(every - s.Window).Sub(now); wait > 0 {
		return denial{left: wait}, false
	}
	w.end = w.end.Add(every)
	return denial{}, true
}
