package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/memory"
)

// recording records the calls of a limiter.Store. It can let another client
// come between the comparison and the charge.
type recording struct {
	limiter.Store
	calls   []string
	rates   []limiter.Rate
	err     error
	between func()
}

func newRecording() *recording {
	return &recording{Store: ulule.NewStoreWithOptions(limiter.StoreOptions{})}
}

func (r *recording) Peek(ctx context.Context, key string, rate limiter.Rate) (limiter.Context, error) {
	r.calls, r.rates = append(r.calls, "peek "+key), append(r.rates, rate)
	if r.err != nil {
		return limiter.Context{}, r.err
	}
	return r.Store.Peek(ctx, key, rate)
}

func (r *recording) Increment(ctx context.Context, key string, n int64, rate limiter.Rate) (limiter.Context, error) {
	if r.between != nil {
		r.between()
		r.between = nil
	}
	r.calls, r.rates = append(r.calls, fmt.Sprintf("add %d to %s", n, key)), append(r.rates, rate)
	if r.err != nil {
		return limiter.Context{}, r.err
	}
	return r.Store.Increment(ctx, key, n, rate)
}

func TestFromLimiterCalls(t *testing.T) {
	org, key := policy("org", "10-M"), policy("key", "5-M")
	for _, tt := range []struct {
		name    string
		charges []ratelimit.Charge
		calls   []string
	}{
		{"one unit", []ratelimit.Charge{{Policy: org, Bucket: "o", Cost: 1}}, []string{"add 1 to 10/6000000000:3:org:o"}},
		{"a cost", []ratelimit.Charge{{Policy: org, Bucket: "o", Cost: 3}},
			[]string{"peek 10/6000000000:3:org:o", "add 3 to 10/6000000000:3:org:o"}},
		{"a look", []ratelimit.Charge{{Policy: org, Bucket: "o"}}, []string{"peek 10/6000000000:3:org:o"}},
		{"two", []ratelimit.Charge{{Policy: org, Bucket: "o", Cost: 1}, {Policy: key, Bucket: "k", Cost: 2}},
			[]string{"peek 10/6000000000:3:org:o", "peek 5/12000000000:3:key:k", "add 1 to 10/6000000000:3:org:o",
				"add 2 to 5/12000000000:3:key:k"}},
		{"a charge and a look", []ratelimit.Charge{{Policy: org, Bucket: "o", Cost: 1}, {Policy: key, Bucket: "k"}},
			[]string{"peek 10/6000000000:3:org:o", "peek 5/12000000000:3:key:k", "add 1 to 10/6000000000:3:org:o"}},
		{"none", nil, nil},
	} {
		store := newRecording()
		take(t, ratelimit.FromLimiter(store), tt.charges...)
		if !slices.Equal(store.calls, tt.calls) {
			t.Errorf("%s: calls %q, want %q", tt.name, store.calls, tt.calls)
		}
		store.err = errRefused
		d, err := ratelimit.FromLimiter(store).Take(t.Context(), tt.charges)
		if failed := tt.charges != nil; errors.Is(err, errRefused) != failed || d.Allowed == failed {
			t.Errorf("%s, of a store that fails: Allowed %v, error %v", tt.name, d.Allowed, err)
		}
	}
}

// Charges of one bucket are compared with what is left together: where they do
// not fit, none is made.
func TestFromLimiterOneBucket(t *testing.T) {
	store, org := ratelimit.FromLimiter(newRecording()), policy("org", "10-M")
	charge := func(cost int64) ratelimit.Charge { return ratelimit.Charge{Policy: org, Bucket: "o", Cost: cost} }
	take(t, store, charge(6))
	if d := take(t, store, charge(3), charge(3)); d.Allowed {
		t.Error("two charges of 3 were made where 4 are left")
	}
	if d := take(t, store, charge(5), charge(0)); d.Limiting != 0 || d.States[1].Wait != 0 {
		t.Errorf("got %+v: a cost of 0 waits for a charge that is denied", d)
	}
	if left := take(t, store, charge(0)).States[0].Remaining; left != 4 {
		t.Errorf("%d are left after a denial, want 4", left)
	}
	if d := take(t, store, charge(2), charge(2)); !d.Allowed {
		t.Error("two charges of 2 were denied where 4 are left")
	}
}

