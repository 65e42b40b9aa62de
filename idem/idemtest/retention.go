package idemtest

import "github.com/sallyport-go/sallyport/idem"

var retentionRules = []rule{
	{"retention-of-reply", "A reply is replayed until its retention is over; then the key is new.",
		func(e *env) {
			c := e.leased()
			e.settle("the holder", c, e.kept(finished("answer"), 2), nil)
			e.leases(1.5)
			e.mustReplay("before the end of the retention", again(c), "answer")
			e.leases(0.8)
			e.mustClaim("after the end of the retention", again(otherRequest(c)), 1)
		}},
	{"retention-restarts", "Settle starts the retention anew: what is left of the claim's plays no part.",
		func(e *env) {
			c := e.retained(2)
			e.leases(1.5)
			e.settle("the holder", c, e.kept(finished("answer"), 2), nil)
			e.leases(1.5)
			e.mustReplay("after the claim's retention and before the reply's", again(c), "answer")
		}},
	{"retention-may-shorten", "The reply's retention holds also when it is the shorter one.",
		func(e *env) {
			c := e.held()
			e.settle("the holder", c, e.kept(finished("answer"), 1), nil)
			e.leases(1.3)
			e.mustClaim("after the reply's retention", again(otherRequest(c)), 1)
		}},
	{"retention-of-unknown", "An outcome settled as unknown is remembered for its retention.",
		func(e *env) {
			c := e.leased()
			e.settle("the holder", c, e.kept(unknown, 2), nil)
			e.leases(1.5)
			e.must("before the end of the retention", again(c), idem.Unknown)
			e.leases(0.8)
			e.mustClaim("after the end of the retention", again(c), 1)
		}},
	{"retention-of-claim", "A claim that nobody settles is remembered for its retention, and not only for its lease.",
		func(e *env) {
			c := e.retained(3)
			e.leases(2.5)
			e.must("before the end of the retention", again(c), idem.Unknown)
			e.leases(0.8)
			e.extend("the holder, after the end of the retention", c, idem.ErrLost)
			for _, s := range []idem.Settlement{finished("late"), unknown, outcomeFree} {
				e.settle("the holder, after the end of the retention", c, s, idem.ErrLost)
			}
			e.mustClaim("after the end of the retention", again(otherRequest(c)), 1)
			e.settle("the old token", c, finished("stale"), idem.ErrLost)
		}},
	{"retention-of-taker", "A take-over starts the retention of the claim anew, and so does a Begin that is resent.",
		func(e *env) {
			c := e.retained(3)
			e.leases(1.3)
			taker := reexecuting(c)
			e.mustClaim("the taker", taker, 2)
			e.leases(2)
			e.mustClaim("before the end of the taker's retention, resent", taker, 2)
			e.leases(2)
			e.must("before the end of what was resent", again(c), idem.Unknown)
		}},
	{"lease-outlasts-retention", "A claim that is kept alive is in progress, however short its retention.",
		func(e *env) {
			c := e.retained(1)
			for range 3 {
				e.leases(0.6)
				e.extend("the holder", c, nil)
			}
			e.must("after 1.8 retentions", again(c), idem.InProgress)
			e.settle("the holder", c, finished("answer"), nil)
			e.mustReplay("afterwards", again(c), "answer")
		}},
}
