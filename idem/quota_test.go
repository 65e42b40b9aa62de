package idem_test

import (
	"math"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // which not every machine has

	"github.com/sallyport-go/sallyport/idem"
)

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		name   string
		period idem.Period
		at     string
		begin  string
		next   string
	}{
		{"within a month", idem.Month, "2026-07-15T12:30:00Z", "2026-07-01", "2026-08-01"},
		{"a month begins", idem.Month, "2026-07-01T00:00:00Z", "2026-07-01", "2026-08-01"},
		{"a month ends", idem.Month, "2026-07-31T23:59:59.999999999Z", "2026-07-01", "2026-08-01"},
		{"30 days", idem.Month, "2026-04-30T23:59:59Z", "2026-04-01", "2026-05-01"},
		{"before a shorter month", idem.Month, "2026-01-31T12:00:00Z", "2026-01-01", "2026-02-01"},
		{"28 days", idem.Month, "2026-02-28T23:59:59Z", "2026-02-01", "2026-03-01"},
		{"29 February", idem.Month, "2028-02-29T23:59:59Z", "2028-02-01", "2028-03-01"},
		{"no leap year", idem.Month, "2100-02-28T23:59:59Z", "2100-02-01", "2100-03-01"},
		{"December", idem.Month, "2026-12-31T23:59:59Z", "2026-12-01", "2027-01-01"},
		{"the month of UTC is the next", idem.Month, "2026-07-31T20:00:00-05:00", "2026-08-01", "2026-09-01"},
		{"the month of UTC is the last", idem.Month, "2026-08-01T05:00:00+05:30", "2026-07-01", "2026-08-01"},
		{"the year of UTC is the last", idem.Month, "2027-01-01T00:30:00+01:00", "2026-12-01", "2027-01-01"},

		{"within a day", idem.Day, "2026-07-15T12:30:00Z", "2026-07-15", "2026-07-16"},
		{"a day begins", idem.Day, "2026-07-15T00:00:00Z", "2026-07-15", "2026-07-16"},
		{"a day ends", idem.Day, "2026-07-15T23:59:59.999999999Z", "2026-07-15", "2026-07-16"},
		{"the last day of a month", idem.Day, "2026-04-30T01:00:00Z", "2026-04-30", "2026-05-01"},
		{"28 February", idem.Day, "2026-02-28T01:00:00Z", "2026-02-28", "2026-03-01"},
		{"28 February, leap year", idem.Day, "2028-02-28T01:00:00Z", "2028-02-28", "2028-02-29"},
		{"29 February", idem.Day, "2028-02-29T01:00:00Z", "2028-02-29", "2028-03-01"},
		{"31 December", idem.Day, "2026-12-31T01:00:00Z", "2026-12-31", "2027-01-01"},
		{"the day of UTC is the next", idem.Day, "2026-07-15T23:30:00-01:00", "2026-07-16", "2026-07-17"},
		{"the day of UTC is the last", idem.Day, "2026-07-15T00:30:00+01:00", "2026-07-14", "2026-07-15"},

		{"for ever", idem.Lifetime, "2026-07-15T12:30:00Z", "0001-01-01", "0001-01-01"},
	} {
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		begin, next := c.period.Bounds(at)
		b, n := begin.Format(time.RFC3339Nano), next.Format(time.RFC3339Nano)
		if b != c.begin+"T00:00:00Z" || n != c.next+"T00:00:00Z" {
			t.Errorf("%s: %s lies in %s to %s, want the days %s to %s", c.name, c.at, b, n, c.begin, c.next)
		}
		if c.period == idem.Lifetime && !(begin.IsZero() && next.IsZero()) {
			t.Errorf("%s: got %s to %s, want zero times", c.name, begin, next)
		}
	}
}

// A day is 24 hours also where clocks are put forward.
func TestBoundsOfSummerTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for at := time.Date(2026, 3, 28, 22, 0, 0, 0, berlin); at.Month() == time.March; at = at.Add(time.Hour) {
		begin, next := idem.Day.Bounds(at)
		if at.Before(begin) || !at.Before(next) || next.Sub(begin) != 24*time.Hour || begin.Location() != time.UTC {
			t.Errorf("%s lies in %s to %s", at, begin, next)
		}
	}
}

func TestValidateQuota(t *testing.T) {
	for name, c := range map[string]struct {
		quota idem.Quota
		want  []string // parts of the error, a line each
	}{
		"a month":           {idem.Quota{Name: "monthly", Units: 1}, nil},
		"a day":             {idem.Quota{Name: "daily", Units: math.MaxInt64, Period: idem.Day}, nil},
		"a budget":          {idem.Quota{Name: "budget", Units: 5, Period: idem.Lifetime, ReportOnly: true}, nil},
		"no name":           {idem.Quota{Units: 1}, []string{"no name"}},
		"no units":          {idem.Quota{Name: "monthly"}, []string{`"monthly" has 0 units`}},
		"negative":          {idem.Quota{Name: "monthly", Units: -1}, []string{`"monthly" has -1 units`}},
		"an unknown period": {idem.Quota{Name: "monthly", Units: 1, Period: 3}, []string{"the unknown period 3"}},
		"every mistake":     {idem.Quota{Period: 255}, []string{"no name", "0 units", "period 255"}},
		"unlimited":         {*idem.Unlimited, []string{"0 units"}}, // which is no quota
	} {
		err := c.quota.Validate()
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: got no error", name)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(c.want) {
			t.Errorf("%s: got %q, want %d mistakes", name, err, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) || !strings.HasPrefix(lines[i], "idem: ") {
				t.Errorf("%s: got %q, want %q in it", name, lines[i], want)
			}
		}
	}
}
