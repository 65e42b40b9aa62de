package idem

import (
	"math"
	"time"
)

// How long the leader of a flight waits before it asks again while another process holds the claim.
const (
	firstPoll   = 25 * time.Millisecond
	longestPoll = 500 * time.Millisecond
)

// forever is for a claim in a Memory. A lease is there to tell others that its holder died, and with the process such a claim is
// gone as well, so it needs no renewing.
const forever = time.Duration(math.MaxInt64)

// lead asks the store on behalf of all who are aboard the flight.
func (v *visit) lead(f *flight) (Record, *Execution, error) {
	r := v.runner
	claim := Claim{
		Key:         v.req.Key,
		Token:       NewToken(),
		Fingerprint: v.req.Fingerprint,
		Lease:       r.options.Lease,
		Retention:   r.options.Retention,
		Reexecute:   r.options.Reexecute,
	}
	if r.atOnce {
		claim.Lease, claim.Retention = forever, forever
	}
	for delay := firstPoll; ; delay = min(2*delay, longestPoll) {
		asked := r.now()
		record, joined, err := r.ask(v.ctx, claim)
		unread := record.State == InFlight && record.Fingerprint == Sum{}
		switch {
		case err != nil:
			shared := err
			if r.joiner != nil && v.ctx.Err() != nil {
				shared = nil // it may be for no other reason than that this caller left
			}
			r.land(f, Record{}, shared)
			return Record{}, nil, err
		case record.State == Claimed:
			return record, r.start(v.ctx, f, claim.Token, record.Attempt, joined, asked), nil
		case record.Fingerprint != claim.Fingerprint && !unread:
			r.land(f, Record{}, nil)
			return Record{}, nil, ErrMismatch
		case record.State != InFlight:
			r.land(f, record, nil)
			return record, nil, nil
		}
		ends := r.now() + record.LeaseLeft
		again, err := v.poll(f, ends, delay, !unread)
		if !again {
			r.land(f, Record{}, nil)
			record.LeaseLeft = max(ends-r.now(), 0)
			return record, nil, err
		}
	}
}

// poll waits until it is time to ask the store again, or returns false.
func (v *visit) poll(f *flight, leaseEnds, delay time.Duration, known bool) (again bool, err error) {
	r := v.runner
	f.lease.Store(int64(leaseEnds))
	r.mu.Lock()
	r.uncount(f) // what waits does not run
	if known {
		f.enter(elsewhere)
	}
	may := v.mayWait(true)
	r.mu.Unlock()
	for may && !again {
		if err := v.pause(nil, time.After(jittered(delay))); err != nil || v.restive {
			return false, err
		}
		r.mu.Lock()
		f.counted = r.startExecution(f.owner)
		again = f.counted
		r.mu.Unlock()
	}
	return again, nil
}
