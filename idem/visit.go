package idem

import (
	"context"
	"time"
)

// visit is one call of Runner.Begin.
type visit struct {
	runner  *Runner
	ctx     context.Context
	req     Request
	seated  bool        // counted as a waiter
	wait    *time.Timer // fires when it has waited for long enough; nil until it waits
	restive bool        // it does not wait any more
}

func (v *visit) leave() {
	if v.wait != nil {
		v.wait.Stop()
	}
	if v.seated {
		v.runner.mu.Lock()
		v.runner.endWaiting(v.req.Owner)
		v.runner.mu.Unlock()
	}
}

// mayWait reports whether the caller may wait: for a request that runs, or else for no more than the store's word on whether
// one does. It counts the caller as a waiter. r.mu is held.
func (v *visit) mayWait(runs bool) bool {
	if v.restive || runs && v.runner.options.Wait < 0 {
		return false
	}
	if !v.seated {
		v.seated = v.runner.startWaiting(v.req.Owner)
	}
	return v.seated
}

// pause waits for one of the channels, or for the end of all waiting. The error is that of a caller who left.
func (v *visit) pause(changed <-chan struct{}, poll <-chan time.Time) error {
	if v.wait == nil {
		d := v.runner.options.Wait
		if d < 0 {
			d = v.runner.options.Timeout
		}
		v.wait = time.NewTimer(d)
		if v.req.Waiting != nil {
			v.req.Waiting()
		}
	}
	select {
	case <-changed:
	case <-poll:
	case <-v.wait.C:
		v.restive = true
	case <-v.runner.options.Draining:
		v.restive = true
	case <-v.ctx.Done():
		return v.ctx.Err()
	}
	return nil
}

// follow waits for the flight that another leads. While nothing is decided, the caller is to start over.
func (v *visit) follow(f *flight) (record Record, err error, decided bool) {
	r := v.runner
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		// While the leader asks, its fingerprint is no more than its own word. The store may know the key for a request that is
		// the same as this one and not the same as the leader's.
		known := f.phase != asking
		answer := f.phase == answered || f.phase == over && f.record.State == Done
		switch {
		case f.phase == over && f.err != nil:
			return Record{}, f.err, true
		case f.phase == over && !answer:
			return Record{}, nil, false
		case known && f.fingerprint != v.req.Fingerprint:
			return Record{}, ErrMismatch, true
		case answer:
			return f.record, nil, true
		case v.mayWait(known):
		case known:
			return r.inFlight(f), nil, true
		default:
			return Record{State: InFlight}, nil, true
		}
		changed := f.wake()
		r.mu.Unlock()
		err = v.pause(changed, nil)
		r.mu.Lock()
		if err != nil {
			return Record{}, err, true
		}
	}
}
