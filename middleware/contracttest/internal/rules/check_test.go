package rules

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestFailed(t *testing.T) {
	for _, level := range []Level{Contract, Reading, Advice, Wire} {
		for _, status := range []Status{Held, Broken, Unclear, Skipped, LeftOut} {
			for i := range 4 {
				strict, advice := i%2 == 1, i > 1
				want := status == Broken || status == Unclear
				if level == Reading || level == Advice {
					want = want && advice
				}
				want = want || strict && level == Contract && status == Skipped
				r := Result{Rule: Rule{Level: level}, Status: status}
				if got := r.Failed(strict, advice); got != want {
					t.Errorf("%s %s, strict %t, advice %t: got %t", status, level, strict, advice, got)
				}
			}
		}
	}
}

// wantEnd wants a part of a check to end with a status, or with none where it is
// Held.
func wantEnd(t *testing.T, what string, want Status, part func()) {
	t.Helper()
	end := ended(part)
	if end == nil && want != Held || end != nil && end.status != want {
		t.Errorf("%s: got %+v, want it %s", what, end, want)
	}
}

// A check says what became of its rule, and for what.
func TestCheck(t *testing.T) {
	const key = "svc_live_8fJ2mQx7LpZ4wRtYk1Vb3NcD5sGh6A"
	s := &Session{redact: newRedactor(map[string]string{"full": key}), have: []string{"create"}}
	s.target = Target{URL: "http://kit.test", Without: []string{"worker"}}
	a := answer{to: get("/"+key, ""), status: 200, body: key}
	curl, shows := `curl -i "http://kit.test/$FULL"`, `200, body "$FULL"`
	nothing := func(*probe) {}
	in := t.Context()
	late, cancel := context.WithCancel(in)
	cancel()
	odd := func(p *probe) { p.fault(answer{}, "x") }
	silent := func(p *probe) { p.noAnswer(get("/", ""), errors.New("reset")) }
	for name, test := range map[string]struct {
		ctx  context.Context
		rule Rule
		want Result
	}{
		"held": {in, Rule{check: nothing}, Result{Status: Held}},
		"broken": {in, Rule{check: func(p *probe) { p.fault(a, "shows %s", key) }},
			Result{Status: Broken, Detail: "shows $FULL", Curl: curl, Got: shows}},
		"the last": {in, Rule{check: func(p *probe) { p.saw(a); odd(p) }},
			Result{Status: Broken, Detail: "x", Curl: curl, Got: shows}},
		"no response": {in, Rule{check: silent},
			Result{Status: Broken, Detail: "got no response: reset", Curl: `curl -i "http://kit.test/"`}},
		"vacuous":                {in, Rule{check: func(p *probe) { p.vacuousf("1") }}, Result{Status: LeftOut, Detail: "1"}},
		"skipped":                {in, Rule{check: func(p *probe) { p.skipf("1") }}, Result{Status: Skipped, Detail: "1"}},
		"unclear":                {in, Rule{check: func(p *probe) { p.unclearf("1") }}, Result{Status: Unclear, Detail: "1"}},
		"too late":               {late, Rule{check: odd}, Result{Status: Unclear, Detail: noTime}},
		"in time":                {late, Rule{check: nothing}, Result{Status: Held}},
		"broken at the end":      {late, Rule{when: end, check: odd}, Result{Status: Broken, Detail: "x"}},
		"held at the end":        {in, Rule{when: end, check: nothing}, Result{Status: Held}},
		"held at a sudden end":   {late, Rule{when: end, check: nothing}, Result{Status: Unclear, Detail: noTime}},
		"needs what is there":    {in, Rule{needs: []string{"create"}, check: nothing}, Result{Status: Held}},
		"needs what is left out": {in, Rule{needs: []string{"list", "worker"}}, Result{Status: LeftOut}},
		"needs what is missing":  {in, Rule{needs: []string{"create", "list", "none"}}, Result{Status: Skipped}},
		"of the wire":            {in, Rule{Level: Wire}, Result{Status: LeftOut}},
	} {
		got := s.check(test.ctx, test.rule)
		short := got.Status == test.want.Status && got.Curl == test.want.Curl && got.Got == test.want.Got
		silent := (got.Detail == "") == (got.Status == Held)
		if !short || !silent || test.want.Detail != "" && got.Detail != test.want.Detail {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
	got := s.check(t.Context(), Rule{needs: []string{"create", "list", "none"}})
	begins, ends := strings.HasPrefix(got.Detail, "it needs a live"), strings.HasSuffix(got.Detail, "list,none")
	if !begins || !ends || !slices.Equal(got.missing, []string{"list", "none"}) {
		t.Errorf("skipped: got %q, %q", got.Detail, got.missing)
	}
	s.target.Wire = true
	if got := s.check(t.Context(), Rule{Level: Wire, check: nothing}); got.Status != Held {
		t.Errorf("of the wire: got %+v", got)
	}
	defer func() {
		if recover() != "a mistake" {
			t.Error("a panic of a check is not passed on")
		}
	}()
	s.check(t.Context(), Rule{check: func(*probe) { panic("a mistake") }})
}

// A check sleeps until its time is over.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p := &probe{Session: &Session{}, ctx: ctx}
		start := time.Now()
		p.sleep(-time.Second)
		p.sleep(4 * time.Second)
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("slept %v", took)
		}
		if left, ok := p.timeLeft(); left != 6*time.Second || !ok {
			t.Errorf("got %v, %t", left, ok)
		}
		end := ended(func() { p.sleep(7 * time.Second) })
		if took := time.Since(start); took != 10*time.Second || end == nil || end.status != Unclear {
			t.Errorf("got %+v after %v", end, took)
		}
		wantEnd(t, "not at all", Held, func() { p.sleep(0) })
	})
}

