package idem

import (
	"log/slog"
	"testing"
	"time"
)

// The defaults are what the documentation says.
func TestDefaults(t *testing.T) {
	want := Options{
		Lease: 15 * time.Second, Retention: 24 * time.Hour, Wait: 10 * time.Second, Timeout: 2 * time.Second,
		Waiters: 4096, WaitersPerOwner: 256, ExecutionsPerOwner: 1024, Logger: slog.Default(),
	}
	if got := (Options{}).withDefaults(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
