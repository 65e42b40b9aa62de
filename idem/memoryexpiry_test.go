package idem_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// What has expired and is never asked for again is removed by the calls of
// others, a few at a time.
func TestMemoryReclaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{})
		for i := range 100 {
			s.fill(fmt.Sprint("owner ", i), 10, 1000)
			s.claim(fmt.Sprint("owner ", i), "never settled")
		}
		empty := newShop(t, idem.MemoryOptions{}).Stats()
		time.Sleep(time.Hour)
		for range 550 {
			s.settleAs(claimOf("other", "key"), idem.NotStarted)
		}
		if got := s.Stats(); got != empty {
			t.Errorf("got %+v after 550 calls, want nothing left of 1100 keys", got)
		}
	})
}

// What is added last may expire first.
func TestMemoryReclaimsTheLastFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{})
		s.claimFor("a", "long", 2*time.Hour)
		s.claimFor("a", "short", time.Hour)
		time.Sleep(time.Hour)
		s.settleAs(claimOf("other", "key"), idem.NotStarted)
		if got := s.Stats().Claims; got != 1 {
			t.Errorf("got %d claims after an hour, want the one of two hours", got)
		}
	})
}

// Retentions differ: those that end first go first, and none before its time.
func TestMemoryReclaimsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		s := newShop(t, idem.MemoryOptions{})
		start := time.Now()
		var ends []time.Duration
		var freed []idem.Claim
		for i := range 2000 {
			c := s.claim("a", fmt.Sprint(i))
			end := time.Duration(1+random.IntN(59)) * time.Minute // sooner than the claim's hour
			if i%3 == 0 {
				end += time.Hour
			}
			if i%3 == 1 {
				freed = append(freed, s.claimFor("a", fmt.Sprint("freed ", i), end))
			}
			s.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: idem.Finished, Retention: end})
			ends = append(ends, end)
		}
		// Taken out of the middle of the queue, they leave it in order.
		for _, i := range random.Perm(len(freed)) {
			s.Settle(t.Context(), freed[i].Key, freed[i].Token, idem.Settlement{Outcome: idem.NotStarted})
		}
		for step := range 24 {
			// More come while others go.
			for i := range 50 {
				end := time.Duration(1+random.IntN(120)) * time.Minute
				c := s.claimFor("a", fmt.Sprint("step ", step, " ", i), end)
				s.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: idem.Finished, Retention: end})
				ends = append(ends, time.Since(start)+end)
			}
			time.Sleep(5 * time.Minute)
			for range 1000 {
				s.settleAs(claimOf("other", "key"), idem.NotStarted)
			}
			want := 0
			for _, end := range ends {
				if end > time.Since(start) {
					want++
				}
			}
			if got := s.Stats().Whole; got != want {
				t.Fatalf("after %v: got %d keys, want %d", time.Since(start), got, want)
			}
		}
	})
}

// A retention is over when its time has come, also of keys that nobody has
// removed yet.
func TestMemoryForgetsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{})
		s.fill("a", 10, 100)
		time.Sleep(time.Hour - 1)
		for i := range 10 {
			s.mustBeWhole("a", fmt.Sprint(i), true)
		}
		time.Sleep(time.Nanosecond)
		for _, i := range []int{5, 4, 3, 2, 1, 9, 8, 7, 6, 0} { // the first is not among those that the call removes
			s.claim("a", fmt.Sprint(i))
		}
	})
}

// Expired keys go first: no answer is evicted while there are any.
func TestMemoryDropsTheExpiredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{Budget: 100_000})
		s.fill("old", 20, 1000)
		time.Sleep(30 * time.Minute)
		s.fill("young", 5, 7000) // holds more than what has expired
		time.Sleep(30 * time.Minute)
		s.put("huge", "key", 59_000)
		s.mustBeWhole("huge", "key", true)
		for i := range 5 {
			s.mustBeWhole("young", fmt.Sprint(i), true)
		}
	})
}

func TestMemoryNeverForgetsWithEndlessRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{})
		time.Sleep(time.Hour)
		c := claimOf("a", "key")
		c.Lease, c.Retention = math.MaxInt64, math.MaxInt64
		if _, err := s.Begin(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10_000 * time.Hour)
		if r := s.look("a", "key"); r.State != idem.InFlight {
			t.Errorf("got %v, want in flight", r.State)
		}
		settlement := idem.Settlement{Outcome: idem.Finished, Retention: math.MaxInt64}
		if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10_000 * time.Hour)
		s.mustBeWhole("a", "key", true)
	})
}
