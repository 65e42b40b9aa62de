package keystore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// maxStaleness is that of CacheStats. A poll begins a FeedInterval after the last
// one began, or when the last one ends, and takes up to Timeout.
func (c *Cached) maxStaleness() time.Duration {
	bound := after(max(c.options.FeedInterval, c.options.Timeout), c.options.Timeout)
	if last := time.Duration(c.polled.Load()); last != 0 && c.now()-last <= bound {
		return min(c.options.TTL, bound)
	}
	return c.options.TTL
}

// Run forgets each key that the store's feed says is new or has changed, until
// ctx ends, and returns nil then. When it starts it forgets everything, because
// it cannot know what changed before. It returns an error that wraps
// [errors.ErrUnsupported] at once when the store has no Changes of an
// issuing.Store.
//
// A named key evicts none that is remembered, and the store is not asked for it:
// an import of many keys does not empty the cache.
//
// A feed that fails is asked again an interval later; meanwhile keys are
// forgotten after TTL. While lookups fail, the feed is asked about once a second
// too.
func (c *Cached) Run(ctx context.Context) error {
	f, ok := c.store.(feed)
	if !ok {
		return fmt.Errorf("keystore: Cached.Run has nothing to do, leave it out: %T has no Changes: %w",
			c.store, errors.ErrUnsupported)
	}
	c.runChecked.Store(true)
	c.ended.Store(false)
	defer c.ended.Store(true)
	defer c.polled.Store(0)
	var position string
	failing := false
	for ctx.Err() == nil {
		began := c.now()
		next, err := c.poll(ctx, f, position)
		position = next
		switch {
		case err == nil:
			c.polled.Store(int64(max(began, 1))) // zero means never
			if failing {
				c.options.Logger.Info("keystore: the feed of changes is back")
			}
		case !failing && ctx.Err() == nil:
			c.options.Logger.Warn("keystore: the feed of changes fails, revocations elsewhere take longer to be noticed",
				"error", err, "max_staleness", c.options.TTL)
		}
		failing = err != nil
		pause := c.options.FeedInterval - (c.now() - began)
		if c.outage.lasts() {
			pause = min(pause, outageProbe+rand.N(outageProbe/4))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// noticeNoRun logs once, a minute after NewCached, that Run was not called.
func (c *Cached) noticeNoRun(now time.Duration) {
	if now >= time.Minute && !c.runChecked.Load() && !c.runChecked.Swap(true) && c.needsRun() {
		c.options.Logger.Warn("keystore: Cached.Run was not started, revocations elsewhere take longer to be noticed",
			"max_staleness", c.maxStaleness())
	}
}

// needsRun reports whether others may change keys, and the store has a feed.
func (c *Cached) needsRun() bool {
	_, has := c.store.(feed)
	_, alone := c.store.(interface{ ChangedHereOnly() })
	return has && !alone
}

// poll forgets what changed since position and returns the new one, which is
// empty when the next poll has to start again.
func (c *Cached) poll(ctx context.Context, f feed, position string) (string, error) {
	for {
		asked, cancel := context.WithTimeout(ctx, c.options.Timeout)
		changed, next, err := f.Changes(asked, position)
		cancel()
		if position != "" && errors.Is(err, ErrNotFound) {
			// Forget now, because the next poll may fail.
			c.Invalidate()
			c.options.Logger.Info("keystore: the feed of changes does not know where it was, as after a failover; " +
				"all keys are looked up again")
			position = ""
			continue
		}
		if err != nil {
			return position, err
		}
		if position == "" {
			// Only now: what is loaded from here on is at least as new as next.
			c.Invalidate()
			return next, nil
		}
		for _, d := range changed {
			c.Invalidate(d)
		}
		// A feed that reads a little back, for writes that commit late, can
		// name the same changes again at the same position.
		if len(changed) == 0 || next == position {
			return next, nil
		}
		position = next
	}
}
