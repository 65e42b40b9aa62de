package idem

import "context"

// Settle ends the execution: it saves what became of the request, wakes those who wait for it, and cancels the contexts that
// Context returned. The end of ctx does not stop it. A zero Retention is that of the Runner; an Outcome that does not exist
// counts as OutcomeUnknown. Nobody writes to Payload and Summary from here on.
//
// It returns nil when the outcome is saved. [ErrLost] means that another run of the request has the key now, so that this
// outcome is nobody's answer; [ErrSettled] that Settle was called before.
//
// Any other error means that the store could not save it within Options.Timeout. The Runner then goes on in the background,
// each time after twice as long, up to 5 s, and keeps renewing the claim: until it is saved, until the claim proves to be lost,
// or until the retention is over, when nobody would know the key anyway. Duplicates in this process get the answer from memory
// meanwhile; those in others wait. Nobody runs the request again: send the answer to the client.
//
// In joined mode nothing goes on in the background. OutcomeUnknown rolls the transaction back as NotStarted does.
// [ErrCommitUnknown] means that a repeat of the request will find either all of it or nothing; after any other error there is
// nothing to find.
func (e *Execution) Settle(ctx context.Context, s Settlement) error {
	e.mu.Lock()
	again := e.settled
	e.settled = true
	e.mu.Unlock()
	if again {
		return ErrSettled
	}
	if s.Outcome > NotStarted {
		s.Outcome = OutcomeUnknown
	}
	if s.Retention <= 0 {
		s.Retention = e.runner.options.Retention
	}
	if e.joined != nil {
		return e.commit(ctx, s)
	}
	e.saving = saving{ctx: ctx, settlement: s}
	return e.saveNow()
}

func (e *Execution) commit(ctx context.Context, s Settlement) error {
	if s.Outcome == OutcomeUnknown {
		s.Outcome = NotStarted
	}
	err := e.runner.settleJoined(ctx, e.joined, s)
	e.finish(s, err)
	return err
}

// finish tells the followers how it ended.
func (e *Execution) finish(s Settlement, err error) {
	var answer Record
	if err == nil && s.Outcome == Finished {
		answer = e.answer(s)
	}
	e.runner.land(e.flight, answer, nil)
}

func (e *Execution) answer(s Settlement) Record {
	return Record{State: Done, Fingerprint: e.flight.fingerprint, Payload: s.Payload, Retained: true}
}
