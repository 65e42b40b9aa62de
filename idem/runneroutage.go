package idem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"
	"weak"
)

const (
	outageFailures = 5           // in a row, until the store is not asked for claims
	outageProbe    = time.Second // from one question to the next while it fails
)

// Why the store was not asked.
var (
	errOutage    = errors.New("idem: the store was not asked, because it failed several times in a row")
	errNotCalled = errors.New("idem: too many calls of the store have not returned")
	errUndoing   = errors.New("idem: the store has failed too often; claims are being undone")
)

// outage is a circuit breaker for claims. After five failures in a row it lets
// one call a second through, and the others fail at once: without it each
// request would wait for the whole timeout. Outcomes are saved all the same.
//
// Each shard has one.
type outage struct {
	mu       sync.Mutex
	failures int
	last     error     // the store's last error
	since    time.Time // when the first of the failures was told
	answered time.Time // when the store last did
	next     time.Time // when the store may be asked again

	probing bool   // somebody asks without requests
	probe   func() // begins that

	calls context.Context // of Joins under way: it ends when the store is not asked any more
	end   context.CancelFunc
}

// open reports whether the store is not asked. o.mu is held.
func (o *outage) open() bool { return o.failures >= outageFailures }

func (o *outage) lasts() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open()
}

// untilOpen returns a context that ends when others are not asked any more, or
// when the store fails once more while they are not.
func (o *outage) untilOpen() context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls == nil {
		o.calls, o.end = context.WithCancel(context.Background())
	}
	return o.calls
}

// asks returns the time and nil if the store is to be asked now, else why it is
// not.
func (o *outage) asks() (now time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now = time.Now()
	if !o.open() {
		return now, nil
	}
	if now.Before(o.next) {
		return now, fmt.Errorf("%w; the last time: %v", errOutage, o.last)
	}
	o.next = now.Add(outageProbe)
	return now, nil
}

// probesOn reports whether the outage is to be probed again.
func (o *outage) probesOn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probing = o.open()
	return o.probing
}

// told records whether the store answered. It returns how long it did not, if
// this is the end of an outage, else 0. A call that began before the last answer
// says nothing new if it fails, and one that began before an outage says nothing
// of its end.
func (o *outage) told(err error, began time.Time) (over time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now() // under the lock: who is next reads no earlier time
	switch answers := err == nil || errors.Is(err, ErrFull); {
	case answers && o.open() && began.Before(o.since):
		return 0
	case answers:
		if o.open() {
			over = max(now.Sub(o.since), 1)
		}
		o.failures, o.answered = 0, now
		return over
	case began.Before(o.answered):
		return 0
	}
	if o.failures++; o.failures == 1 {
		o.since = now
	}
	if o.failures == 1 || err != errUndoing && err != errNotCalled {
		o.last = err
	}
	o.next = now.Add(outageProbe)
	if o.open() && o.calls != nil {
		o.end()
		o.calls = nil
	}
	if o.open() && !o.probing {
		o.probing = true
		o.probe()
	}
	return 0
}

// told is that of the outage, and logs its end.
func (b *backend) told(ctx context.Context, s *shard, err error, began time.Time) {
	if over := s.outage.told(err, began); over > 0 {
		b.options.Logger.InfoContext(ctx, "the reply store answers again", "after", over)
	}
}

// probeLater asks a shard that fails for a claim, and again about once a second
// until it answers, the Runner drains or is not used any more. Between two
// questions there is a timer, and no goroutine.
func (b *backend) probeLater(s *shard) {
	// Neither keeps the other in use.
	unused, name, draining := weak.Make(b), s.name, b.options.Draining
	time.AfterFunc(outageProbe+mathrand.N(outageProbe/4), func() {
		select {
		case <-draining:
			return
		default:
		}
		if b := unused.Value(); b != nil {
			b.probeNow(b.named(name))
		}
	})
}

func (b *backend) probeNow(s *shard) {
	key, found := b.keyOf(s)
	if b.gone(s, found) {
		return
	}
	if found {
		if began, err := s.outage.asks(); err == nil {
			b.told(context.Background(), s, b.probe(s, key), began)
		}
	}
	if s.outage.probesOn() {
		b.probeLater(s)
	}
}

// probe makes a claim that lapses at once, since a store may be able to read
// and not to write.
func (b *backend) probe(s *shard, key Key) error {
	c := Claim{Key: key, Tenant: "probe", Lease: outageProbe, Retention: outageProbe}
	rand.Read(c.Token[:])
	_, _, err := b.call(context.Background(), s.begins, b.options.Timeout, func(ctx context.Context) (reply, error) {
		if _, err := b.store.Begin(ctx, c); err != nil {
			return reply{}, err
		}
		free := Settlement{Outcome: OutcomeFree, Retention: c.Retention}
		_ = b.store.Settle(ctx, c.Key, c.Token, free) // or it lapses
		return reply{}, nil
	})
	return err
}
