package ratelimittest

import (
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// oddNames differ in what a store may fold, cut, escape or read as syntax.
var oddNames = []string{
	"", " ", "  ", "a", "A", "a ", " a", "a\x00", "\x00a", "a\x00b", "ab", "a:b", "a::b", "a:", ":a", "a|b", "a/b",
	"a{b}", "{a}b", "{}",
	"*", "a*", "?", "[a]", "a\nb", "a\r\nb", "\r\n", "é", "e\u0301", "\xff", "\xfe", "%61", "%00",
	"'", `"`, `\`, "key", "ключ",
	strings.Repeat("a", 300), strings.Repeat("a", 301), strings.Repeat("a", 5000) + "b", strings.Repeat("a", 5000) + "c",
}

var bucketRules = []rule{
	{"Bucket/Isolated", "Buckets with different names never share a counter, whatever bytes the names hold.",
		nil, func(e *env) {
			p := e.hourly("", 1)
			for _, name := range oddNames {
				if d := e.take(one(p, name, 1)...); !d.Allowed {
					e.failf("the bucket %.20q (%d bytes) was spent by another one", name, len(name))
				}
			}
			for _, name := range oddNames {
				if d := e.take(one(p, name, 1)...); d.Allowed {
					e.failf("the bucket %.20q (%d bytes) does not know that it is spent", name, len(name))
				}
			}
		}},
	{"Bucket/Policies", "Two policies never share a counter, also when name and bucket run together to the same text.",
		nil, func(e *env) {
			for _, pair := range [][2]struct{ policy, bucket string }{
				{{"a", "x"}, {"b", "x"}},
				{{"a", "bc"}, {"ab", "c"}},
				{{"a", ":b"}, {"a:", "b"}},
				{{"a", "b:c"}, {"a:b", "c"}},
				{{"a", "/b"}, {"a/", "b"}},
				{{"a", "|b"}, {"a|", "b"}},
				{{"a", "b"}, {"A", "b"}},
				{{"1:a", "b"}, {"1", "a:b"}},
			} {
				for i, who := range pair {
					if d := e.take(one(e.hourly(who.policy, 1), who.bucket, 1)...); !d.Allowed {
						e.failf("policy %q, bucket %q was spent by policy %q, bucket %q",
							who.policy, who.bucket, pair[1-i].policy, pair[1-i].bucket)
					}
				}
				// The next pairs begin anew.
				e.tag += "x"
			}
		}},
	{"Bucket/Limits",
		"Two limits under one name never share a counter: " +
			"a decision under one neither spends nor gives back what the other admits.",
		nil, func(e *env) {
			daily := e.policy("", ratelimit.Limit{Count: 5, Period: 24 * time.Hour})
			for i, l := range []ratelimit.Limit{
				{Count: 5, Period: time.Hour},
				{Count: 5, Period: 24 * time.Hour, Burst: 3},
				{Count: 5, Period: 24 * time.Hour, Burst: 9},
				{Count: 1, Period: time.Hour, Burst: 5},
				brisk,
			} {
				other, bucket := e.policy("", l), strconv.Itoa(i)
				if n, _ := e.exhaust(daily, bucket); n != 5 {
					e.failf("%d of 5 a day were admitted", n)
				}
				d := e.admitted(ratelimit.Charge{Policy: daily, Bucket: bucket},
					ratelimit.Charge{Policy: other, Bucket: bucket, Cost: 1})
				if a, b := d.States[0].Remaining, d.States[1].Remaining; a != 0 || b != l.Capacity()-1 {
					e.failf("after 5 of 5 a day and one of %+v, %d and %d are left", l, a, b)
				}
				e.exhaust(other, bucket)
				if d := e.take(one(daily, bucket, 1)...); d.Allowed {
					e.failf("decisions under %+v gave back units that were spent under 5 a day", l)
				}
			}
		}},
	{"Bucket/SlicesAreTheCallers", "A store does not keep the slice of charges: the caller uses it again.",
		nil, func(e *env) {
			p := e.hourly("", 2)
			charges := make([]ratelimit.Charge, 1)
			for _, bucket := range []string{"a", "b", "a", "b"} {
				charges[0] = ratelimit.Charge{Policy: p, Bucket: bucket, Cost: 1}
				e.admitted(charges...)
				charges[0] = ratelimit.Charge{Policy: p, Bucket: "c", Cost: 2}
			}
			if got := e.remaining(p, "c"); got != 2 {
				e.failf("%d of 2 remain in a bucket that nobody took from", got)
			}
		}},
}
