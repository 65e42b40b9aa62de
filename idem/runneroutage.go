package idem

import (
	"errors"
	"sync"
	"time"
)

const (
	outageFailures = 5           // in a row, until the store is not asked for claims
	outageProbe    = time.Second // from one question to the next while it fails
)

var errOutage = errors.New("idem: the store was not asked, because it failed several times in a row")

// outage is a circuit breaker for claims. After five failures in a row it lets
// one call a second through, and the others fail at once: without it each
// request would wait for the whole timeout.
//
// It does not apply to outcomes. The executions that have one keep trying to
// save it.
type outage struct {
	mu       sync.Mutex
	failures int
	next     time.Duration // when the store may be asked again
}

// asks reports whether the store is to be asked now.
func (o *outage) asks(now time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures < outageFailures {
		return true
	}
	if now < o.next {
		return false
	}
	o.next = now + outageProbe
	return true
}

// told records whether the store answered.
func (o *outage) told(answered bool, now time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if answered {
		o.failures = 0
		return
	}
	o.failures++
	o.next = now + outageProbe
}
