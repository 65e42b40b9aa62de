package idem_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// A peak does not stay in memory, although some of its keys do.
func TestMemoryFreesAPeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, &idem.Memory{Budget: 1 << 30})
		before := heap()
		const keys = 40_000
		for i := range keys {
			tenant, retention := fmt.Sprint(i), time.Hour
			if i%20 == 0 {
				tenant, retention = "a", 2*time.Hour
			}
			c := s.claimFor(tenant, fmt.Sprint(i), retention)
			payload := fmt.Append(nil, "payload ", i)
			settlement := idem.Settlement{Outcome: idem.OutcomeDone, Payload: payload, Retention: retention}
			if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != nil {
				t.Fatal(err)
			}
		}
		peak := int64(heap() - before)
		time.Sleep(time.Hour)
		for range keys / 2 {
			s.settleAs(claimOf("b", "key"), idem.OutcomeFree)
		}
		grown, charged := int64(heap()-before), s.Stats().Bytes
		if s.Stats().Keys != keys/20 || grown > 2*charged || peak < 20*grown {
			t.Errorf("of %d bytes %d are left, charged are %d for %d keys", peak, grown, charged, s.Stats().Keys)
		}
		for i := 0; i < keys; i += 20 {
			r, err := s.Begin(t.Context(), claimOf("a", fmt.Sprint(i)))
			if err != nil || string(r.Payload) != fmt.Sprint("payload ", i) {
				t.Errorf("key %d: got %q, error %v", i, r.Payload, err)
			}
		}
		runtime.KeepAlive(s)
	})
}

// What is left of a peak is still in the order in which it was settled.
func TestMemoryKeepsItsOrderAfterAPeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, &idem.Memory{Budget: 1_000_000})
		for i := range 2000 {
			s.settle(s.claimFor("a", fmt.Sprint("short ", i), time.Minute), 0, 0)
			if i%50 == 0 {
				s.put("a", fmt.Sprint(i/50), i%100) // every other one has a body
			}
		}
		time.Sleep(time.Minute)
		for range 1000 {
			s.settleAs(claimOf("b", "key"), idem.OutcomeFree)
		}
		if got := s.Stats().Keys; got != 40 {
			t.Fatalf("got %d records, want 40", got)
		}
		for i := 0; s.Stats().Forgotten < 20; i++ {
			s.claim("a", fmt.Sprint("claim ", i))
		}
		n := int(s.Stats().Forgotten)
		s.mustHold("a", strings.Repeat(".", n)+strings.Repeat("Ws", 20)[n:])
	})
}

// A claim that comes and goes allocates nothing, also where a slab ends.
func TestMemoryAllocatesNothingForAClaim(t *testing.T) {
	s := newShop(t, &idem.Memory{})
	for i := range 200 {
		s.claim("a", fmt.Sprint(i))
		c := claimOf("a", "key")
		got := testing.AllocsPerRun(10, func() {
			if _, err := s.Begin(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if err := s.Settle(t.Context(), c.Key, c.Token, freed); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("beside %d claims: got %v allocations, want none", i+1, got)
		}
	}
}

// The garbage collector has few objects to mark: beside a payload and a summary
// none for each key.
func TestMemoryIsFewObjects(t *testing.T) {
	objects := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapObjects
	}
	s := newShop(t, &idem.Memory{})
	const keys = 20_000
	before := objects()
	s.fill("a", keys, 300)
	if grown := objects() - before; grown > 2*keys+keys/20 {
		t.Errorf("%d keys take %d objects, want two each", keys, grown)
	}
	runtime.KeepAlive(s)
}

// A payload that is the beginning of a large buffer does not keep the buffer.
// One that nearly fills its buffer is not copied, and the whole buffer is
// charged.
func TestMemoryKeepsNoLargeBuffers(t *testing.T) {
	empty := newShop(t, &idem.Memory{})
	empty.settle(empty.claim("a", "key"), 0, 0)
	for _, test := range []struct {
		length, room int
		copied       bool
	}{{100, 100, false}, {100, 1 << 20, true}, {1000, 1000, false}, {1000, 1100, false}, {1000, 2000, true}} {
		s := newShop(t, &idem.Memory{})
		c := s.claim("a", "key")
		given := make([]byte, test.length, test.room)
		settlement := idem.Settlement{Outcome: idem.OutcomeDone, Payload: given, Retention: time.Hour}
		if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != nil {
			t.Fatal(err)
		}
		r, err := s.Begin(t.Context(), claimOf("a", "key"))
		if err != nil || len(r.Payload) != test.length || cap(r.Payload) > 2*test.length {
			t.Errorf("%+v: got %d bytes in a buffer of %d, want one of their size", test, len(r.Payload), cap(r.Payload))
		}
		if copied := &r.Payload[0] != &given[0]; copied != test.copied {
			t.Errorf("%+v: copied %t", test, copied)
		}
		if charged := s.Stats().Bytes - empty.Stats().Bytes; charged != int64(cap(r.Payload)) {
			t.Errorf("%+v: charged are %d bytes, want the %d of the buffer", test, charged, cap(r.Payload))
		}
	}
}

// The budget is about real memory: what is charged covers what the heap grows
// by.
func TestMemoryChargesWhatItTakes(t *testing.T) {
	for _, test := range []struct{ keys, perTenant, payload, name int }{
		{10_000, 10_000, 0, 0}, {10_000, 10_000, 400, 0}, {10_000, 1, 400, 0}, {10_000, 7, 1000, 0},
		{3_000, 1, 400, 4000},
	} {
		s := newShop(t, &idem.Memory{Budget: 1 << 30})
		tenants := make([]string, 0, test.keys)
		for i := range test.keys {
			tenants = append(tenants, fmt.Sprint(i/test.perTenant))
		}
		before := heap()
		for i, tenant := range tenants {
			s.put(strings.Repeat("x", test.name)+tenant, fmt.Sprint(i), test.payload)
		}
		grown, charged := int64(heap()-before), s.Stats().Bytes
		if grown > charged {
			t.Errorf("%+v: the heap grew by %d bytes a key, charged are %d",
				test, grown/int64(test.keys), charged/int64(test.keys))
		}
		if grown*2 < charged {
			t.Errorf("%+v: charged are %d bytes a key, the heap grew only by %d",
				test, charged/int64(test.keys), grown/int64(test.keys))
		}
		runtime.KeepAlive(s)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
