package calls_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/internal/calls"
)

// The latest observer and the latest tracer are told, and a panic of either is a
// line of the log.
func TestObserved(t *testing.T) {
	type traced struct{}
	gone := errors.New("gone")
	for name, tt := range map[string]struct {
		observes, traces, panics bool
		answered                 bool
		err                      error
		want                     string
		lines                    int
	}{
		"neither":              {},
		"an observer":          {observes: true, want: "take 1s false; "},
		"an answer":            {observes: true, traces: true, answered: true, err: gone, want: "take 1s true; end <nil>; "},
		"a failure":            {observes: true, traces: true, err: gone, want: "take 1s false; end gone; "},
		"a tracer":             {traces: true, err: gone, want: "end gone; "},
		"a tracer that panics": {observes: true, traces: true, panics: true, want: "take 1s false; ", lines: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o calls.Observed
				var log, told strings.Builder
				logger := slog.New(slog.NewTextHandler(&log, nil))
				if tt.observes {
					o.ObserveCalls(func(context.Context, string, time.Duration, bool) { t.Error("one that was replaced is told") })
					o.ObserveCalls(func(ctx context.Context, call string, took time.Duration, answered bool) {
						if traced := ctx.Value(traced{}) == call; traced != (tt.traces && !tt.panics) {
							t.Errorf("the observer is told with the context of the call: %t", traced)
						}
						fmt.Fprintf(&told, "%s %v %t; ", call, took, answered)
						if tt.panics {
							panic("told")
						}
					})
				}
				if tt.traces {
					o.TraceCalls(func(context.Context, string) (context.Context, func(error)) { panic("replaced") })
					o.TraceCalls(func(ctx context.Context, call string) (context.Context, func(error)) {
						if tt.panics {
							panic("told")
						}
						return context.WithValue(ctx, traced{}, call), func(err error) { fmt.Fprintf(&told, "end %v; ", err) }
					})
				}
				ctx, call := calls.Begin(t.Context(), &o, logger, "take")
				if traced := ctx.Value(traced{}) == "take"; traced != (tt.traces && !tt.panics) {
					t.Errorf("the store gets the context of the tracer: %t", traced)
				}
				time.Sleep(time.Second)
				call.End(tt.answered, tt.err)
				if told.String() != tt.want || strings.Count(log.String(), "panic=told") != tt.lines {
					t.Errorf("told %q, want %q; the log is %s", told.String(), tt.want, log.String())
				}
			})
		})
	}
}

// What is told when an end panics does not depend on who else is told.
func TestEndsPanic(t *testing.T) {
	var o calls.Observed
	var log strings.Builder
	told := 0
	o.ObserveCalls(func(context.Context, string, time.Duration, bool) { told++; panic("observer") })
	o.TraceCalls(func(ctx context.Context, _ string) (context.Context, func(error)) {
		return ctx, func(error) { told++; panic("tracer") }
	})
	_, call := calls.Begin(t.Context(), &o, slog.New(slog.NewTextHandler(&log, nil)), "take")
	call.End(true, nil)
	if told != 2 || !strings.Contains(log.String(), "calls_test.go") {
		t.Errorf("told %d times, and the log is %s", told, log.String())
	}
}

// A wait is for traces alone.
func TestWait(t *testing.T) {
	var o calls.Observed
	o.ObserveCalls(func(context.Context, string, time.Duration, bool) { t.Error("the observer is told of a wait") })
	var told string
	o.TraceCalls(func(ctx context.Context, call string) (context.Context, func(error)) {
		return ctx, func(err error) { told = fmt.Sprint(call, " ", err) }
	})
	calls.Wait(t.Context(), &o, slog.Default()).End(false, errors.New("gone"))
	if told != "wait gone" {
		t.Errorf("got %q", told)
	}
}

// A store that is neither observed nor traced costs no allocation.
func TestAllocations(t *testing.T) {
	var o calls.Observed
	ctx, log := t.Context(), slog.Default()
	if n := testing.AllocsPerRun(100, func() {
		_, call := calls.Begin(ctx, &o, log, "take")
		call.End(true, nil)
		calls.Wait(ctx, &o, log).End(true, nil)
	}); n != 0 {
		t.Errorf("a call and a wait allocate %v times, want 0", n)
	}
}
