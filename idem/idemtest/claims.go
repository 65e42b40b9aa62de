package idemtest

import (
	"context"
	"errors"
	"sync"

	"github.com/sallyport-go/sallyport/idem"
)

func (e *env) mustBe(what string, err, want error) {
	if !errors.Is(err, want) {
		e.failf("%s: got error %v, want %v", what, err, want)
	}
}

// racers is how many callers race for a claim.
const racers = 32

// atOnce calls f n times at once, and wants no error.
func (e *env) atOnce(n int, f func(i int) error) {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		e.failf("in a race: got error %v, want answers", err)
	}
}

// race begins all claims at once and returns what each got.
func (e *env) race(claims []idem.Claim) []idem.Record {
	records := make([]idem.Record, len(claims))
	e.atOnce(len(claims), func(i int) (err error) {
		records[i], err = e.store.Begin(e.ctx, claims[i])
		return err
	})
	return records
}

// mustHaveOneWinner returns which of the records is Claimed; the others must be
// in progress.
func (e *env) mustHaveOneWinner(records []idem.Record, attempt int) (winner int) {
	won := 0
	for i, r := range records {
		switch {
		case r.State == idem.Claimed && r.Attempt == attempt:
			winner = i
			won++
		case r.State == idem.Claimed:
			e.failf("a winner of the race got attempt %d, want %d", r.Attempt, attempt)
		case r.State != idem.InProgress:
			e.failf("a loser of the race got %v, want in progress", r.State)
		}
	}
	if won != 1 {
		e.failf("%d of %d racers got the claim, want 1", won, len(records))
	}
	return winner
}

var claimRules = []rule{
	{"race", "Of any number of simultaneous claims exactly one is granted, and the others see it in progress.",
		func(e *env) {
			for range 8 {
				claims := make([]idem.Claim, racers)
				for i := range claims {
					claims[i] = e.lasting()
				}
				winner := claims[e.mustHaveOneWinner(e.race(claims), 1)]
				e.settle("the winner", winner, outcomeFree, nil)
			}
		}},
	{"resent-begin",
		"Begin by the token that holds the claim grants it again with the same attempt: clients of databases resend.",
		func(e *env) {
			c := e.held()
			e.mustClaim("resent", c, 1)
			e.mustBeOf(c, e.begin(c))
			e.must("another token", again(c), idem.InProgress)
			e.settle("the holder", c, finished("answer"), nil)
		}},
	{"resent-begin-race", "Begin sent twice at once by one token grants that token one claim, and no other.",
		func(e *env) {
			c := e.lasting()
			for _, r := range e.race([]idem.Claim{c, c, c, c}) {
				if r.State != idem.Claimed || r.Attempt != 1 {
					e.failf("got %v, attempt %d, want claimed, attempt 1", r.State, r.Attempt)
				}
			}
			e.must("another token", again(c), idem.InProgress)
		}},
	{"in-flight",
		"Begin by another token while the lease is live says in progress, with the first request's fingerprint and what is " +
			"left of the lease.",
		func(e *env) {
			c := e.held()
			longer := again(c)
			longer.Lease, longer.Retention = 2*c.Lease, 2*c.Lease
			for _, other := range []idem.Claim{longer, again(otherRequest(c)), reexecuting(c)} {
				r := e.must("another token", other, idem.InProgress)
				e.mustBeOf(c, r)
				// A store may round up to what its clock can tell.
				if most := c.Lease + e.lease; r.RetryAfter <= 0 || r.RetryAfter > most {
					e.failf("got %v of the lease left, want more than 0 and at most %v", r.RetryAfter, most)
				}
			}
		}},
	{"two-keys", "Two keys know nothing of each other: neither sees, settles or frees the other's claim.",
		func(e *env) {
			a := e.lasting()
			b := again(otherRequest(a))
			b.Key[31]++
			e.mustClaim("one key", a, 1)
			e.mustClaim("the other", b, 1)
			stranger := a
			stranger.Key = b.Key
			e.settle("one key's token with the other key", stranger, finished("stolen"), idem.ErrLost)
			e.settle("one key", a, finished("of a"), nil)
			e.must("the other", again(b), idem.InProgress)
			e.settle("the other", b, outcomeFree, nil)
			e.mustReplay("one key, after the other was freed", again(a), "of a")
			e.mustClaim("the other", again(b), 1)
		}},
	{"key-bytes", "Two keys are two, whichever of their bytes differ.",
		func(e *env) {
			a := e.lasting()
			a.Key = idem.Key{}
			e.mustClaim("the key of zeros", a, 1)
			for i := range a.Key {
				b := again(a)
				b.Key[i] = 0xff
				e.mustClaim("another key", b, 1)
				e.settle("another key", b, outcomeFree, nil)
			}
			e.must("the key of zeros", again(a), idem.InProgress)
		}},
	{"cancelled-context",
		"A call whose context is done does its work or returns an error that is no refusal, and leaves nothing half done.",
		func(e *env) {
			dead, cancel := context.WithCancel(e.ctx)
			cancel()
			mustNotRefuse := func(what string, err error) {
				for _, refusal := range []error{idem.ErrLost, idem.ErrFull, idem.ErrSettled} {
					if errors.Is(err, refusal) {
						e.failf("%s with a context that is done: got %v, which is a refusal", what, err)
					}
				}
			}
			c := e.lasting()
			_, err := e.store.Begin(dead, c)
			mustNotRefuse("Begin", err)
			e.mustClaim("the same token again", c, 1)
			mustNotRefuse("Extend", e.store.Extend(dead, c.Key, c.Token, c.Lease))
			e.extend("the same token again", c, nil)
			mustNotRefuse("Settle", e.store.Settle(dead, c.Key, c.Token, finished("answer")))
			e.settle("the same token again", c, finished("answer"), nil)
			e.mustReplay("afterwards", again(c), "answer")
		}},
}
