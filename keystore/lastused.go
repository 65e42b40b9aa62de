package keystore

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LastUsedOptions configures a [LastUsed]. The zero value is ready to use.
type LastUsedOptions struct {
	Interval time.Duration // how often [LastUsed.Run] writes; zero means 60 s
	Logger   *slog.Logger  // told of failed and dropped writes; nil means slog.Default
}

// LastUsed records when keys were used and writes that in batches, at most once
// for each key in an interval. If the process dies, the uses that were not
// written yet are lost.
//
// A program calls Record for each request that was let in and runs Run beside
// the server. It is safe for concurrent use.
type LastUsed struct {
	toucher Toucher
	options LastUsedOptions
	room    int // how many keys may wait to be written

	mu      sync.Mutex
	pending map[keyID]time.Time
	dropped int       // uses of keys for which there was no room, since the last flush
	due     time.Time // for Run or a flush; zero after one, and when a line says that there was none
}

// keyID names a key with the organization it must belong to.
type keyID struct{ organization, id string }

const (
	touchBatch   = 1000             // uses that one call to the store has at most
	touchTimeout = 10 * time.Second // for each call
	maxPending   = 100_000          // keys that wait to be written
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
	return &LastUsed{
		toucher: t, options: o, room: maxPending,
		pending: make(map[keyID]time.Time),
		due:     time.Now().Add(o.Interval + time.Minute),
	}
}

// Record notes that k is used now. It never waits for the store, and does not
// allocate for a key that is waiting to be written already. When 100,000 keys
// are waiting, the use of another one is dropped.
func (l *LastUsed) Record(k *Key) {
	now := time.Now()
	l.mu.Lock()
	l.note(keyID{k.Organization, k.ID}, now)
	late := !l.due.IsZero() && now.After(l.due)
	if late {
		l.due = time.Time{}
	}
	l.mu.Unlock()
	if late {
		l.options.Logger.Warn("keystore: LastUsed.Run was not started, no use of a key is written")
	}
}

// note stores the later of at and the time noted before. The lock is held.
func (l *LastUsed) note(id keyID, at time.Time) {
	noted, ok := l.pending[id]
	switch {
	case ok && !at.After(noted):
	case ok || len(l.pending) < l.room:
		l.pending[id] = at
	default:
		l.dropped++
	}
}

// flush writes what has been recorded. After an error the uses that were not
// written are kept for the next one.
func (l *LastUsed) flush(ctx context.Context) error {
	uses, dropped := l.take()
	if dropped > 0 {
		l.options.Logger.Warn("keystore: uses of keys were dropped, too many were waiting to be written", "uses",
			dropped)
	}
	for len(uses) > 0 {
		n := min(len(uses), touchBatch)
		if err := l.touch(ctx, uses[:n]); err != nil {
			l.putBack(uses)
			return err
		}
		uses = uses[n:]
	}
	return nil
}

func (l *LastUsed) touch(ctx context.Context, uses []Use) error {
	ctx, cancel := context.WithTimeout(ctx, touchTimeout)
	defer cancel()
	return l.toucher.Touch(ctx, uses)
}

func (l *LastUsed) take() (uses []Use, dropped int) {
	l.mu.Lock()
	pending := l.pending
	l.pending = make(map[keyID]time.Time)
	dropped, l.dropped, l.due = l.dropped, 0, time.Time{}
	l.mu.Unlock()

	uses = make([]Use, 0, len(pending))
	for id, at := range pending {
		uses = append(uses, Use{Organization: id.organization, ID: id.id, At: at})
	}
	return uses, dropped
}

func (l *LastUsed) putBack(uses []Use) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range uses {
		l.note(keyID{u.Organization, u.ID}, u.At)
	}
}

// Run writes what has been recorded every Interval until ctx ends, then once
// more, and returns the error of that last write. A program waits for it after
// the server has shut down.
func (l *LastUsed) Run(ctx context.Context) error {
	l.mu.Lock()
	l.due = time.Time{}
	l.mu.Unlock()
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