// Calls at one time all end before the first verdict does.
func TestParallel(t *testing.T) {
	p := &probe{Session: &Session{}, ctx: t.Context()}
	var calls atomic.Int64
	end := ended(func() {
		p.parallel(8, func(i int) {
			calls.Add(1 << (8 * i))
			if i > 5 {
				p.unclearf("%d", i)
			}
		})
	})
	if calls.Load() != 0x0101010101010101 || end == nil || end.detail != "6" && end.detail != "7" {
		t.Errorf("got %x, %+v", calls.Load(), end)
	}
	wantEnd(t, "none", Held, func() { p.parallel(3, func(int) {}) })
}

// Each item is looked at once, as many at one time as there are places, and the
// first verdict of the list counts.
func TestEach(t *testing.T) {
	for places, most := range map[int]int{1: 1, 3: 3, 9: 5} {
		synctest.Test(t, func(t *testing.T) {
			p := &probe{Session: &Session{places: make(chan struct{}, places)}, ctx: t.Context()}
			p.places <- struct{}{} // of the check itself
			var mu sync.Mutex
			var seen []int
			running, together := 0, 0
			each(p, []int{0, 1, 2, 3, 4}, func(i int) {
				mu.Lock()
				seen, running = append(seen, i), running+1
				together = max(together, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
			})
			slices.Sort(seen)
			if !slices.Equal(seen, []int{0, 1, 2, 3, 4}) || together != most || len(p.places) != 1 {
				t.Errorf("%d places: got %v, %d at one time, %d places left", places, seen, together, len(p.places))
			}
			end := ended(func() { each(p, []int{0, 1, 2, 3}, func(i int) { time.Sleep(time.Second); p.skipf("%d", i) }) })
			if end == nil || end.detail != "0" || len(p.places) != 1 {
				t.Errorf("%d places: got %+v", places, end)
			}
			each(p, []int{}, func(int) { t.Error("there is none") })
		})
	}
}
