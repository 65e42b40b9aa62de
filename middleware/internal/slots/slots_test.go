package slots

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestSlots(t *testing.T) {
	c := New(2)
	for i, step := range []struct {
		released int // of the bucket, before
		bucket   string
		want     bool
	}{
		{0, "org", true}, {0, "org", true}, {0, "org", false}, {0, "org", false}, {0, "other", true},
		{1, "org", true}, {0, "org", false},
		{3, "org", true}, {0, "org", true}, {0, "org", false}, // a release too many
	} {
		for range step.released {
			c.Release(step.bucket)
		}
		if got := c.Acquire(step.bucket); got != step.want {
			t.Errorf("step %d, %+v: got %t", i, step, got)
		}
	}
}

func TestRace(t *testing.T) {
	const most = 3
	c := New(most)
	var under, admitted atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 2000 {
				if !c.Acquire("org") {
					continue
				}
				if n := under.Add(1); n > most {
					t.Errorf("%d under way at once", n)
				}
				admitted.Add(1)
				runtime.Gosched()
				under.Add(-1)
				c.Release("org")
			}
		})
	}
	wg.Wait()
	if admitted.Load() == 0 {
		t.Error("nothing was admitted")
	}
	for range most {
		if !c.Acquire("org") {
			t.Error("a slot was lost")
		}
	}
}

// A bucket that holds no slot takes no memory.
func TestMemory(t *testing.T) {
	c := New(1)
	if n := testing.AllocsPerRun(1000, func() { c.Acquire("b"); c.Release("b") }); n != 0 || len(c.taken) != 0 {
		t.Errorf("a slot allocates %v times, and %d buckets are left", n, len(c.taken))
	}
}
