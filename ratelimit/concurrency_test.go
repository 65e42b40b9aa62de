package ratelimit_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestConcurrency(t *testing.T) {
	c := ratelimit.NewConcurrency(2)
	for i, want := range []bool{true, true, false, false} {
		if got := c.Acquire("org"); got != want {
			t.Errorf("slot %d: %v, want %v", i, got, want)
		}
	}
	if !c.Acquire("other") {
		t.Error("another bucket has no slot")
	}
	c.Release("org")
	if !c.Acquire("org") {
		t.Error("no slot after a release")
	}
	if c.Acquire("org") {
		t.Error("a third slot after one release")
	}
	c.Release("org")
	c.Release("org")
	c.Release("org") // nothing under way any more
	for i, want := range []bool{true, true, false} {
		if got := c.Acquire("org"); got != want {
			t.Errorf("slot %d after a release too many: %v, want %v", i, got, want)
		}
	}
}

func TestConcurrencyRace(t *testing.T) {
	const most = 3
	c := ratelimit.NewConcurrency(most)
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

// Only buckets that hold a slot take memory.
func TestConcurrencyMemory(t *testing.T) {
	c := ratelimit.NewConcurrency(1)
	before := heap()
	for _, name := range names[:200_000] {
		c.Acquire(name)
	}
	if grown := heap() - before; grown < 1_000_000 {
		t.Fatalf("200000 buckets under way take %d bytes: the measure is off", grown)
	}
	for _, name := range names[:200_000] {
		c.Release(name)
	}
	if grown := heap() - before; grown > 100_000 {
		t.Errorf("%d bytes are left when nothing is under way", grown)
	}
	if !c.Acquire("org") {
		t.Error("no slot")
	}
}

// Releases after a flood take no slot from a bucket that still holds one, down
// to the last bucket of each shard.
func TestConcurrencyFlood(t *testing.T) {
	c := ratelimit.NewConcurrency(1)
	flood := names[:20_000]
	for _, name := range flood {
		c.Acquire(name)
	}
	for i, name := range flood {
		if c.Acquire(name) {
			t.Fatalf("%q has a second slot after %d releases of others", name, i)
		}
		c.Release(name)
	}
}

func TestNewConcurrencyPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("NewConcurrency(0) does not panic")
		}
	}()
	ratelimit.NewConcurrency(0)
}
