package calls_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/internal/calls"
)

// The latest observer is told, and its panic is a line of the log.
func TestObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o calls.Observed
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, nil))
		calls.Ended(t.Context(), &o, logger, "take", time.Now(), true) // nobody is told
		o.ObserveCalls(func(context.Context, string, time.Duration, bool) { t.Error("one that was replaced is told") })
		told := 0
		o.ObserveCalls(func(ctx context.Context, call string, took time.Duration, answered bool) {
			if told++; ctx != t.Context() || call != "take" || took != time.Second || answered {
				t.Errorf("got %s, %v, %t", call, took, answered)
			}
			panic("told")
		})
		began := time.Now()
		time.Sleep(time.Second)
		calls.Ended(t.Context(), &o, logger, "take", began, false)
		if told != 1 || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "panic=told") ||
			!strings.Contains(log.String(), "calls_test.go") {
			t.Errorf("told %d times, and the log is %s", told, log.String())
		}
	})
}
