package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// deadlineWriter keeps the write deadline that it is given.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *deadlineWriter) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

// TestWriteDeadline: a server's WriteTimeout does not cut off a keyed request
// that waits for another one, runs, and has its outcome begun and saved in the
// store, each for as long as it may.
func TestWriteDeadline(t *testing.T) {
	tests := []struct {
		name          string
		wait          time.Duration // for another request of the key
		server, after time.Duration // WriteTimeout, and the deadline of the request
	}{
		{"waits", 7 * time.Second, time.Second, (7 + 11 + 2*3 + 1) * time.Second},
		{"does not wait", -1, time.Second, (11 + 2*3 + 1) * time.Second},
		{"no WriteTimeout", 7 * time.Second, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ring := newKeyring()
				var runs atomic.Int64
				h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{
					Runner: replies(idem.Options{Wait: tt.wait, Timeout: 3 * time.Second}), Timeout: 11 * time.Second,
				}}, numbered(&runs, nil))
				r := request("POST", "/", ring.issue(t), "{}", "Idempotency-Key: a")
				r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{WriteTimeout: tt.server}))
				w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
				h.ServeHTTP(w, r)
				var want time.Time
				if tt.after > 0 {
					want = time.Now().Add(tt.after)
				}
				if w.Code != http.StatusCreated || !w.deadline.Equal(want) {
					t.Errorf("got %d and the deadline %v, want 201 and %v", w.Code, w.deadline, want)
				}
			})
		})
	}
}
