package idemtest

import (
	"errors"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// lateRaces lets calls of holders whose leases are over race with the Begin of
// another, and has each pair of answers judged.
func (e *env) lateRaces(
	call func(idem.Claim) error, other func(idem.Claim) idem.Claim, judge func(called error, begun idem.Record),
) {
	late := make([]idem.Claim, 16)
	for i := range late {
		late[i] = e.claim()
		late[i].Key[0] = byte(i)
		e.mustClaim("a new key", late[i], 1)
	}
	e.leases(1.3)
	for i, c := range late {
		var called, begun error
		var r idem.Record
		pair := []func(){func() { called = call(c) }, func() { r, begun = e.store.Begin(e.ctx, other(c)) }}
		var wg sync.WaitGroup
		wg.Go(pair[(i+1)%2]) // the scheduler prefers the last
		wg.Go(pair[i%2])
		wg.Wait()
		e.mustBe("Begin", begun, nil)
		judge(called, r)
	}
}

var leaseRules = []rule{
	{"extend", "Extend makes the lease last its full length from then on.",
		func(e *env) {
			c := e.leased()
			for range 3 {
				e.leases(0.6)
				e.extend("the holder", c, nil)
			}
			e.leases(0.6)
			e.must("after 0.6 leases since the last Extend", again(c), idem.InProgress)
			e.leases(0.8)
			e.must("after 1.4 leases since the last Extend", again(c), idem.Unknown)
		}},
	{"lapsed-lease", "A lapsed lease erases nothing: the key's outcome is unknown, and it is not granted again.",
		func(e *env) {
			c := e.lapsed()
			for range 2 {
				e.mustBeOf(c, e.must("after the lease", again(c), idem.Unknown))
			}
		}},
	{"late-settle", "Settle after the lease counts when nobody took the claim over.",
		func(e *env) {
			c := e.lapsed()
			e.must("after the lease", again(c), idem.Unknown)
			e.settle("the holder, late", c, finished("late"), nil)
			e.mustReplay("after the late settle", again(c), "late")
		}},
	{"late-release", "Settle as free after the lease frees the key when nobody took the claim over.",
		func(e *env) {
			c := e.lapsed()
			e.settle("the holder, late", c, outcomeFree, nil)
			e.mustClaim("afterwards", again(otherRequest(c)), 1)
		}},
	{"late-extend", "Extend after the lease renews it when nobody took the claim over.",
		func(e *env) {
			c := e.lapsed()
			e.extend("the holder, late", c, nil)
			e.must("afterwards", again(c), idem.InProgress)
			e.must("afterwards, with Reexecute", reexecuting(c), idem.InProgress)
		}},
	{"late-begin",
		"Begin resent by the holder after the lease grants the claim again with the same attempt, the lease renewed.",
		func(e *env) {
			c := e.lapsed()
			e.mustClaim("resent, late", c, 1)
			e.must("another token", again(c), idem.InProgress)
		}},
	{"told-unknown",
		"Once Begin has answered unknown for a lapsed claim, its token cannot renew it, and a late Settle counts.",
		func(e *env) {
			c := e.lapsed()
			e.must("after the lease", again(c), idem.Unknown)
			e.extend("the holder, late", c, idem.ErrLost)
			e.must("the holder's Begin resent", c, idem.Unknown)
			e.mustBeOf(c, e.must("afterwards", again(c), idem.Unknown))
			e.settle("the holder, late", c, finished("late"), nil)
			e.mustReplay("after the late Settle", again(c), "late")

			c.Key[0]++
			e.mustClaim("a new key", c, 1)
			e.leases(1.3)
			e.must("after the lease", again(c), idem.Unknown)
			c.Reexecute = true
			e.mustClaim("the holder's Begin with Reexecute", c, 2)
			e.extend("the taker", c, nil)
			e.must("afterwards", again(c), idem.InProgress)
		}},
	{"unknown-races-extend",
		"When Begin after the lease and Extend race, never is one told unknown and the other renewed.",
		func(e *env) {
			renew := func(c idem.Claim) error { return e.store.Extend(e.ctx, c.Key, c.Token, 24*time.Hour) }
			e.lateRaces(renew, again, func(extended error, r idem.Record) {
				if told := r.State == idem.Unknown; told != errors.Is(extended, idem.ErrLost) {
					e.failf("got %v from Extend and %v from Begin, want nil and in progress, or ErrLost and unknown",
						extended, r.State)
				}
			})
		}},
	{"foreign-token", "A token that does not hold the claim extends, settles and frees nothing.",
		func(e *env) {
			c := e.leased()
			stranger := again(c)
			e.leases(0.7)
			e.extend("a stranger", stranger, idem.ErrLost)
			e.settle("a stranger", stranger, finished("stolen"), idem.ErrLost)
			e.settle("a stranger", stranger, unknown, idem.ErrLost)
			e.settle("a stranger", stranger, outcomeFree, idem.ErrLost)
			e.leases(0.6)
			e.must("after the lease, which nobody renewed", again(c), idem.Unknown)
			e.settle("the holder", c, finished("answer"), nil)
			e.settle("a stranger", stranger, outcomeFree, idem.ErrLost)
			e.mustReplay("afterwards", again(c), "answer")
		}},
	{"nothing-there", "Extend and Settle of a key that is not there are lost, and leave it so.",
		func(e *env) {
			c := e.lasting()
			e.extend("no key", c, idem.ErrLost)
			for _, s := range []idem.Settlement{finished("answer"), unknown, outcomeFree} {
				e.settle("no key", c, s, idem.ErrLost)
			}
			e.mustClaim("afterwards", again(otherRequest(c)), 1)
		}},
}
