package keystore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// What a [Cached] adds to the errors of its store. Like most of those, neither
// means that the token has no key.
var (
	// ErrOverloaded is returned while as many lookups are running as may.
	ErrOverloaded = errors.New("keystore: too many lookups are running")

	// ErrCorrupt is wrapped when the store returned a record that cannot
	// belong to the token: another digest, or an environment that does not
	// exist. Nobody may be let in with it, and somebody must look at the store.
	ErrCorrupt = errors.New("keystore: record is corrupt")
)

// load asks the store, together with everybody else who wants the same.
func (c *Cached) load(ctx context.Context, d Digest) (*Key, error) {
	// The generation is part of the name, so that whoever comes after a
	// revocation never joins a question that was asked before it.
	generation := c.answers.generation(d)
	name := string(binary.BigEndian.AppendUint64(d[:], generation))
	detached := context.WithoutCancel(ctx)
	landing := c.flights.DoChan(name, func() (any, error) {
		return c.fly(detached, d, generation)
	})
	select {
	case landed := <-landing:
		k, _ := landed.Val.(*Key)
		return k, landed.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fly asks the store once, remembers the answer and returns it. It ends within
// Timeout, whatever the store does.
func (c *Cached) fly(ctx context.Context, d Digest, generation uint64) (*Key, error) {
	began := c.now()
	// Another flight may have landed between the caller's look and this one.
	if k, ok, err := c.answers.get(d, began); ok {
		return k, err
	}
	k, err := c.ask(ctx, d, after(began, c.options.Timeout))
	switch {
	case errors.Is(err, ErrNotFound):
		c.answers.refuse(d, generation, answer{nil, after(began, c.options.NegativeTTL)})
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	}
	if err := check(k, d); err != nil {
		return nil, err
	}
	k = k.Bind(c.options.Registry)
	c.reportUnknown(k)
	if k.RefusedNow() != nil {
		c.answers.refuse(d, generation, answer{k, after(began, c.options.NegativeTTL)})
		return k, nil
	}
	found := &accepted{deadline: after(began, c.options.TTL), key: *k}
	found.used.Store(int64(began))
	c.answers.accept(d, generation, found)
	return &found.key, nil
}

// ask puts the question in a goroutine of its own, which holds its slot until
// the store returns, also when that is long after everybody has gone.
func (c *Cached) ask(ctx context.Context, d Digest, deadline time.Duration) (*Key, error) {
	select {
	case c.slots <- struct{}{}:
	default:
		return nil, ErrOverloaded
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	type reply struct {
		key *Key
		err error
	}
	replies := make(chan reply, 1)
	go func() {
		r := reply{err: errors.New("keystore: the store ended the goroutine of a lookup")}
		defer func() {
			// On the goroutine of a request net/http would have caught this.
			if p := recover(); p != nil {
				c.options.Logger.Error("keystore: the store panicked", "panic", p, "stack", string(debug.Stack()))
				r.err = fmt.Errorf("keystore: the store panicked: %v", p)
			}
			<-c.slots
			replies <- r
		}()
		r.key, r.err = c.store.Lookup(ctx, d)
	}()
	select {
	case r := <-replies:
		// Both cases may have become ready while the process stood still, and
		// then the reply may be any age.
		if c.now() < deadline {
			return r.key, r.err
		}
	case <-ctx.Done():
	}
	return nil, fmt.Errorf("keystore: the store did not answer within %v: %w", c.options.Timeout, context.DeadlineExceeded)
}

// check returns an error when k cannot be the record of d. It fails closed: a
// mixed-up row must not let one organization act as another.
func check(k *Key, d Digest) error {
	switch {
	case k == nil:
		return fmt.Errorf("%w: the store returned neither a key nor an error", ErrCorrupt)
	case k.Digest != d:
		return fmt.Errorf("%w: key %q came for the digest of another one", ErrCorrupt, k.ID)
	case !k.Environment.Known():
		return fmt.Errorf("%w: key %q is of environment %q", ErrCorrupt, k.ID, k.Environment)
	}
	return nil
}
