package idemtest

import (
	"errors"

	"github.com/sallyport-go/sallyport/idem"
)

// lapse claims a key, lets the lease go by, and has another take it over.
func (e *env) lapse() (old, taker idem.Claim) {
	old = e.lapsed()
	taker = reexecuting(old)
	e.mustClaim("the taker", taker, 2)
	return old, taker
}

var takeOverRules = []rule{
	{"take-over",
		"With Reexecute and the same fingerprint a lapsed claim is taken over: granted, with the attempt one higher.",
		func(e *env) {
			_, taker := e.lapse()
			e.mustClaim("the taker's Begin resent", taker, 2)
			e.must("another", reexecuting(taker), idem.InProgress)
			e.leases(1.3)
			third := reexecuting(taker)
			e.mustClaim("after the taker's lease", third, 3)
			e.settle("the third", third, finished("third"), nil)
			e.mustReplay("afterwards", again(taker), "third")
		}},
	{"take-over-of-unknown", "With Reexecute and the same fingerprint a claim settled as unknown is taken over.",
		func(e *env) {
			c := e.held()
			e.settle("the holder", c, unknown, nil)
			taker := reexecuting(c)
			e.mustClaim("the taker", taker, 2)
			e.must("another", again(c), idem.InProgress)
			e.settle("the holder of before", c, finished("stale"), idem.ErrLost)
			e.settle("the taker", taker, finished("second"), nil)
			e.mustReplay("afterwards", again(c), "second")
		}},
	{"take-over-by-another-request",
		"A take-over needs the first request's fingerprint; with another the answer is unknown and nothing changes.",
		func(e *env) {
			c := e.lapsed()
			e.mustBeOf(c, e.must("another request", otherRequest(reexecuting(c)), idem.Unknown))
			e.settle("the holder", c, unknown, nil)
			e.must("another request", otherRequest(reexecuting(c)), idem.Unknown)
			e.mustClaim("the same request", reexecuting(c), 2)
		}},
	{"take-over-of-done", "What is done is replayed, with Reexecute or without.",
		func(e *env) {
			c := e.held()
			e.settle("the holder", c, finished("answer"), nil)
			e.mustReplay("with Reexecute", reexecuting(c), "answer")
		}},
	{"take-over-freed",
		"Settling as free a claim that took over settles it as unknown: what was before is not known yet.",
		func(e *env) {
			_, taker := e.lapse()
			free := e.kept(outcomeFree, 2)
			for range 2 {
				e.settle("the taker", taker, free, nil)
			}
			e.settle("in another way", taker, finished("late"), idem.ErrSettled)
			e.mustBeOf(taker, e.must("another request", otherRequest(reexecuting(taker)), idem.Unknown))
			next := reexecuting(taker)
			e.mustClaim("the next", next, 3)
			e.settle("the taker", taker, free, idem.ErrLost)
			e.settle("the next", next, free, nil)
			e.leases(1.5)
			e.must("before the end of the retention", again(next), idem.Unknown)
			e.leases(0.8)
			e.mustClaim("after the end of the retention", again(otherRequest(next)), 1)
		}},
	{"units-take-over-freed", "A take-over that is freed is an uncertain charge, of the Settlement's Units.",
		counts(func(e *counter) {
			old := e.work(e.lasting(), 5, "acme")
			e.settle("the holder", old, charged(unknown, 5), nil)
			taker := reexecuting(old)
			e.mustClaim("the taker", taker, 2)
			e.settle("the taker", taker, charged(outcomeFree, 4), nil)
			e.mustDoubt("freed", "acme: 4 uncertain")
			e.mustUse("freed", 4, "acme")
		})},
	{"take-over-race", "Of any number that take over at once exactly one gets the claim.",
		func(e *env) {
			c := e.lapsed()
			claims := make([]idem.Claim, racers)
			for i := range claims {
				claims[i] = reexecuting(c)
				claims[i].Lease, claims[i].Retention = e.lasting().Lease, e.lasting().Retention
			}
			e.mustHaveOneWinner(e.race(claims), 2)
		}},
	{"stale-settle", "Settle by the token of before a take-over is lost, and the taker's claim and reply stand.",
		func(e *env) {
			old, taker := e.lapse()
			e.settle("the old token", old, finished("stale"), idem.ErrLost)
			e.settle("the old token", old, unknown, idem.ErrLost)
			e.must("another", again(taker), idem.InProgress)
			e.settle("the taker", taker, finished("fresh"), nil)
			e.settle("the old token", old, finished("stale"), idem.ErrLost)
			e.mustReplay("afterwards", again(taker), "fresh")
		}},
	{"stale-release",
		"Settle as free by the token of before a take-over is lost, and does not free the taker's claim.",
		func(e *env) {
			old, taker := e.lapse()
			e.settle("the old token", old, outcomeFree, idem.ErrLost)
			e.must("another", again(taker), idem.InProgress)
			e.settle("the taker", taker, finished("fresh"), nil)
			e.settle("the old token", old, outcomeFree, idem.ErrLost)
			e.mustReplay("afterwards", again(taker), "fresh")
		}},
	{"stale-extend", "Extend by the token of before a take-over is lost, and does not renew the taker's lease.",
		func(e *env) {
			old, taker := e.lapse()
			e.leases(0.7)
			e.extend("the old token", old, idem.ErrLost)
			e.leases(0.6)
			e.must("after the taker's lease", again(taker), idem.Unknown)
		}},
	{"stale-begin", "Begin by the token of before a take-over does not grant the claim.",
		func(e *env) {
			old, taker := e.lapse()
			e.must("the old token", old, idem.InProgress)
			e.settle("the taker", taker, finished("fresh"), nil)
			e.mustReplay("the old token", old, "fresh")
		}},
	{"settle-races-take-over",
		"When a late settle and a take-over race, one of them has the key: never is the reply saved and the claim " +
			"granted again.",
		func(e *env) {
			settle := func(c idem.Claim) error { return e.store.Settle(e.ctx, c.Key, c.Token, finished("late")) }
			e.lateRaces(settle, reexecuting, func(settled error, r idem.Record) {
				switch {
				case settled == nil && r.State == idem.Done:
				case errors.Is(settled, idem.ErrLost) && r.State == idem.Claimed:
				default:
					e.failf("got %v from Settle and %v from Begin, want nil and done, or ErrLost and claimed", settled, r.State)
				}
			})
		}},
}
