package keystore

import (
	"context"
	"log/slog"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// WithDefaults returns the options as NewCached uses them.
func WithDefaults(o CacheOptions) CacheOptions { return o.withDefaults() }

// NewSecret returns a Secret that holds text.
func NewSecret(text string) Secret { return newSecret(text) }

// An Outage reads its clock under its lock.
type Outage struct{ outage }

// Told records a result at a time that now returns.
func (o *Outage) Told(err error, began time.Duration, now func() time.Duration, l *slog.Logger) {
	o.now, o.probe = now, func() {}
	o.told(err, began, l)
}

// Locked reports whether somebody holds the lock.
func (o *Outage) Locked() bool {
	free := o.mu.TryLock()
	if free {
		o.mu.Unlock()
	}
	return !free
}

// Flush writes what has been recorded.
func (l *Uses) Flush(ctx context.Context) error { return l.flush(ctx) }

// SetRoom changes how many keys may wait to be written, and returns what it was.
func (l *Uses) SetRoom(keys int) (before int) {
	before, l.room = l.room, keys
	return before
}

// Lookup returns the key of the token.
func (t *Token) Lookup(ctx context.Context, s Store) (*Key, error) {
	c, err := t.Caller(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	return c.key(), nil
}

// Digests returns the digests in the order in which they are asked for.
func (t *Token) Digests() []Digest { return t.digests[:t.n] }

// Bind returns the caller in another registry.
func (c *Caller) Bind(r *scope.Registry) *Caller { return c.bind(r) }

// Caller returns the caller of a digest.
func (c *Cached) Caller(ctx context.Context, d Digest) (*Caller, error) { return c.caller(ctx, d) }

// Peek returns the key of a digest that c remembers and that is usable now.
func (c *Cached) Peek(d Digest) (*Caller, bool) {
	for _, t := range []Token{{Environment: Production}, {Environment: Sandbox}, {Legacy: "any"},
		{Environment: Sandbox, Child: true}} {
		t.digests[0], t.n = d, 1
		if k, _ := t.Remembered(c, nil); k != nil {
			return k, true
		}
	}
	return nil, false
}

// Remembers reports whether the token was usable when the store was last asked.
func (c *Cached) Remembers(d Digest) bool { return c.wasUsable(d) }
