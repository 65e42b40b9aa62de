package keystore

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/sallyport-go/sallyport/scope"
)

// CacheOptions configures a [Cached]. The zero value is ready to use.
type CacheOptions struct {
	// TTL is how long a key is used without asking the store again, counted
	// from the moment the store was asked. It bounds how long a revocation
	// made elsewhere can go unnoticed. Zero means 30 s.
	TTL time.Duration

	// NegativeTTL is how long it is remembered that a token has no key, or one
	// that is refused. It bounds how long a key made elsewhere stays unknown.
	// Zero means 5 s.
	NegativeTTL time.Duration

	// Size is the number of usable keys that are remembered, about 700 bytes
	// each. Beyond it goes the one that was not used for longest, to about a
	// second. Zero means 100,000.
	Size int

	// NegativeSize is the number of refusals that are remembered, about 200
	// bytes each. They have room of their own, so that no flood of made-up
	// tokens drives out a key. Zero means 100,000.
	NegativeSize int

	// Timeout bounds one question to the store, and so the wait of everybody
	// who waits for its answer. Zero means 2 s; it is never longer than TTL.
	Timeout time.Duration

	// Loads is how many questions may be open at the store at once. Zero means
	// 64.
	Loads int

	// Registry is what keys are bound to. Nil means [scope.Contract].
	Registry *scope.Registry

	// FeedInterval is how often [Cached.Run] asks for changes. Zero means 5 s.
	FeedInterval time.Duration

	// Logger is told when the feed fails and when it is back, when the store
	// panics, and once of each scope that keys have and Registry does not. Nil
	// means [slog.Default].
	Logger *slog.Logger
}

// Cached remembers what a [Store] says about a token, and keeps the store safe
// from the rest:
//
//   - Concurrent lookups of one token ask the store once. The question does not
//     end when the client that caused it leaves, and nobody waits for it longer
//     than Timeout or than their own context.
//   - At most Loads questions are open at once, also when the store does not
//     heed its context. A lookup beyond that fails with [ErrOverloaded] without
//     waiting: anybody can make up tokens with a valid checksum.
//   - Only answers are remembered. An error other than [ErrNotFound] is passed
//     on, and the next lookup asks again.
//   - Insert and Update through the Cached, [Cached.Forget] and the feed drop
//     what is remembered, and a question that was asked before them is neither
//     remembered when its answer arrives nor given to a lookup that began after
//     them.
//
// A Cached is a [Manager], a [Toucher] and a [Feed] as far as its store is;
// what the store lacks returns an error that wraps [errors.ErrUnsupported]. It
// is safe for concurrent use, and starts no goroutine that outlives the
// question it was started for.
type Cached struct {
	store   Store
	options CacheOptions
	epoch   time.Time // deadlines count from here, by the monotonic clock
	answers *answers
	flights singleflight.Group
	slots   chan struct{} // one element for each question that is open
	unknown unknownScopes // that were reported
	polled  atomic.Int64  // when the last poll of the feed that succeeded began; 0: none
}

// NewCached returns a Cached in front of s. It panics when s is nil or an
// option is negative.
func NewCached(s Store, o CacheOptions) *Cached {
	if s == nil {
		panic("keystore: NewCached with a nil Store")
	}
	o = o.withDefaults()
	return &Cached{
		store:   s,
		options: o,
		epoch:   time.Now(),
		answers: newAnswers(o.Size, o.NegativeSize),
		slots:   make(chan struct{}, o.Loads),
	}
}

func (o CacheOptions) withDefaults() CacheOptions {
	o.TTL = orDefault("TTL", o.TTL, 30*time.Second)
	o.NegativeTTL = orDefault("NegativeTTL", o.NegativeTTL, 5*time.Second)
	o.Size = orDefault("Size", o.Size, 100_000)
	o.NegativeSize = orDefault("NegativeSize", o.NegativeSize, 100_000)
	// An answer that took longer than TTL would be too old to be used.
	o.Timeout = min(orDefault("Timeout", o.Timeout, 2*time.Second), o.TTL)
	o.Loads = orDefault("Loads", o.Loads, 64)
	o.FeedInterval = orDefault("FeedInterval", o.FeedInterval, 5*time.Second)
	if o.Registry == nil {
		o.Registry = scope.Contract()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func orDefault[T int | time.Duration](name string, value, fallback T) T {
	if value < 0 {
		panic(fmt.Sprintf("keystore: negative %s", name))
	}
	if value == 0 {
		return fallback
	}
	return value
}

// Lookup implements [Store]. What it returns is bound to the registry and
// shared with other callers. The caller asks [Key.Refused]: a key that was
// usable when it was loaded may have expired since.
//
// Besides [ErrNotFound] and the errors of the store it returns [ErrOverloaded],
// an error that wraps [ErrCorrupt], one that wraps [context.DeadlineExceeded]
// after Timeout, and the error of ctx when that ends first. A remembered answer
// is given without looking at ctx.
//
// A lookup that is answered from memory does not allocate.
func (c *Cached) Lookup(ctx context.Context, d Digest) (*Key, error) {
	if k, ok, err := c.answers.get(d, c.now()); ok {
		return k, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.load(ctx, d)
}

// Peek returns the key only if it is remembered and usable now. It never asks
// the store and does not wait.
func (c *Cached) Peek(d Digest) (*Key, bool) {
	now := c.now()
	found := c.answers.find(d, now)
	if found == nil || found.deadline <= now || found.key.RefusedNow() != nil {
		return nil, false
	}
	return &found.key, true
}

// Remembers reports whether the token was usable when the store was last asked,
// though the answer may be too old by now. It never asks the store, and nobody but
// who held a live key can bring it about.
func (c *Cached) Remembers(d Digest) bool { return c.answers.accepts.Contains(d) }

// Forget drops what is remembered of a token. A lookup that begins after Forget
// has returned asks the store.
func (c *Cached) Forget(d Digest) { c.answers.forget(d) }

// after saturates, for a time that is meant to have no end.
func after(t, d time.Duration) time.Duration { return t + min(d, math.MaxInt64-t) }

// now returns the time of the monotonic clock, which no correction of the wall
// clock moves.
func (c *Cached) now() time.Duration { return time.Since(c.epoch) }
