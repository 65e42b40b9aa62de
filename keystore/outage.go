package keystore

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	outageFailures = 5           // lookups in a row
	outageProbe    = time.Second // from one question of Run to the next
)

// outage counts the lookups in a row that the store did not answer.
type outage struct {
	mu       sync.Mutex
	failures int
	since    time.Duration // when the first of them failed
}

func (o *outage) lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failures >= outageFailures
}

// told records the result of a lookup, and logs the end of an outage.
func (o *outage) told(err error, now time.Duration, l *slog.Logger) {
	if errors.Is(err, ErrOverloaded) || errors.Is(err, ErrCorrupt) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && !errors.Is(err, ErrNotFound) {
		if o.failures++; o.failures == 1 {
			o.since = now
		}
		return
	}
	if o.failures >= outageFailures {
		l.Info("keystore: the store answers again", "after", now-o.since)
	}
	o.failures = 0
}
