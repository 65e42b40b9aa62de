package idem

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// How Settle tries before it goes on in the background.
const (
	triesNow   = 3
	firstPause = 50 * time.Millisecond
)

// How long a task in the background waits before it tries again: twice as long each time.
const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 5 * time.Second
)

// saving is a settlement on its way to the store. One goroutine at a time works on it.
type saving struct {
	ctx        context.Context // of Settle, for its values
	settlement Settlement
	since      time.Duration // Runner.now when it began
	delay      time.Duration // before the next try in the background
	unheard    bool          // the store may have done it without saying so
}

// saveNow tries while the request waits, then leaves it to the background.
func (e *Execution) saveNow() error {
	r := e.runner
	if !r.atOnce {
		e.saving.since = r.now()
	}
	left := r.options.Timeout
	pause := firstPause
	for try := 1; ; try++ {
		err, final := e.save(left)
		if final {
			e.end(err)
			return err
		}
		left = e.saving.since + r.options.Timeout - r.now() - pause
		if try == triesNow || left <= 0 {
			e.saveLater(err)
			return fmt.Errorf("idem: not saved yet: %w", err)
		}
		time.Sleep(pause)
		pause *= 2
	}
}

// save calls the store once and reports whether that is the end of it.
func (e *Execution) save(timeout time.Duration) (err error, final bool) {
	r, s := e.runner, &e.saving
	err = r.settle(s.ctx, r.settles, e.flight.key, e.token, &s.settlement, timeout)
	switch {
	case err == nil:
		return nil, true
	case errors.Is(err, ErrLost):
		// A key that was freed without our hearing of it is gone, as it should be.
		if s.unheard && s.settlement.Outcome == NotStarted {
			return nil, true
		}
		r.lost.Add(1)
		return ErrLost, true
	case errors.Is(err, ErrSettled):
		return ErrSettled, true
	}
	s.unheard = true
	r.saveErrors.Add(1)
	return err, false
}

// saveLater goes on in the background. From here on duplicates get the answer from memory.
func (e *Execution) saveLater(err error) {
	r := e.runner
	r.options.Logger.WarnContext(e.saving.ctx, "the outcome of an idempotent request could not be saved; trying on",
		"key", e.name(), "error", err)
	r.mu.Lock()
	r.keepUnsaved(1)
	if s := e.saving.settlement; s.Outcome == Finished {
		e.flight.record = e.answer(s)
		e.flight.enter(answered)
	}
	r.mu.Unlock()
	e.mu.Lock()
	e.release()
	e.mu.Unlock()
	e.saving.delay = firstRetry
	time.AfterFunc(jittered(firstRetry), e.saveAgain)
}

// saveAgain is one try in the background. A timer calls it.
func (e *Execution) saveAgain() {
	r, s := e.runner, &e.saving
	err, final := e.save(r.options.Timeout)
	if !final && r.now() < s.since+s.settlement.Retention {
		s.delay = min(2*s.delay, longestRetry)
		time.AfterFunc(jittered(s.delay), e.saveAgain)
		return
	}
	if err == nil {
		r.options.Logger.InfoContext(s.ctx, "the outcome of an idempotent request is saved", "key", e.name())
	} else {
		r.options.Logger.ErrorContext(s.ctx, "the outcome of an idempotent request is not saved and will not be",
			"key", e.name(), "error", err)
	}
	e.end(err)
	r.mu.Lock()
	r.keepUnsaved(-1)
	r.mu.Unlock()
}

// end stops the heartbeats and tells the followers how it ended.
func (e *Execution) end(err error) {
	e.mu.Lock()
	e.ended = true
	if e.timer != nil {
		e.timer.Stop()
	}
	e.release()
	e.mu.Unlock()
	e.finish(e.saving.settlement, err)
}

// release cancels the contexts of the execution. e.mu is held.
func (e *Execution) release() {
	if e.cancel != nil {
		e.cancel(nil)
		e.cancel = nil
	}
}

// name is what logs say of the key: enough to find it in a store, and nothing of what the client sent.
func (e *Execution) name() string { return hex.EncodeToString(e.flight.key.Digest[:8]) }

// jittered keeps those who wait for the same thing from asking in step.
func jittered(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }
