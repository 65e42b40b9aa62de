package idemtest

import "github.com/sallyport-go/sallyport/idem"

var settleRules = []rule{
	{
		"finished",
		"A finished claim is replayed with its payload and the first request's fingerprint to all who come.",
		func(e *env) {
			c := e.lasting()
			e.mustClaim("a new key", c, 1)
			e.settle("the holder", c, finished("answer"), nil)
			e.mustReplay("another token", again(c), "answer")
			e.mustReplay("the holder's token", c, "answer")
			r := e.must("another request", again(otherRequest(c)), idem.Done)
			if r.Fingerprint != c.Fingerprint {
				e.failf("got fingerprint %x, want the first request's %x", r.Fingerprint, c.Fingerprint)
			}
		},
	},
	{
		"unknown-outcome",
		"A claim settled as unknown stays known as that, and is not granted again.",
		func(e *env) {
			c := e.lasting()
			e.mustClaim("a new key", c, 1)
			e.settle("the holder", c, unknown, nil)
			r := e.must("another token", again(c), idem.Unknown)
			if r.Fingerprint != c.Fingerprint {
				e.failf("got fingerprint %x, want the first request's %x", r.Fingerprint, c.Fingerprint)
			}
			e.must("the holder's token", c, idem.Unknown)
		},
	},
	{
		"not-started",
		"Settling as not started frees the key for whichever request comes next.",
		func(e *env) {
			c := e.lasting()
			e.mustClaim("a new key", c, 1)
			e.settle("the holder", c, notStarted, nil)
			e.settle("the holder, resent", c, notStarted, idem.ErrLost)
			next := again(otherRequest(c))
			e.mustClaim("the next request", next, 1)
			r := e.must("another", again(c), idem.InFlight)
			if r.Fingerprint != next.Fingerprint {
				e.failf("got fingerprint %x, want that of the request which holds the key now, %x", r.Fingerprint, next.Fingerprint)
			}
		},
	},
	{
		"resent-settle",
		"Settling again with the same token, outcome and payload is nil: clients of databases resend.",
		func(e *env) {
			c := e.lasting()
			e.mustClaim("a new key", c, 1)
			e.settle("the holder", c, finished("answer"), nil)
			e.settle("resent", c, finished("answer"), nil)
			e.mustReplay("afterwards", again(c), "answer")

			c.Key = idem.NewKey("organization", "other")
			e.mustClaim("a new key", c, 1)
			e.settle("the holder", c, unknown, nil)
			e.settle("resent", c, unknown, nil)
			e.must("afterwards", again(c), idem.Unknown)
		},
	},
	{
		"settled-twice",
		"Settling again in another way is ErrSettled, and the first settlement stands.",
		func(e *env) {
			c := e.lasting()
			e.mustClaim("a new key", c, 1)
			e.settle("the holder", c, finished("answer"), nil)
			e.settle("with another payload", c, finished("another"), idem.ErrSettled)
			e.settle("as unknown", c, unknown, idem.ErrSettled)
			e.settle("as not started", c, notStarted, idem.ErrSettled)
			e.mustReplay("afterwards", again(c), "answer")

			c.Key = idem.NewKey("organization", "other")
			e.mustClaim("a new key", c, 1)
			e.settle("the holder", c, unknown, nil)
			e.settle("as finished", c, finished("answer"), idem.ErrSettled)
			e.settle("as not started", c, notStarted, idem.ErrSettled)
			e.must("afterwards", again(c), idem.Unknown)
		},
	},
	{
		"extend-after-settle",
		"Extend of a settled claim is lost, and brings nothing back into flight.",
		func(e *env) {
			c := e.lasting()
			e.mustClaim("a new key", c, 1)
			e.settle("the holder", c, finished("answer"), nil)
			e.extend("the holder", c, idem.ErrLost)
			e.mustReplay("afterwards", again(c), "answer")

			c.Key = idem.NewKey("organization", "other")
			e.mustClaim("a new key", c, 1)
			e.settle("the holder", c, unknown, nil)
			e.extend("the holder", c, idem.ErrLost)
			e.must("afterwards", again(c), idem.Unknown)
		},
	},
}
