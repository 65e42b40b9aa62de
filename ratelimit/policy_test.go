package ratelimit_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestPolicyValidate(t *testing.T) {
	limit := ratelimit.MustParse("10-M")
	for _, tt := range []struct {
		policy ratelimit.Policy
		says   []string
	}{
		{ratelimit.Policy{Name: "live", Limit: limit}, nil},
		{ratelimit.Policy{Name: "*", Limit: limit}, nil},
		{ratelimit.Policy{Name: "Tasks/write:2-x.y_z~!#$%&'+^`|", Limit: limit, Fallback: ratelimit.Closed}, nil},
		{ratelimit.Policy{Name: "azAZ09", Limit: limit}, nil},
		{ratelimit.Policy{Name: "z", Limit: limit}, nil},
		{ratelimit.Policy{Name: "A", Limit: limit}, nil},
		{ratelimit.Policy{Name: "Z", Limit: limit}, nil},
		{ratelimit.Policy{Name: "a@", Limit: limit}, []string{`name "a@"`}},
		{ratelimit.Policy{Name: "a[", Limit: limit}, []string{`name "a["`}},
		{ratelimit.Policy{Name: "a{", Limit: limit}, []string{`name "a{"`}},
		{ratelimit.Policy{Limit: limit}, []string{`name ""`}},
		{ratelimit.Policy{Name: "2live", Limit: limit}, []string{`name "2live"`}},
		{ratelimit.Policy{Name: "a b", Limit: limit}, []string{`name "a b"`}},
		{ratelimit.Policy{Name: `a"b`, Limit: limit}, []string{"name"}},
		{ratelimit.Policy{Name: "a;b", Limit: limit}, []string{"name"}},
		{ratelimit.Policy{Name: "a\r\nb", Limit: limit}, []string{"name"}},
		{ratelimit.Policy{Name: "é", Limit: limit}, []string{"name"}},
		{*ratelimit.Unlimited, []string{"count 0"}}, // which no store counts
		{ratelimit.Policy{Name: "a b", Fallback: 3}, []string{`name "a b"`, "count 0", "fallback 3"}},
	} {
		err := tt.policy.Validate()
		if (err == nil) != (tt.says == nil) {
			t.Errorf("%+v: error %v", tt.policy, err)
		}
		for _, says := range tt.says {
			if err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: error %q does not say %q", tt.policy, err, says)
			}
		}
	}
}
