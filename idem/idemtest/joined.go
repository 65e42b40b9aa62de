package idemtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// joinPatience bounds each Join of the suite. Only a store that waits for the
// wrong thing takes that long.
const joinPatience = 2 * time.Minute

func (e *env) join(c idem.Claim) (idem.Record, idem.Transaction) {
	ctx, cancel := context.WithTimeout(e.ctx, joinPatience)
	defer cancel()
	r, j, err := e.store.(idem.Joiner).Join(ctx, c, 0)
	if err != nil {
		e.failf("Join: got error %v, want an answer", err)
	}
	if (j != nil) != (r.State == idem.Claimed) {
		e.failf("Join: got %v and a transaction %t, want one exactly when claimed", r.State, j != nil)
	}
	return r, j
}

// mustJoin joins c and wants it claimed as that attempt.
func (e *env) mustJoin(what string, c idem.Claim, attempt int) idem.Transaction {
	r, j := e.join(c)
	if r.State != idem.Claimed || r.Attempt != attempt || r.Fingerprint != c.Fingerprint {
		e.failf("%s: Join got %v, attempt %d, fingerprint %x, want claimed, attempt %d, fingerprint %x",
			what, r.State, r.Attempt, r.Fingerprint, attempt, c.Fingerprint)
	}
	return j
}

// joined joins a claim and writes a row in its transaction.
func (e *env) joined() (idem.Claim, idem.Transaction) {
	c := e.lasting()
	j := e.mustJoin("a new key", c, 1)
	e.write(j, "row")
	return c, j
}

// mustNotJoin joins c and wants the state.
func (e *env) mustNotJoin(what string, c idem.Claim, want idem.State) idem.Record {
	r, j := e.join(c)
	if j != nil {
		j.Settle(e.ctx, outcomeFree)
	}
	if r.State != want {
		e.failf("%s: Join got %v, want %v", what, r.State, want)
	}
	return r
}

func (e *env) write(j idem.Transaction, row string) {
	if err := e.suite.Write(j.Context(e.ctx), row); err != nil {
		e.failf("Write in the transaction: got error %v", err)
	}
}

func (e *env) settleJoined(what string, j idem.Transaction, s idem.Settlement) {
	e.mustBe(what+": Settle", j.Settle(e.ctx, s), nil)
}

func (e *env) mustHaveRows(what string, want ...string) {
	got := e.suite.Rows(e.t, e.store)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		e.failf("%s: got the rows %q, want %q", what, got, want)
	}
}

// refused keeps the reply and rolls back the rows.
var refused = idem.Settlement{
	Outcome: idem.OutcomeDone, Payload: []byte("refused"), RollBack: true, Retention: time.Hour,
}

