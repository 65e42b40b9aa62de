package ratelimit_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestCheck(t *testing.T) {
	policy := &ratelimit.Policy{Name: "live", Limit: ratelimit.Limit{Count: 10, Period: time.Minute, Burst: 5}}
	good, one := ratelimit.Take{Policy: policy, Bucket: "org", Cost: 5}, ratelimit.Take{Policy: policy, Bucket: "org", Cost: 1}
	other := &ratelimit.Policy{Name: "other", Limit: policy.Limit}
	for _, tt := range []struct {
		name  string
		takes []ratelimit.Take
		says  string // "": no error
		cost  bool
	}{
		{"none", nil, "", false},
		{"four", []ratelimit.Take{one, one, one, one}, "", false},
		{"of two buckets", []ratelimit.Take{good, {Policy: policy, Bucket: "org2", Cost: 5}}, "", false},
		{"of two policies", []ratelimit.Take{good, {Policy: other, Bucket: "org", Cost: 5}}, "", false},
		{"together the burst", []ratelimit.Take{one, {Policy: policy, Bucket: "org", Cost: 4}}, "", false},
		{"together over the burst", []ratelimit.Take{{Policy: policy, Bucket: "org", Cost: 2}, {Policy: other, Bucket: "org", Cost: 1}, {Policy: policy, Bucket: "org", Cost: 4}}, `more than one take of a bucket, burst 5`, true},
		{"a look", []ratelimit.Take{{Policy: policy}}, "", false},
		{"five", []ratelimit.Take{good, good, good, good, good}, "5 takes", false},
		{"no policy", []ratelimit.Take{good, {Bucket: "org", Cost: 1}}, "without a policy", false},
		{"no limit", []ratelimit.Take{{Policy: &ratelimit.Policy{Name: "none"}, Cost: 1}}, `policy "none": count 0`, false},
		{"negative", []ratelimit.Take{{Policy: policy, Cost: -1}}, `policy "live": cost -1`, false},
		{"over the burst", []ratelimit.Take{good, {Policy: policy, Cost: 6}}, `policy "live", cost 6, burst 5`, true},
	} {
		err := ratelimit.Check(tt.takes)
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.says)
		}
		if errors.Is(err, ratelimit.ErrCost) != tt.cost {
			t.Errorf("%s: error %v wraps ErrCost: %v", tt.name, err, !tt.cost)
		}
	}
}

func TestDecide(t *testing.T) {
	take := func(burst int64) ratelimit.Take {
		return ratelimit.Take{Policy: &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: burst, Period: time.Minute}}}
	}
	wait := func(d time.Duration) ratelimit.State { return ratelimit.State{Wait: d} }
	left := func(n int64) ratelimit.State { return ratelimit.State{Remaining: n} }
	for _, tt := range []struct {
		name    string
		bursts  []int64
		states  [ratelimit.MaxTakes]ratelimit.State
		allowed bool
		index   int
	}{
		{"none", nil, [4]ratelimit.State{}, true, 0},
		{"one", []int64{10}, [4]ratelimit.State{left(3)}, true, 0},
		{"least share", []int64{10, 1000, 10}, [4]ratelimit.State{left(5), left(40), left(4)}, true, 1},
		{"equal shares", []int64{10, 20}, [4]ratelimit.State{left(5), left(10)}, true, 0},
		{"one denied", []int64{10, 10, 10}, [4]ratelimit.State{left(0), left(5), wait(1)}, false, 2},
		{"longest wait", []int64{10, 10, 10}, [4]ratelimit.State{wait(time.Second), wait(50 * time.Second), wait(3 * time.Second)}, false, 1},
		{"equal waits", []int64{10, 10}, [4]ratelimit.State{wait(5), wait(5)}, false, 0},
	} {
		var takes []ratelimit.Take
		for _, burst := range tt.bursts {
			takes = append(takes, take(burst))
		}
		d := ratelimit.Decide(takes, tt.states)
		if d.Allowed != tt.allowed || d.Index != tt.index || d.Takes != len(takes) || d.States != tt.states {
			t.Errorf("%s: %+v, want Allowed %v and Index %d", tt.name, d, tt.allowed, tt.index)
		}
		if d.Wait() != tt.states[tt.index].Wait {
			t.Errorf("%s: Wait %v, want %v", tt.name, d.Wait(), tt.states[tt.index].Wait)
		}
	}
}
