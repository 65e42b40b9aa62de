package ratelimit_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestCheck(t *testing.T) {
	live := &ratelimit.Policy{Name: "live", Limit: ratelimit.Limit{Count: 10, Period: time.Minute, Burst: 5}}
	other := &ratelimit.Policy{Name: "other", Limit: live.Limit}
	charge := func(p *ratelimit.Policy, bucket string, cost int64) ratelimit.Charge {
		return ratelimit.Charge{Policy: p, Bucket: bucket, Cost: cost}
	}
	good, one := charge(live, "org", 5), charge(live, "org", 1)
	for _, tt := range []struct {
		name    string
		charges []ratelimit.Charge
		says    string // "": no error
		cost    bool
	}{
		{"none", nil, "", false},
		{"four", []ratelimit.Charge{one, one, one, one}, "", false},
		{"of two buckets", []ratelimit.Charge{good, charge(live, "org2", 5)}, "", false},
		{"of two policies", []ratelimit.Charge{good, charge(other, "org", 5)}, "", false},
		{"of two limits", []ratelimit.Charge{good, charge(policy("live", "5-M"), "org", 5)}, "", false},
		{"together the burst", []ratelimit.Charge{one, charge(live, "org", 4)}, "", false},
		{"together over the burst",
			[]ratelimit.Charge{charge(live, "org", 2), charge(other, "org", 1), charge(live, "org", 4)},
			`more than one charge of a bucket, burst 5`, true},
		{"a look", []ratelimit.Charge{charge(live, "", 0)}, "", false},
		{"five", []ratelimit.Charge{good, good, good, good, good}, "5 charges", false},
		{"no policy", []ratelimit.Charge{good, charge(nil, "org", 1)}, "without a policy", false},
		{"no limit", []ratelimit.Charge{charge(&ratelimit.Policy{Name: "none"}, "", 1)}, `policy "none": count 0`, false},
		{"negative", []ratelimit.Charge{charge(live, "", -1)}, `policy "live": cost -1`, false},
		{"over the burst", []ratelimit.Charge{good, charge(live, "", 6)}, `policy "live", cost 6, burst 5`, true},
	} {
		err := ratelimit.Check(tt.charges)
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.says)
		}
		if errors.Is(err, ratelimit.ErrCost) != tt.cost {
			t.Errorf("%s: error %v wraps ErrCost: %v", tt.name, err, !tt.cost)
		}
	}
}

// TestAppendKey: the key has the name, the pace of the limit and the bucket.
// Those of an earlier version began with the name's length and a colon, so no
// key is both.
func TestAppendKey(t *testing.T) {
	key := func(name string, count int64, period time.Duration, burst int64, bucket string) string {
		p := &ratelimit.Policy{Name: name, Limit: ratelimit.Limit{Count: count, Period: period, Burst: burst}}
		c := ratelimit.Charge{Policy: p, Bucket: bucket, Cost: 1}
		return string(c.AppendKey([]byte("{prefix}")))
	}
	const want = "{prefix}60/1000000000:3:org:o:1"
	for _, same := range []string{
		key("org", 60, time.Minute, 0, "o:1"), key("org", 60, time.Minute, 60, "o:1"), key("org", 1, time.Second, 60, "o:1"),
	} {
		if same != want {
			t.Errorf("got %q, want %q", same, want)
		}
	}
	for _, other := range []string{
		key("org:o", 60, time.Minute, 0, "1"), key("org", 60, time.Minute, 0, "o:2"),
		key("org", 60, time.Minute, 61, "o:1"), key("org", 60, time.Hour, 0, "o:1"),
	} {
		if other == want {
			t.Errorf("another counter has the key %q", other)
		}
	}
}

func TestDecide(t *testing.T) {
	take := func(burst int64) ratelimit.Charge {
		p := &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: burst, Period: time.Minute}}
		return ratelimit.Charge{Policy: p}
	}
	wait := func(d time.Duration) ratelimit.State { return ratelimit.State{Wait: d} }
	left := func(n int64) ratelimit.State { return ratelimit.State{Remaining: n} }
	for _, tt := range []struct {
		name    string
		bursts  []int64
		states  [ratelimit.MaxCharges]ratelimit.State
		allowed bool
		index   int
	}{
		{"none", nil, [4]ratelimit.State{}, true, 0},
		{"one", []int64{10}, [4]ratelimit.State{left(3)}, true, 0},
		{"least share", []int64{10, 1000, 10}, [4]ratelimit.State{left(5), left(40), left(4)}, true, 1},
		{"equal shares", []int64{10, 20}, [4]ratelimit.State{left(5), left(10)}, true, 0},
		{"one denied", []int64{10, 10, 10}, [4]ratelimit.State{left(0), left(5), wait(1)}, false, 2},
		{"longest wait", []int64{10, 10, 10}, [4]ratelimit.State{wait(1), wait(50), wait(3)}, false, 1},
		{"denied with units left", []int64{10, 10}, [4]ratelimit.State{{Remaining: 5, Wait: 1}, left(1)}, false, 0},
		{"equal waits", []int64{10, 10}, [4]ratelimit.State{wait(5), wait(5)}, false, 0},
	} {
		var charges []ratelimit.Charge
		for _, burst := range tt.bursts {
			charges = append(charges, take(burst))
		}
		d := ratelimit.Decide(charges, tt.states)
		if d.Allowed != tt.allowed || d.Limiting != tt.index || d.States != tt.states {
			t.Errorf("%s: %+v, want Allowed %v and Limiting %d", tt.name, d, tt.allowed, tt.index)
		}
		if want := tt.states[tt.index]; d.States[d.Limiting] != want || d.Wait != want.Wait {
			t.Errorf("%s: State %+v and Wait %v, want %+v", tt.name, d.States[d.Limiting], d.Wait, want)
		}
	}
}
