package idem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

func TestMemoryEvictsTheLeastRecentlyUsed(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: ownerCost + 10*15_000})
	s.fill("a", 8, 14_580) // each is charged 15,000 with its summary of 100
	s.look("a", "0")
	s.look("a", "3")
	s.put("a", "8", 14_580)
	s.put("a", "9", 14_580)
	s.mustBeWhole("a", "9", true)
	s.put("a", "10", 14_580)
	if got := s.Stats(); got.Evicted == 0 || got.Evicted > 3 || got.Whole+got.Evicted != 11 {
		t.Fatalf("got %+v, want one to three of 11 evicted", got)
	}
	for name, whole := range map[string]bool{"0": true, "3": true, "1": false, "8": true, "9": true, "10": true} {
		s.mustBeWhole("a", name, whole)
	}
	if r := s.look("a", "1"); len(r.Payload) != 100 || r.Fingerprint != (idem.Fingerprint{1}) {
		t.Errorf("got %d bytes and fingerprint %x of what was evicted, want the summary of 100 bytes", len(r.Payload), r.Fingerprint)
	}
}

func TestMemorySettlesAgainWhatItEvicted(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: 16_000})
	c := s.claim("a", "first")
	settlement := idem.Settlement{Outcome: idem.Finished, Payload: make([]byte, 8000), Summary: []byte("short"), Retention: time.Hour}
	for range 2 {
		if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != nil {
			t.Errorf("Settle: got error %v", err)
		}
		if s.Stats().Evicted == 0 {
			s.put("a", "second", 8000)
			s.mustBeWhole("a", "first", false)
		}
	}
	settlement.Summary = []byte("other")
	if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != idem.ErrSettled {
		t.Errorf("Settle with another summary: got error %v, want ErrSettled", err)
	}
}

// No key is ever evicted: when no payload is left to evict, new work is
// refused.
func TestMemoryRefusesNewWork(t *testing.T) {
	const budget = ownerCost + 4*20*claimCost // of which one owner may have a quarter
	s := newShop(t, idem.MemoryOptions{Budget: budget})
	var flying []idem.Claim
	for i := range 10 {
		flying = append(flying, s.claim("a", fmt.Sprint("flying ", i)))
	}
	n := 0
	for ; ; n++ {
		c := claimOf("a", fmt.Sprint("settled ", n))
		if _, err := s.Begin(t.Context(), c); errors.Is(err, idem.ErrFull) {
			break
		}
		s.settle(c, 7000, 100)
	}
	if n < 20 {
		t.Errorf("got room for %d settled keys beside 10 in flight, want more than 20, some evicted", n)
	}
	for i := range flying {
		if r := s.look("a", fmt.Sprint("flying ", i)); r.State != idem.InFlight {
			t.Errorf("a claim in flight became %v", r.State)
		}
	}
	for i := range n {
		if r := s.look("a", fmt.Sprint("settled ", i)); r.State != idem.Done {
			t.Errorf("a settled key became %v", r.State)
		}
	}
	if got := s.Stats(); got.Refused != 1 || got.Forgotten != 0 || got.Claims != 10 || got.Evicted == 0 {
		t.Errorf("got %+v, want 1 refused, 0 forgotten, 10 claims, some evicted", got)
	}
	// What is in flight is settled all the same, with its summary, however full
	// it is and however large the payload.
	for i, c := range flying {
		s.settle(c, budget, 1024)
		r := s.look("a", fmt.Sprint("flying ", i))
		if r.State != idem.Done || r.Retained || len(r.Payload) != 1024 {
			t.Errorf("got %v, retained %t, %d bytes, want the summary of 1024", r.State, r.Retained, len(r.Payload))
		}
	}
	if got := s.Stats(); got.Bytes > budget {
		t.Errorf("got %d bytes, more than the budget", got.Bytes)
	}
}

// Room is reserved for a summary of 1 KiB. A longer one may be dropped, but not
// the record that the request is done.
func TestMemoryDropsALongSummary(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: ownerCost + claimCost})
	s.settle(s.claim("a", "key"), 5000, 2000)
	if r := s.look("a", "key"); r.State != idem.Done || r.Retained || len(r.Payload) != 0 {
		t.Errorf("got %v, retained %t, %d bytes, want the bare fact", r.State, r.Retained, len(r.Payload))
	}
}