var joinedRules = []rule{
	{"join-commit", "A joined claim that is finished commits its rows with its reply, for Begin and for Join.",
		func(e *env) {
			c, j := e.joined()
			e.settleJoined("the holder", j, finished("answer"))
			e.mustHaveRows("afterwards", "row")
			e.mustReplay("afterwards", again(c), "answer")
			r := e.mustNotJoin("afterwards", again(c), idem.Done)
			if string(r.Payload) != "answer" || !r.Retained || r.Fingerprint != c.Fingerprint {
				e.failf("Join got the payload %s, retained %t, fingerprint %x, want what was settled",
					brief(string(r.Payload)), r.Retained, r.Fingerprint)
			}
		}},
	{"join-rollback", "RollBack keeps the reply and takes back the rows.",
		func(e *env) {
			c, j := e.joined()
			e.settleJoined("the holder", j, refused)
			e.mustHaveRows("afterwards")
			e.mustReplay("afterwards", again(c), "refused")
		}},
	{"join-not-started", "A joined claim that is not started leaves nothing: no rows, and a free key.",
		func(e *env) {
			c, j := e.joined()
			e.settleJoined("the holder", j, outcomeFree)
			e.mustHaveRows("afterwards")
			j = e.mustJoin("afterwards", again(otherRequest(c)), 1)
			e.settleJoined("the next holder", j, outcomeFree)
			e.mustClaim("afterwards, with a lease", again(c), 1)
		}},
	{"join-isolation", "Nobody sees the rows of a joined claim before it is settled.",
		func(e *env) {
			_, j := e.joined()
			e.mustHaveRows("before Settle")
			e.settleJoined("the holder", j, finished("answer"))
			e.mustHaveRows("after Settle", "row")
		}},
	{"join-in-flight",
		"Join of a key that a transaction holds says in progress and does not wait for it; the fingerprint is the first " +
			"request's or zero.",
		func(e *env) {
			c, j := e.joined()
			for _, other := range []idem.Claim{again(c), again(otherRequest(c)), reexecuting(c)} {
				r := e.mustNotJoin("while the transaction is open", other, idem.InProgress)
				if r.Fingerprint != c.Fingerprint && r.Fingerprint != ([32]byte{}) {
					e.failf("got fingerprint %x, want the first request's %x, or zero", r.Fingerprint, c.Fingerprint)
				}
			}
			e.settleJoined("the holder", j, finished("answer"))
		}},
	{"join-race", "Of any number of simultaneous Joins of one key exactly one gets a transaction.",
		func(e *env) {
			c := e.lasting()
			claims := make([]idem.Claim, racers)
			for i := range claims {
				claims[i] = again(c)
			}
			var mu sync.Mutex
			var joined []idem.Transaction
			e.atOnce(len(claims), func(i int) error {
				ctx, cancel := context.WithTimeout(e.ctx, joinPatience)
				defer cancel()
				_, j, err := e.store.(idem.Joiner).Join(ctx, claims[i], 0)
				if j != nil {
					mu.Lock()
					joined = append(joined, j)
					mu.Unlock()
				}
				return err
			})
			for _, j := range joined {
				j.Settle(e.ctx, outcomeFree)
			}
			if len(joined) != 1 {
				e.failf("%d of %d got a transaction, want 1", len(joined), len(claims))
			}
		}},
	{"join-sees-leases", "Join sees what Begin and Settle did: in progress, done, unknown.",
		func(e *env) {
			c := e.leased()
			e.mustBeOf(c, e.mustNotJoin("a live lease", again(c), idem.InProgress))
			e.leases(1.3)
			e.mustNotJoin("a lapsed lease", again(c), idem.Unknown)
			e.extend("the holder, late", c, idem.ErrLost)
			e.settle("the holder, late", c, finished("late"), nil)
			e.mustNotJoin("settled", again(c), idem.Done)
		}},
	{"join-take-over",
		"Join with Reexecute takes over what is unknown, as the next attempt; rolled back, it leaves what was there.",
		func(e *env) {
			c := e.leased()
			e.settle("the holder", c, unknown, nil)
			e.mustNotJoin("another request with Reexecute", otherRequest(reexecuting(c)), idem.Unknown)
			j := e.mustJoin("with Reexecute", reexecuting(c), 2)
			e.settleJoined("the taker", j, outcomeFree)
			e.must("rolled back", again(c), idem.Unknown)
			j = e.mustJoin("with Reexecute, again", reexecuting(c), 2)
			e.settleJoined("the taker", j, finished("answer"))
			e.mustReplay("committed", again(c), "answer")
		}},
	{"join-outlives-context", "The context of Join bounds Join and not the transaction.",
		func(e *env) {
			ctx, cancel := context.WithCancel(e.ctx)
			c := e.lasting()
			_, j, err := e.store.(idem.Joiner).Join(ctx, c, 0)
			cancel()
			if err != nil || j == nil {
				e.failf("Join: got a transaction %t, error %v", j != nil, err)
			}
			e.write(j, "row")
			e.settleJoined("after the context's end", j, finished("answer"))
			e.mustHaveRows("afterwards", "row")
			e.mustReplay("afterwards", again(c), "answer")
		}},
	{"join-cancelled-context", "Join with a context that is done is an error, no refusal, and holds nothing.",
		func(e *env) {
			dead, cancel := context.WithCancel(e.ctx)
			cancel()
			c := e.lasting()
			_, j, err := e.store.(idem.Joiner).Join(dead, c, 0)
			if err == nil || j != nil || errors.Is(err, idem.ErrFull) || errors.Is(err, idem.ErrLost) {
				e.failf("got a transaction %t, error %v, want an error that is no refusal", j != nil, err)
			}
			j = e.mustJoin("afterwards", again(c), 1)
			e.settleJoined("the holder", j, outcomeFree)
		}},
	{"join-turns", "Each transaction makes room for the next, however it ends, and so does a Join without one.",
		func(e *env) {
			for n := range 20 {
				for i, s := range []idem.Settlement{finished("answer"), refused, outcomeFree} {
					c := e.lasting()
					c.Key = idem.NewKey("organization", fmt.Sprint(n, " ", i))
					e.settleJoined("the holder", e.mustJoin("a new key", c, 1), s)
					if s.Outcome == idem.OutcomeDone {
						e.mustNotJoin("settled", again(c), idem.Done)
					}
				}
			}
		}},
	{"join-retention", "The reply of a joined claim is forgotten when its retention is over, and not before.",
		func(e *env) {
			c := e.claim()
			j := e.mustJoin("a new key", c, 1)
			e.settleJoined("the holder", j, e.kept(finished("answer"), 4))
			e.leases(3)
			e.mustReplay("before the retention is over", again(c), "answer")
			e.leases(2)
			j = e.mustJoin("after the retention", again(otherRequest(c)), 1)
			e.settleJoined("the next holder", j, outcomeFree)
		}},
}
