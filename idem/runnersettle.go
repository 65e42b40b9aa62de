package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How Settle tries before it goes on in the background.
const (
	triesNow   = 3
	firstPause = 50 * time.Millisecond
)

// Settle ends the execution: it saves the outcome, wakes the waiters, and
// cancels the contexts that Context returned. The end of ctx does not stop it.
// A zero Retention is that of the Runner; an Outcome that does not exist counts
// as OutcomeUnknown, which charges at least the Units of the Claim. Do not write
// to Payload and Summary afterwards.
//
// It returns nil when the outcome is saved, [ErrLost] when another run of the
// request has taken the claim over, whose outcome is what repeats get, and
// [ErrSettled] when Settle was called before.
//
// Any other error means that the store could not save it within
// Options.Timeout. Send the response to the client: the request is not run again.
// The Runner tries again in the background, each time after twice as long, up
// to 5 s, until the outcome is saved, the claim is lost or the retention is over.
// It renews the claim unless that had lapsed. Meanwhile repeats in this process
// get the reply from memory, and those in other processes wait.
//
// In joined mode nothing goes on in the background. OutcomeUnknown rolls the
// transaction back as OutcomeFree does. [ErrCommitUnknown] means that a repeat
// of the request will find either all of it or nothing; after any other error
// there is nothing to find. [ErrConstraint] and [ErrBroken] say that the request
// is the cause.
func (e *Execution) Settle(ctx context.Context, s Settlement) error {
	e.mu.Lock()
	again := e.settled
	e.settled = true
	e.mu.Unlock()
	if again {
		return ErrSettled
	}
	if s.Outcome > OutcomeFree {
		s.Outcome = OutcomeUnknown
	}
	if s.Outcome != OutcomeDone { // OutcomeFree may be OutcomeUnknown for the store
		s.Units = max(s.Units, e.claim.Units)
	}
	if s.Retention <= 0 {
		s.Retention = e.runner.options.Retention
	}
	if s.Outcome == OutcomeDone {
		e.reply = Record{State: Done, Fingerprint: e.claim.Fingerprint, Payload: s.Payload, Retained: true}
		// Once: a store compares what is sent again.
		seal, key := e.runner.options.Seal, e.claim.Key[:]
		s.Payload = seal.seal(key, s.Payload)
		if len(s.Summary) > 0 {
			s.Summary = seal.seal(key, s.Summary)
		}
	}
	if e.transaction != nil {
		return e.commit(ctx, &s)
	}
	return e.saveNow(saving{ctx: ctx, settlement: s, since: e.runner.clock()})
}

// commit ends the transaction of a joined execution.
func (e *Execution) commit(ctx context.Context, s *Settlement) error {
	if s.Outcome == OutcomeUnknown {
		s.Outcome = OutcomeFree
	}
	err := e.runner.backend.end(ctx, e.transaction, *s)
	e.end(err)
	return err
}

// saving is a settlement on its way to the store. One goroutine at a time works
// on it.
type saving struct {
	ctx        context.Context // of Settle, for its values
	settlement Settlement
	since      time.Time     // when it began
	delay      time.Duration // before the next try in the background
	ambiguous  bool          // an earlier try failed, and may have been carried out
}

// saveNow tries while the request waits, then leaves it to the background.
func (e *Execution) saveNow(s saving) error {
	r := e.runner
	left := r.options.Timeout
	pause := firstPause
	for try := 1; ; try++ {
		err, final := e.save(&s, left)
		if final {
			if errors.Is(err, ErrSettled) {
				e.logNotSaved(s.ctx, err)
			}
			e.end(err)
			return err
		}
		left = time.Until(s.since.Add(r.options.Timeout)) - pause
		if try == triesNow || left <= 0 {
			e.saveLater(s, err)
			return fmt.Errorf("idem: not saved yet: %w", err)
		}
		time.Sleep(pause)
		pause *= 2
	}
}

// save calls the store once and reports whether that is the end of it.
func (e *Execution) save(s *saving, timeout time.Duration) (err error, final bool) {
	r := e.runner
	err = r.backend.settle(s.ctx, r.backend.settles, &e.claim, s.settlement, timeout)
	switch {
	case err == nil:
		return nil, true
	case errors.Is(err, ErrLost):
		// An earlier try that was not answered may have freed the key. Then it
		// is gone, as it should be.
		if s.ambiguous && s.settlement.Outcome == OutcomeFree {
			return nil, true
		}
		r.lost.Add(1)
		return ErrLost, true
	case errors.Is(err, ErrSettled):
		return ErrSettled, true
	}
	s.ambiguous = true
	r.saveErrors.Add(1)
	return err, false
}

// saveLater goes on in the background. From here on repeats get the reply
// from memory.
func (e *Execution) saveLater(s saving, err error) {
	r := e.runner
	r.options.Logger.WarnContext(s.ctx, "the outcome of a keyed request could not be saved; the server keeps trying",
		"idempotency_key", e.name(), "error", err)
	r.background(1)
	r.mu.Lock()
	if s.settlement.Outcome == OutcomeDone {
		e.advance(answered)
	}
	r.mu.Unlock()
	e.mu.Lock()
	e.release(nil)
	e.mu.Unlock()
	s.delay = firstRetry
	time.AfterFunc(jittered(s.delay), func() { e.saveAgain(&s) })
}

// saveAgain is one try in the background. A timer calls it.
func (e *Execution) saveAgain(s *saving) {
	r := e.runner
	err, final := e.save(s, r.options.Timeout)
	if !final && time.Since(s.since) < s.settlement.Retention {
		s.delay = min(2*s.delay, longestRetry)
		time.AfterFunc(jittered(s.delay), func() { e.saveAgain(s) })
		return
	}
	if err == nil {
		r.options.Logger.InfoContext(s.ctx, "the outcome of a keyed request is saved", "idempotency_key", e.name())
	} else {
		e.logNotSaved(s.ctx, err)
	}
	e.end(err)
	r.background(-1)
}

func (e *Execution) logNotSaved(ctx context.Context, err error) {
	e.runner.options.Logger.ErrorContext(ctx, "the outcome of a keyed request is not saved and will not be",
		"idempotency_key", e.name(), "error", err)
}

// end stops the renewals, cancels the contexts, and gives the reply, if there
// is one, to the waiters.
func (e *Execution) end(err error) {
	e.mu.Lock()
	e.done = true
	if e.timer != nil {
		e.timer.Stop()
	}
	e.release(nil)
	e.mu.Unlock()
	var record Record
	if err == nil {
		record = e.reply
	}
	e.runner.finish(e, &record)
}
