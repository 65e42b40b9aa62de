package keystore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// maxLoads is how many questions about strange tokens may be open at the store
// at once, and how many about tokens that were usable before.
const maxLoads = 64

// A question is put to the store up to maxPuts times: at first, and when more
// than half of its time has passed, after each eighth of it.
const maxPuts = 4

// ask puts one question to the store and returns its answer, checked and bound,
// or an error at the deadline. One that may be on a dead connection is put again
// if several wait for it and there are enough places.
func (c *Cached) ask(
	ctx context.Context, d Digest, places chan struct{}, deadline time.Duration, shared *atomic.Bool,
) (*Caller, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline-c.now())
	defer cancel()
	if err := c.enter(ctx, places); err != nil {
		return nil, err
	}
	type reply struct {
		key *Key
		err error
	}
	replies := make(chan reply, maxPuts)
	// In a goroutine, because a store may ignore its context. The place is given
	// back when the store returns, even if nobody waits any more.
	put := func() {
		r := reply{err: errors.New("keystore: the store ended the goroutine of a lookup")}
		defer func() {
			// On the goroutine of a request net/http would have caught this.
			if p := recover(); p != nil {
				c.options.Logger.Error("keystore: the store panicked", "panic", p, "stack", string(debug.Stack()))
				r.err = fmt.Errorf("keystore: the store panicked: %v", p)
			}
			<-places
			replies <- r
		}()
		r.key, r.err = lookup(ctx, c.store, d)
	}
	go put()
	eighth := time.NewTicker(max(c.options.Timeout/8, 1))
	defer eighth.Stop()
	for passed := 0; ctx.Err() == nil; {
		select {
		case r := <-replies:
			// Of a process that was stopped for a while the reply may be old.
			if c.now() < deadline {
				return c.bound(r.key, r.err)
			}
		case <-eighth.C:
			passed++
			if 4 < passed && passed < 8 && shared.Load() && len(places) < cap(places)/2 && c.enter(ctx, places) == nil {
				go put()
			}
		case <-ctx.Done():
		}
	}
	return nil, fmt.Errorf("keystore: the store did not answer within %v: %w", c.options.Timeout,
		context.DeadlineExceeded)
}

// enter takes one of the places for questions.
func (c *Cached) enter(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	if places == c.strange {
		return ErrOverloaded
	}
	// Only tokens that were usable get here, so no flood can fill the queue.
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ErrOverloaded
	}
}

// bound returns an answer of the store as a lookup may pass it on. It logs each
// scope that the service does not have once, of 100 at most: that it grants
// nothing can surprise the owner of a key, as after a release was rolled back.
func (c *Cached) bound(k *Key, err error) (*Caller, error) {
	if err != nil {
		return nil, err
	}
	_, unknown := c.options.Service.Scopes.Parse(k.Scopes)
	for _, n := range unknown {
		if c.unknownCount.Load() >= 100 {
			break
		}
		if _, reported := c.unknownScopes.LoadOrStore(n, true); !reported && c.unknownCount.Add(1) <= 100 {
			c.options.Logger.Warn("keystore: a key has a scope that the service does not; it grants nothing",
				"scope", string(n), "key", k.ID)
		}
	}
	return k.Bind(c.options.Service.Scopes), nil
}
