package ratelimitredis

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// denials are the latest denials by Redis, known by the listKey of the
// decision. Denials of single charges would answer more requests, but not
// truly: the wait depends on all charges.
type denials struct{ *lru.Cache[uint64, denial] }

type denial struct {
	at     time.Time
	states [ratelimit.MaxCharges]ratelimit.State
}

// maxDenials take about 2 MB. If more clients than that are denied at one time,
// each of their requests costs Redis a command, as without a cache.
const maxDenials = 8192

func newDenials() denials {
	recent, _ := lru.New[uint64, denial](maxDenials) // the size is positive
	return denials{recent}
}

// remember is called when Redis has answered. A time before the answer would
// make the waits that known returns too short.
func (d denials) remember(key uint64, states [ratelimit.MaxCharges]ratelimit.State) {
	d.Add(key, denial{time.Now(), states})
}

// known returns the denial of charges, if there is one, less the time that has
// passed since.
func (d denials) known(key uint64, charges []ratelimit.Charge) (ratelimit.Decision, bool) {
	known, ok := d.Get(key)
	if !ok {
		return ratelimit.Decision{}, false
	}
	passed := time.Since(known.at)
	for i := range charges {
		s := &known.states[i]
		wait := max(s.Wait-passed, 0)
		*s = paceOf(&charges[i]).state(s.Reset - passed)
		s.Wait = wait
	}
	decision := ratelimit.Decide(charges, known.states)
	return decision, !decision.Allowed
}
