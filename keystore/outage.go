package keystore

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
	"weak"
)

const (
	outageFailures = 5           // lookups in a row
	outageProbe    = time.Second // from one question without requests to the next
)

// outage counts the lookups in a row that the store did not answer.
type outage struct {
	mu       sync.Mutex
	failures int
	since    time.Duration // when the first of them failed
	answered time.Duration // when the store last did
	now      func() time.Duration
	probing  bool   // somebody asks without requests
	probe    func() // begins that
}

func (o *outage) lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failures >= outageFailures
}

// probesOn reports whether the store is to be probed again.
func (o *outage) probesOn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probing = o.failures >= outageFailures
	return o.probing
}

// told records the result of a lookup, and logs the end of an outage. A failure
// of one that began before the store's last answer says nothing, nor does an
// answer to one that began before the outage.
func (o *outage) told(err error, began time.Duration, l *slog.Logger) {
	if errors.Is(err, ErrOverloaded) || errors.Is(err, ErrCorrupt) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now, lasts := o.now(), o.failures >= outageFailures // under the lock: who is next reads no earlier time
	if err != nil && !errors.Is(err, ErrNotFound) {
		if began < o.answered {
			return
		}
		if o.failures++; o.failures == 1 {
			o.since = now
		}
		if o.failures >= outageFailures && !o.probing {
			o.probing = true
			o.probe()
		}
		return
	}
	if lasts {
		if began < o.since {
			return
		}
		l.Info("keystore: the store answers again", "after", now-o.since)
	}
	o.failures, o.answered = 0, now
}

// probeLater asks a store that fails for a digest that no token has, about once
// a second until it answers, Run has ended or nothing refers to the Cached.
// Between two questions there is a timer, and no goroutine.
func (c *Cached) probeLater() {
	unused := weak.Make(c)
	time.AfterFunc(outageProbe+rand.N(outageProbe/4), func() {
		c := unused.Value()
		if c == nil {
			return
		}
		if !c.ended.Load() {
			c.Invalidate(Digest{}) // the answer that ended an earlier outage
			c.caller(context.Background(), Digest{})
		}
		if c.outage.probesOn() {
			c.probeLater()
		}
	})
}