// Settling takes no more room than it needs: while all bytes fit, no payload is
// evicted for them.
func TestMemorySettlesIntoTheLastBytes(t *testing.T) {
	const others = ownerCost + entryCost + 100 + 5000
	for _, test := range []struct {
		summary int
		room    int64 // for the settled key
		whole   bool  // the payload of the other owner
	}{
		{100, claimCost, true},
		{1024, claimCost, true},
		{1500, entryCost + 1500, true},
		{1500, entryCost + 1499, false},
	} {
		s := newShop(t, idem.MemoryOptions{Budget: others + ownerCost + test.room})
		s.put("other", "key", 5000)
		c := s.claim("a", "key")
		claimed := s.Stats().Bytes
		s.settle(c, 0, test.summary)
		if settled := s.Stats().Bytes; test.summary <= 1024 && settled > claimed {
			t.Errorf("a summary of %d bytes: %d bytes are taken, want no more than the %d of the claim", test.summary, settled, claimed)
		}
		s.mustBeWhole("a", "key", true)
		s.mustBeWhole("other", "key", test.whole)
	}
}

// flood claims and settles keys of an owner until it is refused.
func (s shop) flood(owner string) (n int) {
	for ; ; n++ {
		c := claimOf(owner, fmt.Sprint(n))
		if _, err := s.Begin(s.t.Context(), c); err == idem.ErrFull {
			return n
		}
		s.settle(c, 0, 100)
	}
}

// Each owner gets a quarter of what the others leave, so that the next one
// always finds room, however many took all that they could.
func TestMemoryOwnersCannotShutOutTheNext(t *testing.T) {
	const budget = 4_000_000
	s := newShop(t, idem.MemoryOptions{Budget: budget})
	rest := int64(budget)
	for i := range 10 {
		owner := fmt.Sprint("greedy ", i)
		before := s.Stats().Bytes
		s.flood(owner)
		took := s.Stats().Bytes - before
		if took > rest/4+ownerCost || took < rest/4-ownerCost-claimCost {
			t.Errorf("%s took %d bytes, want a quarter of the %d that the others left", owner, took, rest)
		}
		rest -= took
		s.mustBeFull(owner, "more")
	}
	for i := range 50 {
		s.put("modest", fmt.Sprint(i), 1000)
	}
	for i := range 50 {
		s.mustBeWhole("modest", fmt.Sprint(i), true)
	}
	// A payload that no budget can hold takes nothing from anybody.
	s.put("modest", "huge", budget)
	s.mustBeWhole("modest", "huge", false)
	s.mustBeWhole("modest", "0", true)
}

// Even the last bytes go to an owner that has nothing yet, and to no other.
func TestMemoryAdmitsTheFirstClaimOfAnOwner(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: 3 * (ownerCost + claimCost)})
	for _, owner := range []string{"a", "b", "c"} {
		s.claim(owner, "first")
		s.mustBeFull(owner, "second")
	}
	s.mustBeFull("d", "first")
}

// The refusal says when there may be room: when the next record expires.
func TestMemorySaysWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{Budget: 100_000})
		s.put("a", "first", 0)
		time.Sleep(20 * time.Minute)
		s.flood("a")
		r, err := s.Begin(t.Context(), claimOf("a", "more"))
		if err != idem.ErrFull || r.RetryAfter != 40*time.Minute {
			t.Fatalf("got %v, error %v, want ErrFull and 40m: the first record has a retention of 1h", r.RetryAfter, err)
		}
		time.Sleep(r.RetryAfter)
		s.claim("a", "more")

		// A time of 0 would mean that it is not known.
		s = newShop(t, idem.MemoryOptions{Claims: 1})
		for i := range 3 {
			s.put("a", fmt.Sprint(i), 0)
		}
		s.claimFor("a", "long", 2*time.Hour)
		time.Sleep(time.Hour) // one that has expired is left by the next call
		if r, err := s.Begin(t.Context(), claimOf("b", "key")); err != idem.ErrFull || r.RetryAfter <= 0 {
			t.Errorf("got %v, error %v, want ErrFull and more than 0", r.RetryAfter, err)
		}

		// The only record is the next to expire.
		s = newShop(t, idem.MemoryOptions{Claims: 1})
		s.claim("a", "key")
		if r, err := s.Begin(t.Context(), claimOf("b", "key")); err != idem.ErrFull || r.RetryAfter != time.Hour {
			t.Errorf("got %v, error %v, want ErrFull and 1h", r.RetryAfter, err)
		}

		// A claim without end is no hint.
		s = newShop(t, idem.MemoryOptions{Claims: 1})
		c := claimOf("a", "endless")
		c.Lease, c.Retention = math.MaxInt64, math.MaxInt64
		if _, err := s.Begin(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Begin(t.Context(), claimOf("b", "key")); err != idem.ErrFull || r.RetryAfter != 0 {
			t.Errorf("got %v, error %v, want ErrFull and 0", r.RetryAfter, err)
		}
	})
}

