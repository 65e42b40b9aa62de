package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/memory"
)

// All limits of a request are one decision: if one of them denies it, none is
// charged.
func Example() {
	ctx := context.Background()
	store := &ratelimit.Memory{}
	organization := &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("100-S")}
	exports := &ratelimit.Policy{Name: "exports", Limit: ratelimit.MustParse("1-H")}
	for range 2 {
		d, err := store.Take(ctx, []ratelimit.Charge{
			{Policy: organization, Bucket: "org_1", Cost: 1},
			{Policy: exports, Bucket: "org_1", Cost: 1},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.Allowed, d.Wait.Round(time.Minute))
	}
	// Output:
	// true 0s
	// false 1h0m0s
}

func ExampleErrCost() {
	store := &ratelimit.Memory{}
	live := &ratelimit.Policy{Name: "live", Limit: ratelimit.MustParse("10-M")}
	_, err := store.Take(context.Background(), []ratelimit.Charge{{Policy: live, Bucket: "org_1", Cost: 20}})
	fmt.Println(errors.Is(err, ratelimit.ErrCost))
	fmt.Println(err)
	// Output:
	// true
	// ratelimit: cost exceeds the burst: policy "live", cost 20, burst 10
}

func ExampleParse() {
	for _, s := range []string{"100-S", "100-s", "0-M"} {
		limit, err := ratelimit.Parse(s)
		fmt.Println(limit.Count, limit.Period, err)
	}
	// Output:
	// 100 1s <nil>
	// 0 0s ratelimit: limit "100-s": unit "s" is none of S, M, H and D
	// 0 0s ratelimit: limit "0-M": count 0 is not positive
}

// Any store of ulule/limiter serves, here its memory store without the cleaner.
func ExampleFromLimiter() {
	store := ratelimit.FromLimiter(ulule.NewStoreWithOptions(limiter.StoreOptions{Prefix: "api"}))
	live := &ratelimit.Policy{Name: "live", Limit: ratelimit.MustParse("1-H")}
	for range 2 {
		d, err := store.Take(context.Background(), []ratelimit.Charge{{Policy: live, Bucket: "org_1", Cost: 1}})
		fmt.Println(d.Allowed, d.Wait > 59*time.Minute, err)
	}
	// Output:
	// true false <nil>
	// false true <nil>
}

// While the store does not answer, each policy follows its own mode.
func ExampleNewFailover() {
	store := ratelimit.NewFailover(unreachable{}, ratelimit.FailoverOptions{Logger: discard})
	for _, policy := range []*ratelimit.Policy{
		{Name: "counted-here", Limit: ratelimit.MustParse("10-M"), Fallback: ratelimit.Local},
		{Name: "generous", Limit: ratelimit.MustParse("10-M"), Fallback: ratelimit.Open},
		{Name: "strict", Limit: ratelimit.MustParse("10-M"), Fallback: ratelimit.Closed},
	} {
		d, err := store.Take(context.Background(), []ratelimit.Charge{{Policy: policy, Bucket: "org_1", Cost: 4}})
		fmt.Println(d.Allowed, d.States[0].Remaining, err != nil)
	}
	// Output:
	// true 6 false
	// true 10 false
	// false 0 true
}

type unreachable struct{}

func (unreachable) Take(context.Context, []ratelimit.Charge) (ratelimit.Decision, error) {
	return ratelimit.Decision{}, errors.New("dial tcp: connection refused")
}

// A burst below the count spreads requests: 100 a second, at most 10 at once.
func ExampleLimit() {
	limit := ratelimit.Limit{Count: 100, Period: time.Second, Burst: 10}
	fmt.Println(limit.Interval(), limit.Capacity())
	// Output: 10ms 10
}
