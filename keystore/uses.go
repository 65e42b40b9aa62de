package keystore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/internal/arguments"
	"github.com/sallyport-go/sallyport/scope"
)

// UsesOptions configures a [Uses]. The zero value is ready to use.
type UsesOptions struct {
	Interval time.Duration // how often [Uses.Run] writes; zero means 60 s. The console expects less than an hour
	Logger   *slog.Logger  // told of failed and dropped writes; nil means slog.Default

	RefusedKeys bool // notes refusals of keys not in use too, such as revoked ones: one more write of each in an Interval
}

// Uses records when keys were used, from where and with which scopes, and
// writes that in batches, one in an interval. A batch has one [Use] of a key
// for each day, and one more for each of its children: the use of a child is
// one of its ancestors too. If the process dies, the uses of one interval are
// lost, or those since the store began to fail.
//
// A program calls Record for each request that was let in, and [Caller.Use]
// when its scopes are checked, and runs Run beside the server. A key that was
// used takes about 250 bytes until it is written, 70 more with a refusal, and 160
// while a [Cached] remembers it. Uses is safe for concurrent use.
type Uses struct {
	tallies
	store   useStore
	options UsesOptions

	due atomic.Pointer[time.Time] // for Run or a flush; nil after one, and when a line says that there was none
}

const (
	touchBatch   = 1000             // keys that one call to the store has at most, without their ancestors
	touchTimeout = 10 * time.Second // for each call
	maxPending   = 100_000          // keys that wait to be written, counted once for each day
)

// NewUses returns the Uses that writes to a store with AddUses of an issuing.Store,
// or behind a [Cached]. It panics for another one, or a negative interval.
func NewUses(keys Store, o UsesOptions) *Uses {
	if arguments.Absent(keys) {
		panic("keystore: NewUses with a nil store")
	}
	t, ok := keys.(useStore)
	if c, _ := cacheOf(keys); c != nil && !ok {
		keys = c.store
		t, ok = keys.(useStore)
	}
	if !ok {
		panic(fmt.Sprintf("keystore: NewUses with a %T, which does not keep when keys were last used", keys))
	}
	o.Interval = orDefault("Interval", o.Interval, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	l := &Uses{store: t, options: o}
	l.room, l.pending = maxPending, make(map[tallyID]*tally)
	due := time.Now().Add(o.Interval + time.Minute)
	l.due.Store(&due)
	return l
}

// Record notes that the key of c is used now, by one request; a caller without an
// API key has no use. from must not be nil; it returns the client's address, which
// may be zero, and is asked about once a second. Record never waits for the store,
// and does not allocate for a key that waits to be written already. When 100,000
// keys wait, the use of another one is dropped.
func (l *Uses) Record(c *Caller, from func() netip.Addr) {
	if c.KeyID() == "" {
		return
	}
	now := time.Now()
	if due := l.due.Load(); due != nil && now.After(*due) && l.due.CompareAndSwap(due, nil) {
		l.options.Logger.Warn("keystore: Uses.Run was not started, no use of a key is written")
	}
	second := now.Unix()
	id := tallyID{c.Organization(), c.KeyID(), second / secondsOfDay, c.granted.Registry()}
	u := used{at: now, requests: 1, of: c.more().child}
	if t := c.tally.Load(); t.isOf(&l.tallies, &id) && t.second.Load() == second && t.add(&u) {
		return
	}
	u.from, u.asked = from(), true
	l.note(&c.tally, &id, &u)
}

// Use records, for the Usage of an issuing.Issuer, that a request needed these
// scopes, or those by which c has them. It checks nothing, and does nothing for a
// caller that no [Uses] has recorded.
//
// Whatever checks scopes calls it: package middleware for a requirement, and a
// handler for each scope that it asks about with [Caller.Has]. Otherwise the
// console says that no request has needed the scope, and offers to take it away.
func (c *Caller) Use(names ...scope.Name) {
	t := c.who().tally.Load()
	if t == nil {
		return
	}
	if required, _ := c.granted.Registry().Parse(names); c.granted.HasAny(required) {
		t.all.note(&c.tally, &t.tallyID, &used{scopes: c.granted.Granting(required), of: c.more().child})
	}
}

// Refuse notes that a request with the key of c was refused, for the Usage of an
// issuing.Issuer: the first of a key in an Interval. One of a key without a use
// that waits to be written is noted with RefusedKeys alone. One that cannot be
// written is forgotten. route must not be nil; it is asked when the refusal is
// noted, and a pattern of over 256 bytes is left out.
//
// Refuse never waits for the store, and does not allocate for a key whose refusal
// waits to be written already.
func (l *Uses) Refuse(c *Caller, code string, route func() string) {
	if c.KeyID() == "" {
		return
	}
	now := time.Now()
	if l.options.RefusedKeys {
		id := tallyID{c.Organization(), c.KeyID(), now.Unix() / secondsOfDay, c.granted.Registry()}
		l.note(&c.tally, &id, &used{})
	}
	if t := c.tally.Load(); t != nil && t.all == &l.tallies && t.refused.Load() == nil {
		refused := &Refusal{At: now, Code: code, Route: route()}
		if len(refused.Route) > 256 {
			refused.Route = ""
		}
		t.refused.CompareAndSwap(nil, refused)
	}
}

// flush writes what has been recorded. What an error leaves is kept for the next.
func (l *Uses) flush(ctx context.Context) error {
	l.due.Store(nil)
	tallies, dropped := l.take()
	if dropped > 0 {
		l.options.Logger.Warn("keystore: uses of keys were dropped, too many were waiting to be written", "uses", dropped)
	}
	for len(tallies) > 0 {
		n := min(len(tallies), touchBatch)
		var uses []Use
		for _, t := range tallies[:n] {
			uses = append(uses, t.uses()...)
		}
		bounded, cancel := context.WithTimeout(ctx, touchTimeout)
		err := l.store.AddUses(bounded, uses)
		cancel()
		if err != nil {
			l.putBack(tallies)
			return err
		}
		tallies = tallies[n:]
	}
	return nil
}

// Run writes what has been recorded every Interval until ctx ends, then once
// more, and returns the error of that. A program waits for it after the server.
func (l *Uses) Run(ctx context.Context) error {
	l.due.Store(nil)
	ticks := time.NewTicker(l.options.Interval)
	failing := false
	for {
		select {
		case <-ctx.Done():
			return l.flush(context.WithoutCancel(ctx))
		case <-ticks.C:
			err := l.flush(ctx)
			switch {
			case err == nil && failing:
				l.options.Logger.Info("keystore: last uses of keys are written again")
			case err != nil && !failing && ctx.Err() == nil:
				l.options.Logger.Warn("keystore: last uses of keys could not be written and are kept", "error", err)
			}
			failing = err != nil
		}
	}
}