// However much one owner does, another that holds less keeps all of its
// answers.
func TestMemoryFloodBesideOthers(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: 1 << 20})
	s.fill("modest", 20, 2000)
	for i := range 1000 {
		c := claimOf("flood", fmt.Sprint(i))
		if _, err := s.Begin(t.Context(), c); err == idem.ErrFull {
			break
		}
		s.settle(c, 5000, 100)
	}
	for i := range 20 {
		s.mustBeWhole("modest", fmt.Sprint(i), true)
	}
	if got := s.Stats(); got.Evicted < 250 {
		t.Errorf("got %+v, want a flood that had to be evicted", got)
	}
}

// An owner that needs room takes it from the owner that holds most: not from
// one that holds less than itself, and not from itself while another holds
// more.
func TestMemoryTakesFromTheLargest(t *testing.T) {
	const budget = 85_000
	s := newShop(t, idem.MemoryOptions{Budget: budget})
	s.fill("large", 10, 5000)
	s.fill("middle", 5, 3000)
	s.fill("small", 2, 1000)
	for i := range 6 {
		s.put("newcomer", fmt.Sprint(i), 2000)
	}
	if got := s.Stats(); got.Evicted == 0 {
		t.Fatalf("got %+v, want pressure", got)
	}
	for owner, n := range map[string]int{"middle": 5, "small": 2, "newcomer": 6} {
		for i := range n {
			s.mustBeWhole(owner, fmt.Sprint(i), true)
		}
	}
	s.mustBeWhole("large", "0", false)
}

// The largest is the one with the most bytes, not the one with the most keys.
// A payload that was evicted no longer counts.
func TestMemoryComparesOwnersByBytes(t *testing.T) {
	const budget = 55_500
	s := newShop(t, idem.MemoryOptions{Budget: budget})
	s.fill("few keys", 2, 15_000)
	s.fill("many keys", 20, 500)
	s.put("newcomer", "0", 9000)
	s.mustBeWhole("few keys", "0", false)
	s.mustBeWhole("few keys", "1", true)
	for i := range 20 {
		s.mustBeWhole("many keys", fmt.Sprint(i), true)
	}
	s.put("newcomer", "1", 12_000)
	s.mustBeWhole("few keys", "1", true)
	for i := range 20 {
		s.mustBeWhole("many keys", fmt.Sprint(i), i >= 3) // 3 payloads of 500 make room
	}
}

// An owner with as much as the one that needs room keeps its payloads. Payloads
// of owners are looked at in random order, hence the rounds.
func TestMemoryTakesNothingFromAnEqual(t *testing.T) {
	for range 20 {
		s := newShop(t, idem.MemoryOptions{Budget: 2*ownerCost + 4*entryCost + 26_400})
		s.settle(s.claim("a", "old"), 10_000, 0)
		s.settle(s.claim("b", "old"), 10_000+entryCost, 0) // as much as a has with its new key
		s.settle(s.claim("a", "new"), 8000, 0)
		s.mustBeWhole("b", "old", true)
		s.mustBeWhole("a", "old", false)
		s.mustBeWhole("a", "new", true)
	}
}

// A payload goes for a claim that needs all of its bytes, or a single one.
func TestMemoryEvictsToTheLastByte(t *testing.T) {
	for _, payload := range []int{1, ownerCost + claimCost} {
		s := newShop(t, idem.MemoryOptions{Budget: ownerCost + entryCost + 100 + ownerCost + claimCost})
		s.put("other", "key", payload)
		s.claim("a", "first")
		s.mustBeWhole("other", "key", false)
	}
}

