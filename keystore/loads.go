package keystore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// What a [Cached] adds to the errors of its store. Like those, neither means
// that the key is invalid.
var (
	// ErrOverloaded is returned while as many lookups are running as may.
	ErrOverloaded = errors.New("keystore: too many lookups are running")

	// ErrCorrupt is wrapped when the store returned a record that cannot
	// belong to the token: another digest, or an environment that does not
	// exist. The key must be refused and somebody must look at the store.
	ErrCorrupt = errors.New("keystore: record is corrupt")
)

// load asks the store, together with everybody else who wants the same.
func (c *Cached) load(ctx context.Context, s *shard, d Digest) (*Key, error) {
	// The generation is part of the name, so that whoever comes after a
	// revocation never joins a question that was asked before it.
	generation := s.currentGeneration()
	name := string(binary.BigEndian.AppendUint64(d[:], generation))
	detached := context.WithoutCancel(ctx)
	answered := c.flights.DoChan(name, func() (any, error) {
		return c.fly(detached, s, d, generation)
	})
	select {
	case a := <-answered:
		k, _ := a.Val.(*Key)
		return k, a.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fly asks the store once, remembers the answer and returns it. It ends within
// Timeout, whatever the store does.
func (c *Cached) fly(ctx context.Context, s *shard, d Digest, generation uint64) (*Key, error) {
	began := c.now()
	// Another flight may have landed between the caller's look and this one.
	if k, err, ok := s.remembered(d, began); ok {
		return k, err
	}
	k, err := c.ask(ctx, d, began+c.options.Timeout)
	switch {
	case errors.Is(err, ErrNotFound):
		s.remember(d, generation, false, entry{nil, began + c.options.NegativeTTL})
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	}
	if err := check(k, d); err != nil {
		return nil, err
	}
	k = k.Bind(c.options.Registry)
	if k.Refused(time.Now()) == nil {
		s.remember(d, generation, true, entry{k, began + c.options.TTL})
	} else {
		s.remember(d, generation, false, entry{k, began + c.options.NegativeTTL})
	}
	return k, nil
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
	type answer struct {
		key *Key
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		a := answer{err: errors.New("keystore: the store ended the goroutine of a lookup")}
		defer func() {
			// On the goroutine of a request net/http would have caught this.
			if p := recover(); p != nil {
				a.err = fmt.Errorf("keystore: the store panicked: %v", p)
			}
			<-c.slots
			answers <- a
		}()
		a.key, a.err = c.store.Lookup(ctx, d)
	}()
	select {
	case a := <-answers:
		// Both cases may have become ready while the process stood still, and
		// then the answer may be any age.
		if c.now() < deadline {
			return a.key, a.err
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
