package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/ulule/limiter/v3"
)

// What Memory, FromLimiter and Failover reset is a rule of ratelimittest.

// A Failover resets its store and what it counted itself, and says if the store
// cannot be reset.
func TestFailoverReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		charges := []ratelimit.Charge{{Policy: policy("p", "1-H"), Bucket: "b", Cost: 1}}
		store, local := ratelimit.NewMemory(), ratelimit.NewMemory()
		spend := func() {
			for _, s := range []ratelimit.Store{store, local} {
				if d, err := s.Take(t.Context(), charges); err != nil || !d.Allowed {
					t.Fatalf("got %+v, %v", d, err)
				}
			}
		}
		left := func(s ratelimit.Store) int64 {
			d, err := s.Take(t.Context(), []ratelimit.Charge{{Policy: charges[0].Policy, Bucket: "b"}})
			if err != nil {
				t.Fatal(err)
			}
			return d.States[0].Remaining
		}
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{})
		f.Count(local)
		spend()
		if err := f.Reset(t.Context(), charges); err != nil || left(store) != 1 || left(local) != 1 {
			t.Errorf("got %v with %d and %d of 1 left", err, left(store), left(local))
		}
		f = ratelimit.NewFailover(down{}, ratelimit.FailoverOptions{Logger: discard})
		f.Count(local)
		spend()
		if err := f.Reset(t.Context(), charges); !errors.Is(err, errors.ErrUnsupported) || left(local) != 1 {
			t.Errorf("a store that cannot be reset: got %v with %d of 1 left locally", err, left(local))
		}
	})
}

// An error of ulule's store comes back as it is.
func TestFromLimiterResetFails(t *testing.T) {
	charges := []ratelimit.Charge{{Policy: policy("p", "1-H"), Bucket: "b"}}
	if err := ratelimit.FromLimiter(down{}).(ratelimit.Resetter).Reset(t.Context(), charges); !errors.Is(err, errDown) {
		t.Errorf("got %v", err)
	}
}

var errDown = errors.New("down")

type down struct{}

func (down) Take(context.Context, []ratelimit.Charge) (ratelimit.Decision, error) {
	return ratelimit.Decision{}, errDown
}

func (down) Get(context.Context, string, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errDown
}

func (down) Peek(context.Context, string, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errDown
}

func (down) Reset(context.Context, string, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errDown
}

func (down) Increment(context.Context, string, int64, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errDown
}

// A place that was reset is free for another bucket.
func TestMemoryResetFreesThePlace(t *testing.T) {
	m := ratelimit.NewMemorySize(1)
	p := &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: 1, Period: time.Hour}}
	for i := range 1000 {
		charges := []ratelimit.Charge{{Policy: p, Bucket: string(rune('a' + i)), Cost: 1}}
		if d, err := m.Take(context.Background(), charges); err != nil || !d.Allowed {
			t.Fatalf("bucket %d: got %+v, %v", i, d, err)
		}
		if err := m.Reset(context.Background(), charges); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.Forgotten(); n != 0 {
		t.Errorf("%d buckets in debt were dropped", n)
	}
}
