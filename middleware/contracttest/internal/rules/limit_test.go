package rules

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, test := range map[string]struct {
		values []string
		want   time.Duration
		wrong  string
	}{
		"none":            {nil, 0, "there is no Retry-After"},
		"two":             {[]string{"1", "2"}, 0, `is there 2 times: ["1" "2"]`},
		"seconds":         {[]string{" 90 "}, 90 * time.Second, ""},
		"zero":            {[]string{"0"}, 0, ""},
		"a day":           {[]string{"86400"}, 24 * time.Hour, ""},
		"a second more":   {[]string{"86401"}, 0, "asks for more than a day"},
		"too many digits": {[]string{strings.Repeat("9", 30)}, 0, "asks for more than a day"},
		"a word":          {[]string{"soon"}, 0, "is neither whole seconds nor a date"},
		"a date":          {[]string{date(time.Minute)}, time.Minute, ""},
		"now":             {[]string{date(0)}, 0, ""},
		"the past":        {[]string{date(-time.Second)}, 0, "is in the past"},
		"in a day":        {[]string{date(24 * time.Hour)}, 24 * time.Hour, ""},
		"in more":         {[]string{date(24*time.Hour + time.Second)}, 0, "is more than a day away"},
	} {
		got, err := retryAfter(http.Header{"Retry-After": test.values, "Date": {date(0)}})
		wrong := fmt.Sprint(err)
		if got != test.want || (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(wrong, test.wrong) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Second / 2)
		in := time.Now().Add(time.Minute).Truncate(time.Second).UTC().Format(http.TimeFormat)
		if got, err := retryAfter(http.Header{"Retry-After": {in}}); got != time.Minute || err != nil {
			t.Errorf("without a Date: got %v, %v", got, err)
		}
	})
}

// A wait is too long when a quarter of it was enough.
func TestLonger(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		o      observation
		longer bool
	}{
		"too long":          {observation{asked: 7 * s, after: 2 * s}, true},
		"just not too long": {observation{asked: 7 * s, after: 2*s + 1}, false},
		"as short as any":   {observation{asked: 3 * s, after: s}, true},
		"too short":         {observation{asked: 3*s - 1, after: 1}, false},
		"never admitted":    {observation{asked: 7 * s}, false},
		"admitted at once":  {observation{asked: 7 * s, after: 1}, true},
		"without a wait":    {observation{asked: 7 * s, after: s, err: errors.New("no wait")}, false},
	} {
		l := limit{waits: []observation{{asked: 5 * s, after: 5 * s}, test.o}}
		want := time.Duration(0)
		if test.longer {
			want = test.o.asked
		}
		if got := l.longer(); got.asked != want {
			t.Errorf("%s: got %v, want %v", name, got.asked, want)
		}
	}
}

// The limiter's answers have a face when they are alike and not empty.
func TestRecognise(t *testing.T) {
	odd := func(answers ...answer) (odd []fault) {
		for _, a := range answers {
			odd = append(odd, fault{answer: a})
		}
		return odd
	}
	for name, test := range map[string]struct {
		odd  []fault
		face string
	}{
		"alike":              {odd(answer{status: 403, body: "in 5"}, answer{status: 403, body: "in 17"}), "403in "},
		"empty and alike":    {odd(answer{status: 500}, answer{status: 500}), "500"},
		"ids":                {odd(answer{status: 503, body: "no abcdef0123456789"}), "503no "},
		"empty":              {odd(answer{status: 499}), ""},
		"unlike":             {odd(answer{status: 403, body: "wait"}, answer{status: 403, body: "no"}), ""},
		"another status":     {odd(answer{status: 503}, answer{status: 502}), ""},
		"no response at all": {odd(answer{status: 0, body: "x"}), ""},
	} {
		p := &probe{Session: &Session{limit: limit{odd: test.odd}}}
		if got := p.recognise(); got != (test.face != "") || p.limit.face != test.face {
			t.Errorf("%s: got %t, %q", name, got, p.limit.face)
		}
		if test.face != "" && (!p.denies(test.odd[0].answer) || p.denies(answer{status: 200})) {
			t.Errorf("%s: the face is not that of the answers", name)
		}
	}
}

// Requests at one time wait until the limit has room for them, and become fewer
// when that takes long.
func TestRoom(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		l     limit
		n     int
		took  time.Duration
		fewer int
	}{
		"no limit":         {limit{capacity: 5, units: 2, wait: s}, 30, 0, 30},
		"nothing is free":  {limit{found: true, capacity: 5, wait: s}, 30, 0, 30},
		"one at a time":    {limit{found: true, capacity: 100, units: 1, wait: s}, 5, 5 * s, 5},
		"all at once":      {limit{found: true, capacity: 100, units: 40, wait: s}, 30, s, 30},
		"just all at once": {limit{found: true, capacity: 100, units: 30, wait: 3 * s}, 30, 3 * s, 30},
		"in two parts":     {limit{found: true, capacity: 100, units: 29, wait: 3 * s}, 30, 6 * s, 30},
		"at least a while": {limit{found: true, capacity: 100, units: 40, wait: s / 10}, 30, s, 30},
		"a small capacity": {limit{found: true, capacity: 12, units: 12, wait: 3 * s}, 30, 3 * s, 10},
		"the smallest":     {limit{found: true, capacity: 3, units: 3, wait: 3 * s}, 30, 3 * s, 2},
		"half as many":     {limit{found: true, capacity: 100, units: 5, wait: 10 * s}, 30, 30 * s, 15},
		"just in time":     {limit{found: true, capacity: 100, units: 10, wait: 10 * s}, 30, 30 * s, 30},
		"down to two":      {limit{found: true, capacity: 100, units: 1, wait: 20 * s}, 30, 40 * s, 2},
		"a long window":    {limit{found: true, capacity: 100, units: 10, wait: 40 * s}, 30, 40 * s, 7},
		"five to two":      {limit{found: true, capacity: 100, units: 1, wait: 10*s + 1}, 5, 20*s + 2, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &probe{Session: &Session{limit: test.l}, ctx: t.Context()}
			start := time.Now()
			got := p.room(test.n)
			if took := time.Since(start); got != test.fewer || took != test.took {
				t.Errorf("%s: got %d after %v, want %d after %v", name, got, took, test.fewer, test.took)
			}
		})
	}
}

// The last 429 is waited for, as long as it says and a little more.
func TestLimited(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		header string
		l      limit
		want   time.Duration
	}{
		"five":      {"5", limit{}, 5 * s},
		"none":      {"", limit{}, s},
		"zero":      {"0", limit{}, s / 10},
		"less":      {"8", limit{wait: 2 * s, waits: []observation{{asked: 8 * s, after: s}}}, 2 * s},
		"much less": {"8", limit{wait: s / 2, waits: []observation{{asked: 8 * s, after: s}}}, s},
		"as asked":  {"8", limit{wait: s, waits: []observation{{asked: 8 * s, after: 8 * s}}}, 8 * s},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &probe{Session: &Session{limit: test.l}, ctx: t.Context()}
			a := answer{status: 429, header: make(http.Header)}
			if test.header != "" {
				a.header.Set("Retry-After", test.header)
			}
			start := time.Now()
			p.pause()
			if took := time.Since(start); took != 0 {
				t.Errorf("%s: waited %v before", name, took)
			}
			p.limited(a)
			p.limited(answer{status: 429, header: http.Header{"Retry-After": {"0"}}}) // is over earlier
			p.pause()
			if took := time.Since(start); took != test.want+20*time.Millisecond {
				t.Errorf("%s: waited %v, want %v", name, took, test.want)
			}
		})
	}
}
