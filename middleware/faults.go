package middleware

import (
	"sync/atomic"
	"time"
)

// faults logs that a store fails, at most once a second: while it does, every
// request would have a line, and anybody can send requests.
type faults struct {
	next   atomic.Int64 // when the next line may be written, in Unix nanoseconds
	silent atomic.Int64 // how many were not
}

func (f *faults) log(s *state, message string, err error) {
	now := time.Now().UnixNano()
	next := f.next.Load()
	if now < next || !f.next.CompareAndSwap(next, now+int64(time.Second)) {
		f.silent.Add(1)
		return
	}
	s.hooks.logger().Error(message, "error", err, "request_id", s.id, "unlogged", f.silent.Swap(0))
}
