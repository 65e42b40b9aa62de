package ratelimittest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

// resetter is a Memory that resets in its own way.
type resetter struct {
	*ratelimit.Memory
	reset func(m *ratelimit.Memory, ctx context.Context, charges []charge) error
}

func (r resetter) Reset(ctx context.Context, charges []charge) error {
	return r.reset(r.Memory, ctx, charges)
}

func TestBrokenResetters(t *testing.T) {
	type resetFunc = func(m *ratelimit.Memory, ctx context.Context, charges []charge) error
	memory := (*ratelimit.Memory).Reset
	for _, tt := range []struct {
		name  string
		fails bool
		reset resetFunc
	}{
		{"resets", false, memory},
		{"cannot", false, func(*ratelimit.Memory, context.Context, []charge) error { return errors.ErrUnsupported }},
		{"does nothing", true, func(m *ratelimit.Memory, ctx context.Context, charges []charge) error {
			_, err := m.Take(ctx, make([]charge, 0))
			return err
		}},
		{"resets the first", true, func(m *ratelimit.Memory, ctx context.Context, charges []charge) error {
			return memory(m, ctx, charges[:min(1, len(charges))])
		}},
		{"resets all policies of a bucket", true,
			func(m *ratelimit.Memory, ctx context.Context, charges []charge) error {
				for _, a := range charges {
					for _, b := range charges {
						if err := memory(m, ctx, []charge{{Policy: a.Policy, Bucket: b.Bucket}}); err != nil {
							return err
						}
					}
				}
				return nil
			}},
		{"heeds the cost", true, func(m *ratelimit.Memory, ctx context.Context, charges []charge) error {
			if err := ratelimit.Check(charges); err != nil {
				return err
			}
			return memory(m, ctx, charges)
		}},
		{"clears the costs of its caller", true,
			func(m *ratelimit.Memory, ctx context.Context, charges []charge) error {
				for i := range charges {
					charges[i].Cost = 0
				}
				return memory(m, ctx, charges)
			}},
		{"takes a charge without a policy", true,
			func(m *ratelimit.Memory, ctx context.Context, charges []charge) error {
				_ = memory(m, ctx, charges)
				return nil
			}},
		{"fails without charges", true, func(m *ratelimit.Memory, ctx context.Context, charges []charge) error {
			if len(charges) == 0 {
				return errors.New("nothing to do")
			}
			return memory(m, ctx, charges)
		}},
	} {
		s := ratelimittest.Suite{Bubble: true,
			New: func(t *testing.T) ratelimit.Store { return resetter{ratelimit.NewMemory(), tt.reset} }}
		if err := s.Check(t, "Reset/Full"); (err != nil) != tt.fails {
			t.Errorf("a store that %s: got %v, want an error: %t", tt.name, err, tt.fails)
		}
	}
}
