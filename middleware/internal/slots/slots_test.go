package slots_test

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/slots"
)

func TestSlots(t *testing.T) {
	c := slots.New(2)
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

func TestRace(t *testing.T) {
	const most = 3
	c := slots.New(most)
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
func TestMemory(t *testing.T) {
	c, names := slots.New(1), bucketNames(200_000)
	before := heap()
	for _, name := range names {
		c.Acquire(name)
	}
	if grown := heap() - before; grown < 1_000_000 {
		t.Fatalf("200000 buckets under way take %d bytes: the measure is off", grown)
	}
	for _, name := range names {
		c.Release(name)
	}
	if grown := heap() - before; grown > 100_000 {
		t.Errorf("%d bytes are left when nothing is under way", grown)
	}
	if !c.Acquire("org") {
		t.Error("no slot")
	}
	if n := testing.AllocsPerRun(1000, func() { c.Acquire("b"); c.Release("b") }); n != 0 {
		t.Errorf("a slot allocates %v times", n)
	}
	runtime.KeepAlive(names)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func bucketNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}

// Releases after a flood take no slot from a bucket that still holds one, down
// to the last bucket of each shard.
func TestFlood(t *testing.T) {
	c, flood := slots.New(1), bucketNames(20_000)
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
