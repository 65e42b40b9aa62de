package ratelimit

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

var (
	errLeftAlone = errors.New("left alone after failures in a row")
	errCrowded   = errors.New("too many calls under way")
)

// maxCalls bounds the goroutines of a Failover whose store does not return.
const maxCalls = 1024

// breaker decides which calls reach a store. It is closed while the store answers;
// failures in a row open it, and then one call at a time, the probe, finds out
// whether the store is back.
type breaker struct {
	limit    int           // failures in a row that open it
	cooldown time.Duration // from there to the probe
	log      *slog.Logger

	mu       sync.Mutex
	running  int // calls that have not returned
	failures int // in a row
	open     bool
	since    time.Time // open since
	next     time.Time // when the next probe may start
	probing  bool      // a probe is awaited
	hung     int       // probes that are awaited no more and have not returned
}

// call is one that the breaker let through.
type call struct {
	probe    bool
	returned bool
	hung     bool
}

// begin returns nil and the reason when the store is not to be called.
func (b *breaker) begin() (*call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.open && (b.probing || time.Now().Before(b.next)):
		return nil, errLeftAlone
	case b.open:
		b.probing = true
	case b.running >= maxCalls:
		return nil, errCrowded
	}
	b.running++
	return &call{probe: b.open}, nil
}

// returned notes that c came back from the store, however late.
func (b *breaker) returned(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	c.returned = true
	if c.hung {
		b.hung--
	}
}

// answered notes that the store did its work.
func (b *breaker) answered(c *call) {
	b.mu.Lock()
	closes, since := c.probe, b.since
	if closes {
		b.open, b.probing = false, false
	}
	b.failures = 0
	b.mu.Unlock()
	if closes {
		b.log.Info("rate limit store answers again", "after", time.Since(since))
	}
}

// failed notes that it did not.
func (b *breaker) failed(c *call, err error) {
	b.mu.Lock()
	b.failures++
	opens := !b.open && b.failures >= b.limit
	if opens {
		b.open, b.since, b.next = true, time.Now(), time.Now().Add(b.cooldown)
	}
	b.giveUp(c)
	b.mu.Unlock()
	if opens {
		b.log.Warn("rate limit store fails, every policy goes by its failure mode", "error", err)
	}
}

// abandoned notes that the caller left, which says nothing about the store.
func (b *breaker) abandoned(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveUp(c)
}

// giveUp lets another probe follow in due time. Each one that still hangs doubles
// that time, so that a store which never returns gathers next to no goroutines.
func (b *breaker) giveUp(c *call) {
	if !c.probe {
		return
	}
	b.probing = false
	if !c.returned {
		c.hung = true
		b.hung++
	}
	b.next = time.Now().Add(b.cooldown << min(b.hung, 16))
}
