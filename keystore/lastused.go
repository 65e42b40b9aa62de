package keystore

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// LastUsedOptions configures a [LastUsed]. The zero value is ready to use.
type LastUsedOptions struct {
	Interval time.Duration // how often [LastUsed.Run] writes; zero means 60 s. The console expects less than an hour
	Logger   *slog.Logger  // told of failed and dropped writes; nil means slog.Default
}

// LastUsed records when keys were used, from where and with which scopes, and
// writes that in batches, at most once for each key in an interval. If the
// process dies, what was not written yet is lost: the uses of one interval, or
// those since the store began to fail.
//
// A program calls Record for each request that was let in, and [Caller.Needed]
// when its scopes are checked, and runs Run beside the server. A key that was
// used takes about 250 bytes until it is written, and 160 while a [Cached]
// remembers it. A LastUsed is safe for concurrent use.
type LastUsed struct {
	toucher Toucher
	options LastUsedOptions
	room    int // how many tallies may wait to be written

	due atomic.Pointer[time.Time] // for Run or a flush; nil after one, and when a line says that there was none

	mu      sync.Mutex
	pending map[tallyID]*tally
	dropped int64 // requests for which there was no room, since the last flush
}

// A tally is the uses of a key on one day until they are written. A Caller
// points to its latest one, so that a request takes the lock of its key alone.
type tally struct {
	tallyID
	lastUsed *LastUsed
	second   atomic.Int64 // since 1970, in which the address was asked for

	mu    sync.Mutex
	taken bool // by a flush: what follows goes to another tally
	used
}

type tallyID struct {
	organization, id string
	day              int64           // since 1970, in UTC
	registry         *scope.Registry // of the scopes
}

type used struct {
	at       time.Time
	from     netip.Addr
	asked    bool // from was asked for, and may be zero nevertheless
	requests int64
	scopes   scope.Set
}

const (
	touchBatch   = 1000             // uses that one call to the store has at most
	touchTimeout = 10 * time.Second // for each call
	maxPending   = 100_000          // keys that wait to be written, counted once for each day
)

// NewLastUsed returns a LastUsed that writes to t. It panics when t is nil or
// the interval is negative.
func NewLastUsed(t Toucher, o LastUsedOptions) *LastUsed {
	if absent(t) {
		panic("keystore: NewLastUsed with a nil Toucher")
	}
	o.Interval = orDefault("Interval", o.Interval, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	l := &LastUsed{toucher: t, options: o, room: maxPending, pending: make(map[tallyID]*tally)}
	due := time.Now().Add(o.Interval + time.Minute)
	l.due.Store(&due)
	return l
}

// Record notes that the key of c is used now, by one request. from returns the
// client's address, which may be zero; it is asked once a second at most.
// Record never waits for the store, and does not allocate for a key that is
// waiting to be written already. When 100,000 keys are waiting, the use of
// another one is dropped.
func (l *LastUsed) Record(c *Caller, from func() netip.Addr) {
	now := time.Now()
	if due := l.due.Load(); due != nil && now.After(*due) && l.due.CompareAndSwap(due, nil) {
		l.options.Logger.Warn("keystore: LastUsed.Run was not started, no use of a key is written")
	}
	second := now.Unix()
	id := tallyID{c.Organization(), c.ID(), second / secondsOfDay, c.granted.Registry()}
	u := used{at: now, requests: 1}
	if t := c.tally.Load(); t.isOf(l, &id) && t.second.Load() == second && t.add(&u) {
		return
	}
	u.from, u.asked = from(), true
	l.note(c, &id, &u)
}

const secondsOfDay = 24 * 60 * 60

// Needed notes, for the [LastUsed] that has recorded c last, that a request
// needed those of the required scopes that c holds, or in place of one that c
// does not hold those that imply it. It does nothing for a caller that was not
// recorded.
func (c *Caller) Needed(required scope.Set) {
	if t := c.tally.Load(); t != nil && c.granted.HasAny(required) {
		t.lastUsed.note(c, &t.tallyID, &used{scopes: c.granted.Granting(required)})
	}
}

// note adds u to the tally of this id.
func (l *LastUsed) note(c *Caller, id *tallyID, u *used) {
	if t := c.tally.Load(); t.isOf(l, id) && t.add(u) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.pending[*id]
	switch {
	case t != nil:
	case len(l.pending) < l.room:
		t = &tally{tallyID: *id, lastUsed: l}
		l.pending[*id] = t
	default:
		l.dropped += u.requests
		return
	}
	t.add(u) // no flush takes a tally that is pending
	c.tally.Store(t)
}

func (t *tally) isOf(l *LastUsed, id *tallyID) bool {
	return t != nil && t.lastUsed == l && (&t.tallyID == id || t.tallyID == *id)
}

// add adds u to t, or reports that t was taken.
func (t *tally) add(u *used) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken {
		return false
	}
	if u.at.After(t.at) {
		t.at = u.at
		if u.asked {
			t.from, t.asked = u.from, true
			t.second.Store(u.at.Unix())
		}
	}
	t.requests += u.requests
	t.scopes = t.scopes.Union(u.scopes)
	return true
}

func (t *tally) take(taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = taken
}

// use returns what a tally that was taken holds.
func (t *tally) use() Use {
	u := Use{Organization: t.organization, ID: t.id, At: t.at, From: t.from, Requests: t.requests}
	if t.at.IsZero() { // the request came before a flush, and its scopes were checked after it
		u.At = time.Unix(t.day*secondsOfDay, 0)
	}
	if t.scopes != (scope.Set{}) {
		u.Scopes = t.scopes.Names()
	}
	return u
}

// flush writes what has been recorded. After an error the uses that were not
// written are kept for the next one.
func (l *LastUsed) flush(ctx context.Context) error {
	tallies, dropped := l.take()
	if dropped > 0 {
		l.options.Logger.Warn("keystore: uses of keys were dropped, too many were waiting to be written", "uses", dropped)
	}
	for len(tallies) > 0 {
		n := min(len(tallies), touchBatch)
		if err := l.touch(ctx, tallies[:n]); err != nil {
			l.putBack(tallies)
			return err
		}
		tallies = tallies[n:]
	}
	return nil
}

func (l *LastUsed) touch(ctx context.Context, tallies []*tally) error {
	uses := make([]Use, len(tallies))
	for i, t := range tallies {
		uses[i] = t.use()
	}
	ctx, cancel := context.WithTimeout(ctx, touchTimeout)
	defer cancel()
	return l.toucher.Touch(ctx, uses)
}

func (l *LastUsed) take() (tallies []*tally, dropped int64) {
	l.due.Store(nil)
	l.mu.Lock()
	pending := l.pending
	l.pending = make(map[tallyID]*tally)
	dropped, l.dropped = l.dropped, 0
	l.mu.Unlock()
	for _, t := range pending {
		t.take(true)
		tallies = append(tallies, t)
	}
	return tallies, dropped
}

func (l *LastUsed) putBack(tallies []*tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tallies {
		switch next := l.pending[t.tallyID]; {
		case next != nil:
			next.add(&t.used)
		case len(l.pending) < l.room:
			t.take(false)
			l.pending[t.tallyID] = t
		default:
			l.dropped += t.requests
		}
	}
}

// Run writes what has been recorded every Interval until ctx ends, then once
// more, and returns the error of that last write. A program waits for it after
// the server has shut down.
func (l *LastUsed) Run(ctx context.Context) error {
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
