package ratelimitredis

import (
	"hash/maphash"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// denials are what Redis denied a short while ago, by policy, limit, bucket and cost
// of all takes of the decision. Single takes would answer more requests, but not
// truly: how long to wait depends on all takes, and of the others nothing is known.
type denials struct {
	seed   maphash.Seed
	recent *lru.Cache[uint64, denial]
}

type denial struct {
	at     time.Time
	states [ratelimit.MaxTakes]ratelimit.State
}

// maxDenials take about 2 MB. A flood of more denied clients than that costs Redis a
// command each, as if there were no cache.
const maxDenials = 8192

func newDenials() *denials {
	recent, err := lru.New[uint64, denial](maxDenials)
	if err != nil {
		panic("ratelimitredis: " + err.Error()) // the size is positive
	}
	return &denials{maphash.MakeSeed(), recent}
}

// remember is called as soon as Redis has answered. A moment later would be as true,
// one earlier would not: who was told to wait may come back when this is forgotten.
func (d *denials) remember(takes []ratelimit.Take, states [ratelimit.MaxTakes]ratelimit.State) {
	d.recent.Add(d.key(takes), denial{time.Now(), states})
}

// known returns the denial of takes, as it looks after the time that has passed.
func (d *denials) known(takes []ratelimit.Take) (ratelimit.Decision, bool) {
	known, ok := d.recent.Get(d.key(takes))
	if !ok {
		return ratelimit.Decision{}, false
	}
	passed := time.Since(known.at)
	for i := range takes {
		s := &known.states[i]
		wait := max(s.Wait-passed, 0)
		*s = paceOf(&takes[i]).state(s.Reset - passed)
		s.Wait = wait
	}
	decision := ratelimit.Decide(takes, known.states)
	return decision, !decision.Allowed
}

// key is a hash with a random seed: nobody can make two lists of takes meet, and
// nothing that a client sent is kept.
func (d *denials) key(takes []ratelimit.Take) uint64 {
	var list [ratelimit.MaxTakes]struct {
		policy string
		limit  ratelimit.Limit
		bucket string
		cost   int64
	}
	for i, t := range takes {
		list[i].policy, list[i].limit, list[i].bucket, list[i].cost = t.Policy.Name, t.Policy.Limit, t.Bucket, t.Cost
	}
	return maphash.Comparable(d.seed, list)
}
