package middleware

import (
	"context"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// throttle limits how many requests with a wrong key one address may send (one
// /64 for IPv6). Each look-up reserves a failure first and refunds it unless
// the key is wrong. Concurrent requests with the same key share a reservation.
// A request without room waits if another look-up of its address may refund: an
// active key with a slow first look-up is not refused. Counters are per process.
type throttle struct {
	policy   ratelimit.Policy
	counters *ratelimit.Memory

	mu        sync.Mutex
	addresses map[string]*lookups // of addresses that have look-ups in flight
}

// lookups are the look-ups in flight of one address.
type lookups struct {
	reserved map[keystore.Digest]bool // until the first look-up of the digest has ended
	changed  chan struct{}            // closed when a reservation ends
}

// lookupTimeout bounds a look-up in a store that is not behind a
// keystore.Cached, which has a bound of its own.
const lookupTimeout = 5 * time.Second

func newThrottle(failures ratelimit.Limit) *throttle {
	if failures == (ratelimit.Limit{}) {
		return nil
	}
	return &throttle{
		policy:   ratelimit.Policy{Name: "failures", Limit: failures},
		counters: ratelimit.NewMemory(), addresses: make(map[string]*lookups),
	}
}

// take takes one failure from an address, or refuses.
func (t *throttle) take(ctx context.Context, address string) *Problem {
	d, err := t.counters.Take(ctx, []ratelimit.Charge{t.failure(address)})
	if err != nil {
		return refusal(codes.RateStore)
	}
	if !d.Allowed {
		p := refusal(codes.TooManyFailures)
		p.RetryAfter, p.Policy = d.Wait, t.policy.Name
		return p
	}
	return nil
}

func (t *throttle) failure(address string) ratelimit.Charge {
	return ratelimit.Charge{Policy: &t.policy, Bucket: address, Cost: 1}
}

// reserve takes one failure for the look-up of a digest, or refuses. release
// ends the look-up and gives the failure back unless it failed.
func (t *throttle) reserve(
	ctx context.Context, address string, digest keystore.Digest,
) (release func(failed bool), refused *Problem) {
	var timeout <-chan time.Time
	for {
		t.mu.Lock()
		l := t.addresses[address]
		if l != nil && l.reserved[digest] {
			t.mu.Unlock()
			return func(bool) {}, nil // the first look-up decides for both
		}
		refused = t.take(ctx, address)
		if refused == nil {
			if l == nil {
				l = &lookups{reserved: make(map[keystore.Digest]bool), changed: make(chan struct{})}
				t.addresses[address] = l
			}
			l.reserved[digest] = true
			t.mu.Unlock()
			return func(failed bool) { t.release(address, digest, failed) }, nil
		}
		if l == nil {
			t.mu.Unlock()
			return nil, refused
		}
		// Another look-up of this address may refund.
		changed := l.changed
		t.mu.Unlock()
		if timeout == nil {
			timer := time.NewTimer(lookupTimeout)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-changed:
		case <-timeout:
			return nil, refusal(codes.KeyStore) // the store is slow, which is not the client's fault
		}
	}
}

func (t *throttle) release(address string, digest keystore.Digest, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !failed {
		t.counters.Refund(t.failure(address))
	}
	l := t.addresses[address]
	delete(l.reserved, digest)
	close(l.changed)
	l.changed = make(chan struct{})
	if len(l.reserved) == 0 {
		delete(t.addresses, address)
	}
}
