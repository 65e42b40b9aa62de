package idem_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// Those who would wait beyond a limit are told at once, and the limit is free
// again when the others are done.
func TestLimitsOfWaiters(t *testing.T) {
	const perTenant, inAll = 256, 4096
	both(t, func(t *testing.T, s idem.Store) {
		holder := newRunner(s, idem.Options{})
		e := mustRun(t, holder, request)
		for _, r := range []*idem.Runner{holder, newRunner(s, idem.Options{})} {
			var waiting []<-chan result
			for tenant := range inAll / perTenant {
				req := request
				req.Tenant = fmt.Sprint("organization ", tenant)
				for range perTenant {
					waiting = append(waiting, begin(t.Context(), r, req))
				}
				synctest.Wait()
				if got := <-begin(t.Context(), r, req); got.record.State != idem.InProgress || got.after != 0 {
					t.Errorf("one too many of a tenant: got %v after %v, want in progress at once", got.record.State, got.after)
				}
			}
			if n := r.Stats().Waiters; n != inAll {
				t.Errorf("got %d waiters, want %d", n, inAll)
			}
			if got := <-begin(t.Context(), r, request); got.record.State != idem.InProgress || got.after != 0 {
				t.Errorf("one too many of all: got %v after %v, want in progress at once", got.record.State, got.after)
			}
			for _, c := range waiting {
				<-c
			}
			if n := r.Stats().Waiters; n != 0 {
				t.Errorf("got %d waiters at the end, want 0", n)
			}
		}
		mustSettle(t, e, answer("created"))
	})
}

func TestLimitOfExecutions(t *testing.T) {
	faulty(t, idem.Options{ExecutionsPerTenant: 3}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		var running []*idem.Execution
		for i := range 3 {
			running = append(running, mustRun(t, r, numberedRequest(i)))
		}
		mustRefuse(t, r, numberedRequest(3), idem.ErrTooMany)
		if n := f.Calls(idemtest.Begin); n != 3 {
			t.Errorf("the store was asked %d times, want 3: not for the one too many", n)
		}
		stranger := numberedRequest(3)
		stranger.Tenant = "another organization"
		mustSettle(t, mustRun(t, r, stranger), freed)

		// A repeat of what runs takes no place.
		waiting := begin(t.Context(), r, numberedRequest(0))
		synctest.Wait()
		mustSettle(t, running[0], answer("created"))
		if got := <-waiting; got.record.State != idem.Done {
			t.Errorf("got %v, error %v, want the answer", got.record.State, got.err)
		}
		for _, e := range running[1:] {
			mustSettle(t, e, unknown)
		}
		mustSettle(t, mustRun(t, r, numberedRequest(3)), freed)
		mustBeIdle(t, r)
	})
}

// One who waits for another process holds no place among those that run, and
// takes one again before it does.
func TestLimitOfExecutionsWhilePolling(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		e := mustRun(t, newRunner(s, idem.Options{}), request)
		r := newRunner(s, idem.Options{ExecutionsPerTenant: 1})
		waiting := begin(t.Context(), r, request)
		time.Sleep(time.Second)
		occupies := mustRun(t, r, numberedRequest(1))
		mustSettle(t, e, freed)
		time.Sleep(3 * time.Second)
		select {
		case got := <-waiting:
			t.Fatalf("got %v, error %v while another takes the only place", got.record.State, got.err)
		default:
		}
		mustSettle(t, occupies, freed)
		got := <-waiting
		if got.e == nil {
			t.Fatalf("got %v, error %v, want an execution", got.record.State, got.err)
		}
		mustRefuse(t, r, numberedRequest(1), idem.ErrTooMany)
		mustSettle(t, got.e, freed)
		mustBeIdle(t, r)
	})
}

// A settled execution leaves nothing behind, nor does a tenant that has nothing
// running or waiting.
func TestNothingIsLeftBehind(t *testing.T) {
	r := newRunner(newMemory(), idem.Options{})
	before := heap()
	for i := range 5000 {
		req, settlement := request, freed
		req.Tenant = strings.Repeat("x", 4096) + fmt.Sprint(i)
		settlement.Payload = make([]byte, 16<<10)
		mustSettle(t, mustRun(t, r, req), settlement)
	}
	if grown := int64(heap() - before); grown > 1<<20 {
		t.Errorf("5000 requests left %d bytes behind, want nearly nothing", grown)
	}
	runtime.KeepAlive(r)
}