func TestFromLimiterWindow(t *testing.T) {
	for _, tt := range []struct {
		limit  ratelimit.Limit
		count  int64
		window time.Duration
	}{
		{ratelimit.MustParse("100-S"), 100, time.Second},
		{ratelimit.Limit{Count: 3, Period: time.Second}, 3, time.Second},
		{ratelimit.Limit{Count: 100, Period: time.Second, Burst: 500}, 500, 5 * time.Second},
		{ratelimit.Limit{Count: 100, Period: time.Second, Burst: 1}, 1, 10 * time.Millisecond},
		{ratelimit.Limit{Count: 1, Period: 1500 * time.Microsecond}, 1, 2 * time.Millisecond},
		{ratelimit.Limit{Count: 1, Period: time.Microsecond}, 1, time.Millisecond},
		{ratelimit.Limit{Count: 1, Period: time.Millisecond + 1}, 1, 2 * time.Millisecond},
	} {
		store := newRecording()
		takeOne(t, ratelimit.FromLimiter(store), &ratelimit.Policy{Name: "p", Limit: tt.limit}, "b")
		if got := store.rates[0]; got.Limit != tt.count || got.Period != tt.window {
			t.Errorf("%+v counts %d per %v, want %d per %v", tt.limit, got.Limit, got.Period, tt.count, tt.window)
		}
	}
}

// ulule returns the end of a window cut to a second; the wait lasts to its real
// end.
func TestFromLimiterWait(t *testing.T) {
	for _, begin := range []time.Duration{0, time.Nanosecond, 300 * time.Millisecond, time.Second - 1} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(begin)
			store, p := ratelimit.FromLimiter(newRecording()), policy("org", "10-S")
			began := time.Now()
			if n := exhaust(t, store, p, "o"); n != 10 {
				t.Errorf("%d admitted, want 10", n)
			}
			d := takeOne(t, store, p, "o")
			if end := began.Add(time.Second); time.Now().Add(d.Wait).Before(end) {
				t.Errorf("a window that began at %v: the wait of %v ends before it", begin, d.Wait)
			}
			if d.Wait > 2*time.Second {
				t.Errorf("a window that began at %v: the wait is %v", begin, d.Wait)
			}
			time.Sleep(d.Wait)
			if !takeOne(t, store, p, "o").Allowed {
				t.Errorf("a window that began at %v: denied after the wait", begin)
			}
		})
	}
}

// full is a store whose counter is full and whose window has just ended, as
// one on another machine may say.
type full struct{ limiter.Store }

func (full) Increment(context.Context, string, int64, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{Limit: 1, Reset: time.Now().Unix() - 5, Reached: true}, nil
}

func TestFromLimiterWindowIsOver(t *testing.T) {
	if d := takeOne(t, ratelimit.FromLimiter(full{}), policy("org", "1-S"), "o"); d.Allowed || d.Wait != 1 {
		t.Errorf("got %+v, want it denied with the shortest wait", d)
	}
}

// Another client takes the last unit between the comparison and the charge.
func TestFromLimiterRace(t *testing.T) {
	store := newRecording()
	s, org, key := ratelimit.FromLimiter(store), policy("org", "10-M"), policy("key", "1-M")
	store.between = func() {
		store.Store.Increment(context.Background(), "1/60000000000:3:key:k", 1, limiter.Rate{Limit: 1, Period: time.Minute})
	}
	d := take(t, s, ratelimit.Charge{Policy: org, Bucket: "o", Cost: 1},
		ratelimit.Charge{Policy: key, Bucket: "k", Cost: 1})
	if d.Allowed || d.Limiting != 1 {
		t.Errorf("%+v, want it denied by the second take", d)
	}
}

func TestFromLimiterSuite(t *testing.T) {
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store {
			return ratelimit.FromLimiter(newRecording().Store)
		},
		Unavailable: func(t *testing.T) ratelimit.Store {
			store := newRecording()
			store.err = errRefused
			return ratelimit.FromLimiter(store)
		},
		Bubble: true,
	}.Run(t)
}