// An owner that holds more than the others gets none of their room, also when
// all that it holds are keys.
func TestMemoryTakesNothingFromASmallerOwner(t *testing.T) {
	const budget = 60_000
	s := newShop(t, idem.MemoryOptions{Budget: budget})
	s.put("small", "key", 5000)
	s.fill("large", 20, 0)
	before := s.Stats().Bytes
	s.settle(s.claim("large", "more"), int(budget-before), 100)
	s.mustBeWhole("large", "more", false)
	s.mustBeWhole("small", "key", true)
	if got := s.Stats().Bytes; got > budget {
		t.Errorf("%d bytes are taken, want at most %d", got, budget)
	}
}

// A settled request without a payload has none to evict.
func TestMemoryEvictsNoEmptyPayload(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: 40_000})
	s.put("a", "empty", 0)
	s.fill("a", 10, 5000)
	if s.Stats().Evicted == 0 {
		t.Fatal("no payload was evicted")
	}
	s.mustBeWhole("a", "empty", true)
}

// The one that holds most is found among many that have nothing to give up, or
// have been forgotten.
func TestMemoryFindsWhoHasPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 700_000
		s := newShop(t, idem.MemoryOptions{Budget: budget})
		for i := range 400 {
			s.put(fmt.Sprint("forgotten ", i), "key", 100)
		}
		time.Sleep(time.Hour)
		for i := range 400 {
			s.put(fmt.Sprint("facts ", i), "key", 0)
		}
		s.fill("large", 70, 5000)
		for i := range 60 {
			s.put("newcomer", fmt.Sprint(i), 2000)
		}
		if got := s.Stats(); got.Evicted == 0 || got.Refused != 0 {
			t.Errorf("got %+v, want answers evicted and nothing refused", got)
		}
		for i := range 60 {
			s.mustBeWhole("newcomer", fmt.Sprint(i), true)
		}
	})
}

func TestMemoryForgetUnexpired(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: 100_000, ForgetUnexpired: true})
	flying := s.claim("a", "flying")
	s.put("b", "key", 100)
	s.fill("a", 500, 1000)
	got := s.Stats()
	if got.Forgotten == 0 || got.Refused != 0 {
		t.Errorf("got %+v, want keys forgotten and nothing refused", got)
	}
	if int(got.Forgotten)+got.Whole+got.Evicted != 501 {
		t.Errorf("got %+v, want 501 keys in all, with those that were forgotten", got)
	}
	s.mustBeWhole("b", "key", true)
	if r := s.look("a", "flying"); r.State != idem.InFlight {
		t.Errorf("the claim in flight became %v", r.State)
	}
	s.settle(flying, 0, 0)
	s.mustBeWhole("a", "499", true)
	s.claim("a", "0") // forgotten first
}

// With ForgetUnexpired too, an owner with claims alone has nothing to forget.
func TestMemoryForgetsNoClaims(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: 20_000, ForgetUnexpired: true})
	for i := range 3 {
		s.claim("a", fmt.Sprint(i))
	}
	s.mustBeFull("a", "3") // a quarter is taken
}

func TestMemoryBoundsClaims(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Claims: 40})
	held := map[string][]idem.Claim{}
	for _, share := range []struct {
		owner string
		n     int // a quarter of what those before left
	}{{"a", 10}, {"b", 7}, {"c", 5}, {"d", 4}, {"e", 3}, {"f", 2}} {
		for i := range share.n {
			held[share.owner] = append(held[share.owner], s.claim(share.owner, fmt.Sprint(i)))
		}
		s.mustBeFull(share.owner, "one more")
	}
	for i := range 9 { // the first claim of an owner is admitted to the last
		s.claim(fmt.Sprint("small ", i), "key")
	}
	s.mustBeFull("late", "key")
	s.settle(held["a"][0], 10, 10)
	s.mustBeFull("a", "one more")
	s.claim("late", "key")
}

