package ratelimit

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

var (
	errOpen     = errors.New("ratelimit: store not called after failures in a row")
	errCrowded  = errors.New("ratelimit: too many calls of the store have not returned")
	errTimeout  = errors.New("ratelimit: no answer within the timeout")
	errNoReturn = errors.New("ratelimit: store ended its goroutine")
)

const (
	maxFailures = 5           // in a row, which open a breaker
	cooldown    = time.Second // from then to the probe
)

// maxCalls bounds the goroutines of a Failover whose store does not return.
const maxCalls = 1024

// breaker decides which calls reach a store. It is closed while the store
// answers. Failures in a row open it. Then one call at a time, the probe, finds
// out whether the store is back.
//
// Each call goes through begin, then through exactly one of answered, failed
// and abandoned, when its caller stops waiting, and through returned, when the
// store returns. These two come in either order.
type breaker struct {
	log   *slog.Logger
	probe func(outage int) // asks without requests, from when the breaker opens

	mu       sync.Mutex
	first    time.Time // when the first call began
	warm     bool      // the store has answered once
	running  int       // calls that have not returned
	failures int       // in a row
	cause    error     // the last of these that was not a timeout
	open     bool
	closed   int       // times, after it was open: the number of an outage
	since    time.Time // open since
	next     time.Time // when the next probe may start
	probing  bool      // a caller waits for a probe
	hung     int       // probes without a waiting caller that have not returned
}

// call is one that begin let through. The breaker's lock guards it.
type call struct {
	probe    bool
	closed   int // of the breaker, when it began
	returned bool
	hung     bool
}

// begin returns the reason if the store is not to be called.
func (b *breaker) begin() (*call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case b.open && (b.probing || now.Before(b.next)):
		return nil, errOpen
	case b.open:
		b.probing = true
	case b.running >= maxCalls:
		return &call{closed: b.closed}, errCrowded
	}
	if b.first.IsZero() {
		b.first = now
	}
	b.running++
	return &call{probe: b.open, closed: b.closed}, nil
}

// returned records that the store returned from c, however late.
func (b *breaker) returned(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	c.returned = true
	if c.hung {
		b.hung--
	}
}

// answered records that the store answered in time.
func (b *breaker) answered(c *call) {
	b.mu.Lock()
	closes, since := c.probe, b.since
	if closes {
		b.open, b.probing = false, false
		b.closed++
	}
	b.warm, b.failures, b.cause = true, 0, nil
	b.mu.Unlock()
	if closes {
		b.log.Info("the counter store answers again", "after", time.Since(since))
	}
}

// failed records a failure. It returns the error with what is known of it.
func (b *breaker) failed(c *call, err error) error {
	b.mu.Lock()
	now := time.Now()
	late := errors.Is(err, errTimeout)
	switch {
	case !late:
		b.cause = err
	case b.cause == nil:
		err = fmt.Errorf("%w; if the store usually needs longer, raise FailoverOptions.Timeout", err)
	default:
		// A client that is refused a connection tries again until its time ends,
		// and says only now and then why.
		err = fmt.Errorf("%w; the store's last error: %w", err, b.cause)
	}
	connecting := late && !b.warm && now.Sub(b.first) < cooldown
	if !connecting && c.closed == b.closed { // a call from before the last outage says nothing new
		b.failures++
	}
	opens := !b.open && b.failures >= maxFailures
	if opens {
		b.open, b.since, b.next = true, now, now.Add(cooldown)
		b.probe(b.closed)
	}
	b.giveUp(c)
	b.mu.Unlock()
	if opens {
		b.log.Warn("the counter store fails; each policy follows its fallback until it is back", "error", err)
	}
	return err
}

// lasts reports whether an outage is not over.
func (b *breaker) lasts(outage int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open && b.closed == outage
}

// abandoned records that the caller left, which says nothing about the store.
func (b *breaker) abandoned(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveUp(c)
}

// giveUp lets the next probe start after the cooldown. Each probe that still
// hangs doubles that time, so a store that never returns holds few goroutines.
func (b *breaker) giveUp(c *call) {
	if !c.probe {
		return
	}
	b.probing = false
	if !c.returned {
		c.hung = true
		b.hung++
	}
	b.next = time.Now().Add(cooldown << min(b.hung, 16))
}
