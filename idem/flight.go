package idem

import (
	"sync/atomic"
	"time"
)

// phase is how far a flight has come. It never goes back.
type phase uint8

const (
	asking    phase = iota // the leader waits for the store's word
	elsewhere              // another process holds the claim, and the leader asks again from time to time
	running                // this process holds the claim
	answered               // there is an answer, which is not yet saved
	over                   // the flight is no longer in the Runner's table
)

// flight is what the requests with one key do in this process. The first of them leads: it alone talks to the store. The others
// follow: they wait for changes of the phase. Its fields are guarded by Runner.mu but for those that never change.
type flight struct {
	key         Key
	owner       string
	fingerprint Sum // the leader's; that of the key's first request once the phase is past asking
	phase       phase
	counted     bool          // as an execution of the owner
	changed     chan struct{} // closed at the next change of the phase; nil while nobody waits for it
	record      Record        // once answered or over: the answer for the followers, if its State is Done
	err         error         // once over: why the store could not answer, which the followers share
	lease       atomic.Int64  // Runner.now when the lease ends, as far as is known
}

// board returns the flight of the key, and whether the caller leads it.
func (r *Runner) board(req *Request) (f *flight, leads bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.flights[req.Key]; f != nil {
		return f, false, nil
	}
	if !r.startExecution(req.Owner) {
		return nil, false, ErrTooMany
	}
	f = &flight{key: req.Key, owner: req.Owner, fingerprint: req.Fingerprint, counted: true}
	r.flights[req.Key] = f
	return f, true, nil
}

// enter brings a flight into a phase and wakes those who wait for that. r.mu is held.
func (f *flight) enter(p phase) {
	if f.phase == p {
		return
	}
	f.phase = p
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// wake returns a channel that is closed at the next change of the phase. r.mu is held.
func (f *flight) wake() <-chan struct{} {
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// land ends a flight: with an answer for the followers, with the error that they share, or with neither, and then they start
// over.
func (r *Runner) land(f *flight, answer Record, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.flights, f.key)
	r.uncount(f)
	f.record, f.err = answer, err
	f.enter(over)
}

func (r *Runner) uncount(f *flight) {
	if f.counted {
		f.counted = false
		r.endExecution(f.owner)
	}
}

// inFlight is the record for a request that has the fingerprint of the flight and does not wait. The phase is past asking.
func (r *Runner) inFlight(f *flight) Record {
	left := time.Duration(f.lease.Load()) - r.now()
	return Record{State: InFlight, Fingerprint: f.fingerprint, LeaseLeft: max(left, 0)}
}