// A take-over of what was settled as unknown needs the room of a claim, and
// leaves everything as it was without it.
func TestMemoryTakeOverWithoutRoom(t *testing.T) {
	const budget = ownerCost + 4*(claimCost+300)
	s := newShop(t, idem.MemoryOptions{Budget: budget})
	first := s.claim("a", "unknown")
	if err := s.Settle(t.Context(), first.Key, first.Token, idem.Settlement{Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	taker := claimOf("a", "unknown")
	taker.Reexecute = true
	held := claimOf("a", "x")
	if _, err := s.Begin(t.Context(), held); err != idem.ErrFull {
		t.Fatalf("got error %v, want ErrFull", err)
	}
	if r, err := s.Begin(t.Context(), taker); err != nil || r.State != idem.Claimed {
		t.Fatalf("with room: got %v, error %v, want a take-over", r.State, err)
	}

	s = newShop(t, idem.MemoryOptions{Claims: 1})
	first = s.claim("a", "unknown")
	s.Settle(t.Context(), first.Key, first.Token, idem.Settlement{Retention: time.Hour})
	other := s.claim("a", "other")
	before := s.Stats()
	if _, err := s.Begin(t.Context(), taker); err != idem.ErrFull {
		t.Errorf("without room: got error %v, want ErrFull", err)
	}
	before.Refused++
	if after := s.Stats(); after != before {
		t.Errorf("got %+v after the refusal, want %+v", after, before)
	}
	if r := s.look("a", "unknown"); r.State != idem.Unknown {
		t.Errorf("got %v, want unknown", r.State)
	}
	s.settle(other, 0, 0)
	if r, err := s.Begin(t.Context(), taker); err != nil || r.Attempt != 2 {
		t.Errorf("got %v, attempt %d, error %v, want a take-over", r.State, r.Attempt, err)
	}
}

// A claim that was taken over is charged as any other, and leaves nothing.
func TestMemoryChargesATakeOver(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{})
	first := s.claim("a", "key")
	claimed := s.Stats().Bytes
	if err := s.Settle(t.Context(), first.Key, first.Token, idem.Settlement{Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	taker := claimOf("a", "key")
	taker.Reexecute = true
	if r, err := s.Begin(t.Context(), taker); err != nil || r.Attempt != 2 {
		t.Fatalf("got %v, attempt %d, error %v, want a take-over", r.State, r.Attempt, err)
	}
	if got := s.Stats().Bytes; got != claimed {
		t.Errorf("%d bytes are taken, want %d as by the first claim", got, claimed)
	}
	if err := s.Settle(t.Context(), taker.Key, taker.Token, freed); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got != (idem.MemoryStats{}) {
		t.Errorf("got %+v at the end, want nothing", got)
	}
}

func TestMemoryWarnsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newShop(t, idem.MemoryOptions{Budget: 1_000_000, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for round := range 2 {
			for i := range 70 {
				// Each is charged 12,496: 64 of them and the owner, 800,000.
				s.put("a", fmt.Sprint(round, " ", i), 12_496-entryCost-100)
				if used := s.Stats().Bytes; (used >= 800_000) != (strings.Count(log.String(), "WARN") > round) {
					t.Fatalf("round %d: at %d bytes the log says %q", round, used, &log)
				}
			}
			time.Sleep(time.Hour)
			for range 40 {
				s.settleAs(claimOf("a", "key"), idem.NotStarted)
			}
		}
		if n := strings.Count(log.String(), "nearly full"); n != 2 {
			t.Errorf("got %d warnings in two rounds, want 2:\n%s", n, &log)
		}
	})
}

// The next warning comes after half of the budget was free.
func TestMemoryWarnsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		const budget = 1_000_000
		s := newShop(t, idem.MemoryOptions{Budget: budget, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		warnings := func() int { return strings.Count(log.String(), "nearly full") }
		// Each key is an owner's only one. With its claim it takes 10,000.
		put := func(n int, retention time.Duration) {
			c := claimOf(fmt.Sprint(n), "key")
			if _, err := s.Begin(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			settlement := idem.Settlement{Outcome: idem.Finished, Payload: make([]byte, 10_000-ownerCost-entryCost), Retention: retention}
			if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		fill := func(until int64) {
			for ; s.Stats().Bytes < until; n++ {
				put(n, time.Duration(n+1)*time.Hour)
			}
		}
		fill(budget * 4 / 5)
		if got := warnings(); got != 1 {
			t.Fatalf("at 80 %%: %d warnings, want 1", got)
		}
		for _, test := range []struct {
			left int64 // before it is filled again
			want int   // warnings
		}{{budget / 2, 1}, {budget/2 - 10_000, 2}} {
			for s.Stats().Bytes > test.left {
				time.Sleep(time.Hour)
				if _, err := s.Begin(t.Context(), claimOf(fmt.Sprint(n-1), "key")); err != nil { // drops what has expired
					t.Fatal(err)
				}
			}
			fill(budget * 4 / 5)
			if got := warnings(); got != test.want {
				t.Errorf("at 80 %% after %d bytes: %d warnings, want %d", test.left, got, test.want)
			}
		}
	})
}

// Without a Logger the warning goes to slog.Default.
func TestMemoryDefaultLogger(t *testing.T) {
	var lines bytes.Buffer
	// SetDefault also changes package log, and does not change it back.
	defer log.SetOutput(log.Writer())
	defer log.SetFlags(log.Flags())
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	shop{idem.NewMemory(idem.MemoryOptions{Budget: 20_000}), t}.put("a", "key", 16_000)
	if !strings.Contains(lines.String(), "nearly full") {
		t.Errorf("the default log is %q, want a warning", &lines)
	}
}

// A payload that is the beginning of a large buffer does not keep the buffer.
// One that nearly fills its buffer is not copied, and the whole buffer is
// charged.
func TestMemoryKeepsNoLargeBuffers(t *testing.T) {
	empty := newShop(t, idem.MemoryOptions{})
	empty.settle(empty.claim("a", "key"), 0, 0)
	for _, test := range []struct {
		length, room int
		copied       bool
	}{{100, 100, false}, {100, 1 << 20, true}, {1000, 1000, false}, {1000, 1100, false}, {1000, 2000, true}} {
		s := newShop(t, idem.MemoryOptions{})
		c := s.claim("a", "key")
		given := make([]byte, test.length, test.room)
		if err := s.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: idem.Finished, Payload: given, Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
		r := s.look("a", "key")
		if len(r.Payload) != test.length || cap(r.Payload) > 2*test.length {
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
	for _, test := range []struct{ keys, perOwner, payload int }{
		{20_000, 20_000, 0}, {20_000, 20_000, 400}, {20_000, 1, 400}, {20_000, 7, 1000},
	} {
		s := newShop(t, idem.MemoryOptions{Budget: 1 << 30})
		owners := make([]string, 0, test.keys)
		for i := range test.keys {
			owners = append(owners, fmt.Sprint(i/test.perOwner))
		}
		before := heap()
		for i, owner := range owners {
			s.put(owner, fmt.Sprint(i), test.payload)
		}
		grown, charged := int64(heap()-before), s.Stats().Bytes
		if grown > charged {
			t.Errorf("%+v: the heap grew by %d bytes a key, charged are %d", test, grown/int64(test.keys), charged/int64(test.keys))
		}
		if grown*2 < charged {
			t.Errorf("%+v: charged are %d bytes a key, the heap grew only by %d", test, charged/int64(test.keys), grown/int64(test.keys))
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

// What a store has forgotten does not stay in memory.
func TestMemoryFreesWhatItForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{})
		before := heap()
		s.fill("a", 1000, 20_000)
		time.Sleep(time.Hour)
		for range 500 {
			s.settleAs(claimOf("b", "key"), idem.NotStarted)
		}
		if got := s.Stats().Bytes; got != 0 {
			t.Fatalf("%d bytes are taken, want 0", got)
		}
		if grown := int64(heap() - before); grown > 2_000_000 {
			t.Errorf("the heap grew by %d bytes, want that 20 MB of payloads are freed", grown)
		}
		runtime.KeepAlive(s)
	})
}

type panickingLog struct{ slog.Handler }

func (panickingLog) Handle(context.Context, slog.Record) error { panic("the log is full") }

// When the Logger panics, the claim that led to the warning is not lost.
func TestMemoryWarnsALogThatPanics(t *testing.T) {
	log := slog.New(panickingLog{slog.NewTextHandler(io.Discard, nil)})
	m := idem.NewMemory(idem.MemoryOptions{Budget: 200_000, Logger: log})
	r := idem.NewRunner(m, idem.Options{})
	for i := range 20 {
		_, e, err := r.Begin(t.Context(), idem.Request{Key: idem.NewKey("o", strconv.Itoa(i)), Owner: "o"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Settle(t.Context(), idem.Settlement{Outcome: idem.Finished, Payload: make([]byte, 9500), Summary: []byte("s")}); err != nil {
			t.Fatal(err)
		}
	}
	if s := m.Stats(); s.Claims != 0 || s.Bytes < 160_000 {
		t.Errorf("%+v, want no claims and more than the 80 %% at which it warns", s)
	}
}
