package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// A LimitState is what a caller has left of one limit.
type LimitState struct {
	Policy    *ratelimit.Policy // not to be written to
	Remaining int64             // whole units
	Reset     time.Duration     // until all units are back; 0 if they are
}

// states reads each limit of a caller once.
func (l *limiter) states(ctx context.Context, p Principal) (states []LimitState, err error) {
	seen := map[string]bool{} // Plan may make a policy anew for each list
	err = l.each(ctx, p, func(charges []ratelimit.Charge) error {
		d, err := l.Store.Take(ctx, charges)
		if err != nil {
			return err
		}
		for i, c := range charges {
			if bucket := string(c.AppendKey(nil)); !seen[bucket] {
				seen[bucket] = true
				states = append(states, LimitState{c.Policy, d.States[i].Remaining, d.States[i].Reset})
			}
		}
		return nil
	})
	return states, err
}

func (l *limiter) reset(ctx context.Context, p Principal) error {
	return l.each(ctx, p, func(charges []ratelimit.Charge) error {
		store, ok := l.Store.(ratelimit.Resetter)
		if !ok {
			return fmt.Errorf("a %T cannot be reset: %w", l.Store, errors.ErrUnsupported)
		}
		return store.Reset(ctx, charges)
	})
}

// each calls do with the lists in which requests of the caller are charged, at
// a cost of 0.
func (l *limiter) each(ctx context.Context, p Principal, do func([]ratelimit.Charge) error) error {
	if !p.known() {
		return errors.New("middleware: the limits of nobody were asked for")
	}
	for _, route := range append([]routeLimit{{}}, l.routes...) {
		charges, err := l.charges(ctx, nil, p, nil, route)
		if err != nil {
			return fmt.Errorf("middleware: RateLimit.Plan or KeyPlan gave no usable policy: %w", err)
		}
		for i := range charges {
			charges[i].Cost = 0
		}
		n := enforced(charges, route.reportOnly)
		for _, list := range [][]ratelimit.Charge{charges[:n], charges[n:]} {
			if len(list) == 0 {
				continue
			}
			if err := do(slices.Clip(list)); err != nil {
				return fmt.Errorf("middleware: the limits of a caller: %w", err)
			}
		}
	}
	return nil
}
