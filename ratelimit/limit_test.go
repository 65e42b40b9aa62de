package ratelimit_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

const day = 24 * time.Hour

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want ratelimit.Limit
	}{
		{"100-S", ratelimit.Limit{Count: 100, Period: time.Second}},
		{"1-M", ratelimit.Limit{Count: 1, Period: time.Minute}},
		{"5000-H", ratelimit.Limit{Count: 5000, Period: time.Hour}},
		{"007-D", ratelimit.Limit{Count: 7, Period: day}},
		{"1000000-S", ratelimit.Limit{Count: 1_000_000, Period: time.Second}},
	} {
		if got, err := ratelimit.Parse(tt.in); err != nil || got != tt.want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", tt.in, got, err, tt.want)
		}
	}
	for _, tt := range []struct{ in, says string }{
		{"", "want a count"},
		{"100", "want a count"},
		{"-S", "want a count"},
		{"-5-S", "want a count"},
		{"+5-S", `count "+5"`},
		{"1_000-S", `count "1_000"`},
		{"1e3-S", `count "1e3"`},
		{"0x10-S", `count "0x10"`},
		{"٣-S", "count"},
		{" 100-S", `count " 100"`},
		{"100 -S", `count "100 "`},
		{"100- S", `unit " S"`},
		{"100-S ", `unit "S "`},
		{"100-S\n", `unit "S\n"`},
		{"100-s", `unit "s"`},
		{"100-", `unit ""`},
		{"100-W", `unit "W"`},
		{"100-S-S", `unit "S-S"`},
		{"0-S", "count 0 is not positive"},
		{"1000001-S", "more than one per 1µs"},
		{"9223372036854775807-D", "more than one per 1µs"},
		{"9223372036854775808-D", "too large"},
	} {
		got, err := ratelimit.Parse(tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.HasPrefix(err.Error(), "ratelimit: limit ") ||
			got != (ratelimit.Limit{}) {
			t.Errorf("Parse(%q) = %+v, %v, want no limit and an error that says %q", tt.in, got, err, tt.says)
		}
	}
}

func TestPanics(t *testing.T) {
	valid, timeout := ratelimit.MustParse("10-M"), ratelimit.FailoverOptions{Timeout: -1}
	failover := func(s ratelimit.Store, o ratelimit.FailoverOptions) func() {
		return func() { ratelimit.NewFailover(s, o) }
	}
	for what, tt := range map[string]struct {
		says string // at the beginning
		f    func()
	}{
		"a limit without a unit": {`ratelimit: limit "10"`, func() { ratelimit.MustParse("10") }},
		"GCRA, no limit":         {"ratelimit: GCRA: ", func() { ratelimit.GCRA(0, 0, ratelimit.Limit{}, 0) }},
		"GCRA, over the burst":   {"ratelimit: GCRA: ", func() { ratelimit.GCRA(0, 0, valid, 11) }},
		"GCRA, a negative cost":  {"ratelimit: GCRA: ", func() { ratelimit.GCRA(0, 0, valid, -1) }},
		"Failover of nil":        {"ratelimit: NewFailover: ", failover(nil, ratelimit.FailoverOptions{})},
		"Failover of a nil Memory": {"ratelimit: NewFailover: ",
			failover((*ratelimit.Memory)(nil), ratelimit.FailoverOptions{})},
		"a negative timeout": {"ratelimit: NewFailover: ", failover(newFaulty(), timeout)},
		"FromLimiter of nil": {"ratelimit: FromLimiter: nil store", func() { ratelimit.FromLimiter(nil) }},
		"FromLimiter of a nil pointer": {"ratelimit: FromLimiter: nil store",
			func() { ratelimit.FromLimiter((*recording)(nil)) }},
	} {
		func() {
			defer func() {
				if v, _ := recover().(string); !strings.HasPrefix(v, tt.says) {
					t.Errorf("%s: panics with %q", what, v)
				}
			}()
			tt.f()
		}()
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		limit    ratelimit.Limit
		interval time.Duration // rounded up; 0 exactly when the limit is not valid
		says     string
	}{
		{ratelimit.Limit{Count: 1, Period: time.Second}, time.Second, ""},
		{ratelimit.Limit{Count: 1, Period: time.Second, Burst: 1 << 30}, time.Second, ""},
		{ratelimit.Limit{Count: 10, Period: time.Second}, 100 * time.Millisecond, ""},
		{ratelimit.Limit{Count: 3, Period: time.Second}, 333333334, ""},
		{ratelimit.Limit{Count: 7, Period: time.Second, Burst: 2}, 142857143, ""},
		{ratelimit.Limit{Count: 1, Period: day}, day, ""},
		{ratelimit.Limit{Count: 1e6, Period: time.Second}, time.Microsecond, ""},
		{ratelimit.Limit{Count: 1, Period: time.Microsecond}, time.Microsecond, ""},
		{ratelimit.Limit{Count: 1, Period: 1 << 62}, 1 << 62, ""},
		{ratelimit.Limit{}, 0, "count 0"},
		{ratelimit.Limit{Count: -1, Period: time.Second}, 0, "count -1"},
		{ratelimit.Limit{Count: 1}, 0, "period 0s"},
		{ratelimit.Limit{Count: 1, Period: -time.Second}, 0, "period -1s"},
		{ratelimit.Limit{Count: 1, Period: time.Second, Burst: -1}, 0, "burst -1"},
		{ratelimit.Limit{Count: 1, Period: 1}, 0, "more than one per 1µs"},
		{ratelimit.Limit{Count: 1, Period: 999}, 0, "more than one per 1µs"},
		{ratelimit.Limit{Count: 1e6 + 1, Period: time.Second}, 0, "more than one per 1µs"},
		{ratelimit.Limit{Count: math.MaxInt64, Period: math.MaxInt64}, 0, "more than one per 1µs"},
		{ratelimit.Limit{Count: 1, Period: 1<<62 + 1}, 0, "146 years"},
		{ratelimit.Limit{Count: 1, Period: time.Second, Burst: math.MaxInt64}, 0, "146 years"},
		{ratelimit.Limit{Count: 1, Period: math.MaxInt64, Burst: 2}, 0, "146 years"},
	} {
		err := ratelimit.Valid(tt.limit)
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%+v: error %v, want %q", tt.limit, err, tt.says)
		}
		if got := tt.limit.Interval(); got != tt.interval {
			t.Errorf("%+v: interval %v, want %v", tt.limit, got, tt.interval)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"100-S", "1-D", "0-S", "1-s", "-1-S", "9223372036854775808-H"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ratelimit.Parse(s)
		if err != nil {
			return
		}
		if err := ratelimit.Valid(l); err != nil {
			t.Errorf("Parse(%q) gives a limit that is not valid: %v", s, err)
		}
		unit := map[time.Duration]string{time.Second: "S", time.Minute: "M", time.Hour: "H", day: "D"}[l.Period]
		if got := strconv.FormatInt(l.Count, 10) + "-" + unit; strings.TrimLeft(s, "0") != got {
			t.Errorf("Parse(%q) formats as %q", s, got)
		}
	})
}
