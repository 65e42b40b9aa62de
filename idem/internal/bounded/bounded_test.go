package bounded_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/sallyport-go/sallyport/idem/internal/bounded"
)

// A call that returns, in whichever way, is answered before its context ends.
func TestCallReturns(t *testing.T) {
	broken := errors.New("broken")
	for name, row := range map[string]struct {
		do   func() (int, error)
		want bounded.Result[int]
	}{
		"a value":           {func() (int, error) { return 1, nil }, bounded.Result[int]{Value: 1}},
		"a value and error": {func() (int, error) { return 1, broken }, bounded.Result[int]{Value: 1, Err: broken}},
		"no return": {func() (int, error) { runtime.Goexit(); return 1, nil },
			bounded.Result[int]{Err: bounded.ErrNoReturn}},
	} {
		if got, late := bounded.Call(t.Context(), row.do); got != row.want || late != nil {
			t.Errorf("%s: got %+v, left behind %t, want %+v", name, got, late != nil, row.want)
		}
	}
}

// A call that outlasts its context is left behind, and its result comes late.
func TestCallIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		go func() { synctest.Wait(); cancel() }()
		got, late := bounded.Call(ctx, func() (int, error) { <-release; return 1, nil })
		if got.Err != context.Canceled || late == nil {
			t.Fatalf("got %+v, left behind %t, want the context's error", got, late != nil)
		}
		close(release)
		if got := <-late; got.Value != 1 || got.Err != nil {
			t.Errorf("late: got %+v, want the value", got)
		}
	})
}

// doneAtLast is done once everything else has come to rest.
type doneAtLast struct{ context.Context }

func (c doneAtLast) Done() <-chan struct{} {
	synctest.Wait()
	return c.Context.Done()
}

// A result counts, also when the context ends at the same time.
func TestCallPrefersTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			if got, late := bounded.Call(doneAtLast{ctx}, func() (int, error) { return 1, nil }); got.Err != nil || late != nil {
				t.Fatalf("got %+v, left behind %t, want the value", got, late != nil)
			}
		}
	})
}
