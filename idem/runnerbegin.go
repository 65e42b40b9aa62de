package idem

import "context"

// Begin claims a key, or waits for the execution that holds it. Of c the caller
// gives Key, Tenant, Organization, Fingerprint, Account and Units; the Runner sets
// the rest. waiting, unless nil, is called once when the caller is about to wait.
// Release large buffers there: many callers may wait.
//
// With an Execution the caller must run the request and settle the Execution,
// whatever happens; with Options.Join it runs within the transaction of
// Execution.Context. Record.Attempt is 1, or more when the claim was taken
// over from a run with an unknown outcome. Without one, and without an error,
// the Record says what to answer: [Done], [Unknown] or [InProgress].
// InProgress means that the caller has waited as long as it may, or may not
// wait: Options.Wait is negative, the Runner is draining or has too many
// waiters. Record.RetryAfter is then a hint for when to come back, 0 where
// there is none.
//
// The errors are [ErrMismatch], also while the first request is in progress,
// with the Record.Fingerprint of that one; [ErrTooMany], before the store was
// asked; [ErrFull]; [ErrNoTurn], in joined mode; ctx.Err() when ctx is done
// before the store is asked or while waiting; and anything else when the store
// could not answer. After such an error the claim that may have been made is
// undone in the background.
//
// The end of ctx does not cut a call of the store short, because its answer
// would be lost. So a caller whose ctx is done may get an Execution, and must
// run it or settle it as [OutcomeFree] like any other.
//
// A key costs the store one call at a time: the first caller asks, and polls
// while another process holds the claim. All others wait for this one.
func (r *Runner) Begin(ctx context.Context, c Claim, waiting func()) (Record, *Execution, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, nil, err
	}
	w := waiter{runner: r, ctx: ctx, claim: c, waiting: waiting}
	defer w.leave()
	for {
		e, first := r.enter(&w)
		switch {
		case e == nil:
			return Record{}, nil, ErrTooMany
		case first:
			return w.ask(e)
		}
		if record, err, decided := w.await(e); decided {
			return record, nil, err
		}
	}
}

// enter returns the execution of the key, and whether the caller is its first
// and must ask the store. It returns nil when the tenant has too many.
func (r *Runner) enter(w *waiter) (e *Execution, first bool) {
	c := &w.claim
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.executions[c.Key]; e != nil {
		return e, false
	}
	if !r.loads.startExecution(c.Tenant, r.options.ExecutionsPerTenant) {
		return nil, false
	}
	c.Lease, c.Retention, c.Reexecute = r.lease, r.retention, r.options.Reexecute
	e = &Execution{runner: r, ctx: w.ctx, counted: true, claim: *c}
	r.executions[c.Key] = e
	return e, true
}

// ask asks the store for the claim, and polls while another process holds it.
func (w *waiter) ask(e *Execution) (record Record, claimed *Execution, err error) {
	// Also when waiting panics: nobody else would wake the waiters.
	defer func() {
		if claimed == nil {
			w.runner.finish(e, &record)
		}
	}()
	e.claim.Token = w.runner.newToken(e.claim.organization())
	for delay := firstPoll; ; delay = min(2*delay, longestPoll) {
		record, err = w.askOnce(e)
		if err != nil {
			return record, nil, err
		}
		switch record.State {
		case Claimed:
			return record, e, nil
		case InProgress:
			again, err := w.poll(e, &record, delay)
			if !again {
				return record, nil, err
			}
		default:
			return record, nil, nil
		}
	}
}

// askOnce asks the store for the claim, and starts the execution with it.
func (w *waiter) askOnce(e *Execution) (Record, error) {
	r := w.runner
	asked := r.clock()
	record, transaction, err := r.backend.begin(w.ctx, &e.claim)
	if err == nil && record.State == Claimed && transaction == nil && r.lapsed(asked) {
		// A repeat may have been told that the outcome is unknown.
		r.backend.undo(w.ctx, r.backend.shard(e.claim.Key), e.claim, nil)
		record, err = Record{}, errLateClaim
	}
	switch {
	case err != nil:
		// The waiters share the error. But a Join ends when its caller leaves,
		// which says nothing about the store: they must ask for themselves.
		if !r.options.Join || w.ctx.Err() == nil {
			e.err = err
		}
		return record, err
	case record.State == Claimed:
		e.start(transaction, asked)
	case record.Fingerprint != e.claim.Fingerprint && !unread(&record):
		// The record is no answer to this request or to its waiters.
		return Record{Fingerprint: record.Fingerprint}, ErrMismatch
	case record.State == Done:
		e.unseal(&record)
	}
	return record, nil
}

// unseal opens the reply in a record. One that cannot be opened is not there.
func (e *Execution) unseal(record *Record) {
	o := &e.runner.options
	if o.Seal == nil || len(record.Payload) == 0 && !record.Retained {
		return
	}
	var err error
	if record.Payload, err = o.Seal.open(e.claim.Key[:], record.Payload); err != nil {
		record.Retained = false
		o.Logger.ErrorContext(e.ctx, "a stored reply of a keyed request cannot be opened; its repeats get none",
			"idempotency_key", e.name(), "error", err)
	}
}

// unread reports whether the store could not read the fingerprint of the key's
// first request: a Joiner may not see what another transaction holds.
func unread(r *Record) bool { return r.State == InProgress && r.Fingerprint == [32]byte{} }
