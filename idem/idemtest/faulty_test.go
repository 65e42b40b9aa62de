package idemtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

var faultyClaim = idem.Claim{
	Key: idem.NewKey("organization", "key"), Token: idem.ClaimToken{1}, Lease: time.Minute, Retention: time.Hour,
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name    string
		fault   idemtest.Fault
		want    error
		after   time.Duration
		reached bool // the store, by the time the call returns
	}{
		{"None", idemtest.None, nil, 0, true},
		{"Fail", idemtest.Fail, idemtest.ErrInjected, 0, false},
		{"LoseAnswer", idemtest.LoseAnswer, idemtest.ErrInjected, 0, true},
		{"Hang", idemtest.Hang, context.DeadlineExceeded, time.Second, false},
		{"Stall", idemtest.Stall, nil, 5 * time.Second, true},
		{"StallAnswer", idemtest.StallAnswer, nil, 5 * time.Second, true},
		{"Lose", idemtest.Lose, idem.ErrLost, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &idem.Memory{}
				f := idemtest.NewFaulty(m)
				f.Next(idemtest.Begin, test.fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				time.AfterFunc(5*time.Second, f.Release)
				start := time.Now()
				r, err := f.Begin(ctx, faultyClaim)
				if !errors.Is(err, test.want) || time.Since(start) != test.after {
					t.Errorf("got error %v after %v, want %v after %v", err, time.Since(start), test.want, test.after)
				}
				if (err == nil) != (r.State == idem.Claimed) {
					t.Errorf("got %v with error %v", r.State, err)
				}
				if reached := m.Stats().Keys == 1; reached != test.reached {
					t.Errorf("the store was reached: %t, want %t", reached, test.reached)
				}
				// The next call is sound again.
				if _, err := f.Begin(t.Context(), faultyClaim); err != nil {
					t.Errorf("the next call: got error %v", err)
				}
				if n := f.Calls(idemtest.Begin); n != 2 {
					t.Errorf("got %d calls, want 2", n)
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}

func TestFaultsOfEachMethod(t *testing.T) {
	f := idemtest.NewFaultyCounter(&idem.Memory{})
	begin := func() error { _, err := f.Begin(t.Context(), faultyClaim); return err }
	extend := func() error { return f.Extend(t.Context(), faultyClaim.Key, faultyClaim.Token, time.Minute) }
	free := idem.Settlement{Outcome: idem.OutcomeFree, Retention: 1}
	settle := func() error { return f.Settle(t.Context(), faultyClaim.Key, faultyClaim.Token, free) }
	count := func() error { return f.Count(t.Context(), idem.NewAccount("acme"), 1) }
	used := func() error {
		_, now, err := f.Used(t.Context(), idem.NewAccount("acme"), time.Time{})
		if now.IsZero() != (err != nil) {
			t.Errorf("got the time %v with error %v", now, err)
		}
		return err
	}
	for op, call := range map[idemtest.Op]func() error{
		idemtest.Begin: begin, idemtest.Extend: extend, idemtest.Settle: settle, idemtest.Count: count, idemtest.Used: used,
	} {
		f.Always(op, idemtest.Fail)
		f.Next(op, idemtest.Lose, idemtest.Panic)
		if err := call(); err != idem.ErrLost {
			t.Errorf("method %d: got error %v, want ErrLost first", op, err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("method %d: got no panic", op)
				}
			}()
			call()
		}()
		for range 3 {
			if err := call(); err != idemtest.ErrInjected {
				t.Errorf("method %d: got error %v, want ErrInjected always", op, err)
			}
		}
		f.Always(op, idemtest.None)
	}
	for _, call := range []func() error{begin, extend, settle, count, used} {
		if err := call(); err != nil {
			t.Errorf("mended: got error %v", err)
		}
	}
}
