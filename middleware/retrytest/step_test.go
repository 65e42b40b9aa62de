package retrytest

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A handler may use a context of its own, which does not end with the request's.
func TestAContextThatOutlivesTheRequest(t *testing.T) {
	var at place
	charge := func(ctx context.Context, p *Process) {
		_ = p.Conn(nil)(ctx, "charge", func() error { return nil }, nil)
	}
	for _, f := range []fault{none, expired, lostClaim} {
		synctest.Test(t, func(t *testing.T) {
			r := &run{trial: trial{fault: f, at: at}, create: Create{Path: "/parcels"}}
			process := func(f fault) *Process {
				return &Process{run: r, fault: f, request: 1, serving: true,
					died: newSignal(), asks: newSignal(), told: newSignal(), answered: newSignal()}
			}
			r.first, r.second = process(f), process(none)
			r.second.handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { charge(t.Context(), r.second) })
			r.first.claimed.Store(true)
			r.first.told.give()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			charge(ctx, r.first)
			if took := time.Since(began); r.fired != (f != none) || took > time.Second || r.fired && took < grace {
				t.Errorf("%q: it took %s", f, took)
			}
			at = r.steps[0].place
		})
	}
}
