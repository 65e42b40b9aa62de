package idem_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// The order of use survives that keys come and go between others.
func TestMemoryEvictsInTheOrderOfUse(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 2))
		s := newShop(t, idem.MemoryOptions{Budget: 1 << 20})
		var order []string // of a's keys, the one used last at the end
		var claims []idem.Claim
		for i := range 1000 {
			switch {
			case random.IntN(2) == 0:
				claims = append(claims, s.claim(fmt.Sprint(i%3), fmt.Sprint("freed ", i)))
			case len(claims) > 0 && random.IntN(2) == 0:
				n := random.IntN(len(claims))
				if err := s.Settle(t.Context(), claims[n].Key, claims[n].Token, freed); err != nil {
					t.Fatal(err)
				}
				claims = slices.Delete(claims, n, n+1)
			case len(order) < 60:
				s.put("a", fmt.Sprint(i), 1000)
				order = append(order, fmt.Sprint(i))
			default:
				n := random.IntN(len(order))
				used := order[n]
				s.mustBeWhole("a", used, true)
				order = append(slices.Delete(order, n, n+1), used)
			}
		}
		for _, c := range claims {
			if err := s.Settle(t.Context(), c.Key, c.Token, freed); err != nil {
				t.Fatal(err)
			}
		}
		s.put("a", "large", 1<<20-int(s.Stats().Bytes)+20_000)
		evicted := s.Stats().Evicted
		if evicted < 20 || evicted > 30 {
			t.Fatalf("seed %d: %d payloads are evicted, want 20,000 bytes", seed, evicted)
		}
		for i, name := range order {
			s.mustBeWhole("a", name, i >= evicted)
		}
	}
}

// A peak does not stay in memory, although some of its keys do.
func TestMemoryFreesAPeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{Budget: 1 << 30})
		before := heap()
		const keys = 40_000
		for i := range keys {
			owner, retention := fmt.Sprint(i), time.Hour
			if i%40 == 0 {
				owner, retention = "a", 2*time.Hour
			}
			c := s.claimFor(owner, fmt.Sprint(i), retention)
			payload := fmt.Append(nil, "payload ", i)
			if err := s.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: idem.Finished, Payload: payload, Retention: retention}); err != nil {
				t.Fatal(err)
			}
		}
		peak := int64(heap() - before)
		time.Sleep(time.Hour)
		for range keys / 2 {
			s.settleAs(claimOf("b", "key"), idem.NotStarted)
		}
		grown, charged := int64(heap()-before), s.Stats().Bytes
		if s.Stats().Whole != keys/40 || grown > 2*charged || peak < 20*grown {
			t.Errorf("of %d bytes %d are left, charged are %d for %d keys", peak, grown, charged, s.Stats().Whole)
		}
		for i := 0; i < keys; i += 40 {
			if r := s.look("a", fmt.Sprint(i)); string(r.Payload) != fmt.Sprint("payload ", i) {
				t.Errorf("key %d: got %q", i, r.Payload)
			}
		}
		runtime.KeepAlive(s)
	})
}

// A claim that comes and goes allocates nothing, also where a slab ends.
func TestMemoryAllocatesNothingForAClaim(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{})
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

// The budgets in days of work are those that the documentation promises.
func TestMemoryHoldsADay(t *testing.T) {
	for _, test := range []struct {
		payload int
		creates int64
		room    int64
	}{{400, 320_000, 256 << 20}, {1 << 10, 180_000, 256 << 20}, {10 << 10, 25_000, 256 << 20}, {0, 155_000, 256 << 20 / 4}} {
		s := newShop(t, idem.MemoryOptions{})
		s.put("a", "key", test.payload)
		if each := s.Stats().Bytes - ownerCost; each*test.creates > test.room || each*test.creates < test.room*9/10 {
			t.Errorf("%d creates a day of %d bytes each take %d, want the room of %d", test.creates, each, each*test.creates, test.room)
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
	s := newShop(t, idem.MemoryOptions{})
	const keys = 20_000
	before := objects()
	s.fill("a", keys, 300)
	if grown := objects() - before; grown > 2*keys+keys/20 {
		t.Errorf("%d keys take %d objects, want two each", keys, grown)
	}
	runtime.KeepAlive(s)
}
