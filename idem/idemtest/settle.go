package idemtest

import "github.com/sallyport-go/sallyport/idem"

var settleRules = []rule{
	{"finished", "A finished claim is replayed with its payload and the first request's fingerprint to all who come.",
		func(e *env) {
			c := e.held()
			e.settle("the holder", c, finished("answer"), nil)
			e.mustReplay("another token", again(c), "answer")
			e.mustReplay("the holder's token", c, "answer")
			e.mustBeOf(c, e.must("another request", again(otherRequest(c)), idem.Done))
		}},
	{"unknown-outcome", "A claim settled as unknown stays known as that, and is not granted again.",
		func(e *env) {
			c := e.held()
			e.settle("the holder", c, unknown, nil)
			e.mustBeOf(c, e.must("another token", again(c), idem.Unknown))
			e.must("the holder's token", c, idem.Unknown)
		}},
	{"free", "Settling as free frees the key for whichever request comes next.",
		func(e *env) {
			c := e.held()
			e.settle("the holder", c, outcomeFree, nil)
			e.settle("the holder, resent", c, outcomeFree, idem.ErrLost)
			next := again(otherRequest(c))
			e.mustClaim("the next request", next, 1)
			e.mustBeOf(next, e.must("another", again(c), idem.InProgress))
		}},
	{"resent-settle", "Settling again with the same token, outcome and payload is nil: clients of databases resend.",
		func(e *env) {
			for _, s := range outcomes {
				c := e.settled(s)
				e.settle("resent", c, s, nil)
				e.mustStand(c, s)
			}
		}},
	{"settled-twice", "Settling again in another way is ErrSettled, and the first settlement stands.",
		func(e *env) {
			for _, s := range outcomes {
				c := e.settled(s)
				e.settle("with another payload", c, finished("another"), idem.ErrSettled)
				e.settle("as free", c, outcomeFree, idem.ErrSettled)
				if s.Outcome == idem.OutcomeDone {
					e.settle("as unknown", c, unknown, idem.ErrSettled)
				}
				e.mustStand(c, s)
			}
		}},
	{"extend-after-settle", "Extend of a settled claim is lost, and brings nothing back into flight.",
		func(e *env) {
			for _, s := range outcomes {
				c := e.settled(s)
				e.extend("the holder", c, idem.ErrLost)
				e.mustStand(c, s)
			}
		}},
}

// outcomes are those that a store remembers.
var outcomes = []idem.Settlement{finished("answer"), unknown}

// settled settles a claim of a key of its own.
func (e *env) settled(s idem.Settlement) idem.Claim {
	c := e.lasting()
	c.Key[0] = byte(s.Outcome)
	e.mustClaim("a new key", c, 1)
	e.settle("the holder", c, s, nil)
	return c
}

// mustStand wants the outcome s of the claim c.
func (e *env) mustStand(c idem.Claim, s idem.Settlement) {
	if s.Outcome == idem.OutcomeDone {
		e.mustReplay("afterwards", again(c), string(s.Payload))
		return
	}
	e.must("afterwards", again(c), idem.Unknown)
}
