package middleware

import (
	"context"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// throttle limits how many requests with a wrong key one address may send (one
// /64 for IPv6). It is asked before a look-up, and charged after one that failed:
// what is being looked up does not count yet. Counters are per process.
type throttle struct {
	policy   ratelimit.Policy
	counters ratelimit.Memory
}

func newThrottle(failures ratelimit.Limit) *throttle {
	if failures == (ratelimit.Limit{}) {
		return nil
	}
	return &throttle{policy: ratelimit.Policy{Name: "failures", Limit: failures}}
}

// take charges an address with a cost, 1 for a failure and 0 to ask whether one is
// left. It returns the refusal if none is.
func (t *throttle) take(ctx context.Context, address string, cost int64) *Problem {
	d, err := t.counters.Take(ctx, []ratelimit.Charge{{Policy: &t.policy, Bucket: address, Cost: cost}})
	left := d.States[0]
	switch limit := t.policy.Limit; {
	case err != nil:
		return refusal(codes.RateStore)
	case !d.Allowed:
		return t.refusal(d.Wait)
	case cost == 0 && left.Remaining == 0:
		return t.refusal(left.Reset - time.Duration(limit.Capacity()-1)*limit.Interval())
	}
	return nil
}

func (t *throttle) refusal(wait time.Duration) *Problem {
	p := refusal(codes.TooManyFailures)
	p.RetryAfter, p.Policy = wait, t.policy.Name
	return p
}
