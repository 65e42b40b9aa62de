package idem_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// What a Memory charges for a claim in flight, and for a partition.
const (
	claimCost     = 448 + 1024
	partitionCost = 1024
)

// shop is a Memory with shorthands. A key is a partition and a name.
type shop struct {
	*idem.Memory
	t *testing.T
}

func newShop(t *testing.T, o idem.MemoryOptions) shop {
	if o.Logger == nil {
		o.Logger = quiet
	}
	return shop{idem.NewMemory(o), t}
}

func claimOf(partition, name string) idem.Claim {
	return idem.Claim{
		Key: idem.NewKey(partition, name), Token: idem.NewToken(), Fingerprint: idem.Sum{1}, Lease: time.Minute, Retention: time.Hour,
	}
}

// claim claims a new key.
func (s shop) claim(partition, name string) idem.Claim {
	s.t.Helper()
	c := claimOf(partition, name)
	if r, err := s.Begin(s.t.Context(), c); err != nil || r.State != idem.Claimed {
		s.t.Fatalf("Begin of %s %s: got %v, error %v, want claimed", partition, name, r.State, err)
	}
	return c
}

func (s shop) settle(c idem.Claim, payload, summary int) {
	s.t.Helper()
	settlement := idem.Settlement{
		Outcome: idem.Finished, Payload: make([]byte, payload), Summary: make([]byte, summary), Retention: time.Hour,
	}
	if err := s.Settle(s.t.Context(), c.Key, c.Token, settlement); err != nil {
		s.t.Fatalf("Settle: got error %v, want nil: settling what is held always succeeds", err)
	}
}

// put claims a key and settles it.
func (s shop) put(partition, name string, payload int) {
	s.t.Helper()
	s.settle(s.claim(partition, name), payload, 100)
}

// fill puts n keys.
func (s shop) fill(partition string, n, payload int) {
	s.t.Helper()
	for i := range n {
		s.put(partition, fmt.Sprint(i), payload)
	}
}

func (s shop) mustBeFull(partition, name string) {
	s.t.Helper()
	if _, err := s.Begin(s.t.Context(), claimOf(partition, name)); err != idem.ErrFull {
		s.t.Fatalf("Begin of %s %s: got error %v, want ErrFull", partition, name, err)
	}
}

// look asks for a key that is known.
func (s shop) look(partition, name string) idem.Record {
	s.t.Helper()
	r, err := s.Begin(s.t.Context(), claimOf(partition, name))
	if err != nil || r.State == idem.Claimed {
		s.t.Fatalf("Begin of %s %s: got %v, error %v, want it known", partition, name, r.State, err)
	}
	return r
}

func (s shop) mustBeWhole(partition, name string, whole bool) {
	s.t.Helper()
	if r := s.look(partition, name); r.State != idem.Done || r.Retained != whole {
		s.t.Errorf("%s %s: got %v, retained %t, want done, retained %t", partition, name, r.State, r.Retained, whole)
	}
}

func TestMemoryShortensTheLeastRecentlyUsed(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: partitionCost + 10*2000, Share: partitionCost + 10*2000})
	s.fill("a", 8, 1452) // each is charged 2,000 with its summary of 100
	s.look("a", "0")
	s.look("a", "3")
	s.put("a", "8", 1452)
	s.put("a", "9", 1452)
	s.mustBeWhole("a", "9", true)
	s.put("a", "10", 1452)
	if got := s.Stats(); got.Shortened == 0 || got.Shortened > 3 || got.Whole+got.Shortened != 11 {
		t.Fatalf("got %+v, want one to three of 11 shortened", got)
	}
	for name, whole := range map[string]bool{"0": true, "3": true, "1": false, "8": true, "9": true, "10": true} {
		s.mustBeWhole("a", name, whole)
	}
	if r := s.look("a", "1"); len(r.Payload) != 100 || r.Fingerprint != (idem.Sum{1}) {
		t.Errorf("got %d bytes and fingerprint %x of what was shortened, want the summary of 100 bytes", len(r.Payload), r.Fingerprint)
	}
}

func TestMemorySettlesAgainWhatItShortened(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: 8000, Share: 8000})
	c := s.claim("a", "first")
	settlement := idem.Settlement{Outcome: idem.Finished, Payload: make([]byte, 3000), Summary: []byte("short"), Retention: time.Hour}
	for range 2 {
		if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != nil {
			t.Errorf("Settle: got error %v", err)
		}
		if s.Stats().Shortened == 0 {
			s.put("a", "second", 3000)
			s.mustBeWhole("a", "first", false)
		}
	}
	settlement.Summary = []byte("other")
	if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != idem.ErrSettled {
		t.Errorf("Settle with another summary: got error %v, want ErrSettled", err)
	}
}

// Nothing that was claimed is ever given up: when only facts are left, new work is refused.
func TestMemoryRefusesNewWork(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: partitionCost + 20*claimCost, Share: partitionCost + 20*claimCost})
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
		s.settle(c, 700, 100)
	}
	if n < 20 {
		t.Errorf("got room for %d settled keys beside 10 in flight, want more than 20, shortened", n)
	}
	for i := range flying {
		if r := s.look("a", fmt.Sprint("flying ", i)); r.State != idem.InFlight {
			t.Errorf("a claim in flight became %v", r.State)
		}
	}
	for i := range n {
		s.mustBeWhole("a", fmt.Sprint("settled ", i), false)
	}
	if got := s.Stats(); got.Refused != 1 || got.Forgotten != 0 || got.Claims != 10 {
		t.Errorf("got %+v, want 1 refused, 0 forgotten, 10 claims", got)
	}
	// What is in flight is settled all the same, with its summary, however full it is and however large the payload.
	for i, c := range flying {
		s.settle(c, 1<<20, 1024)
		r := s.look("a", fmt.Sprint("flying ", i))
		if r.State != idem.Done || r.Retained || len(r.Payload) != 1024 {
			t.Errorf("got %v, retained %t, %d bytes, want the summary of 1024", r.State, r.Retained, len(r.Payload))
		}
	}
	if got := s.Stats(); got.Bytes > partitionCost+20*claimCost {
		t.Errorf("got %d bytes, more than the budget", got.Bytes)
	}
}

// A summary over 1 KiB is not promised room. The fact is.
func TestMemoryDropsALongSummary(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: partitionCost + claimCost, Share: partitionCost + claimCost})
	s.settle(s.claim("a", "key"), 5000, 2000)
	if r := s.look("a", "key"); r.State != idem.Done || r.Retained || len(r.Payload) != 0 {
		t.Errorf("got %v, retained %t, %d bytes, want the bare fact", r.State, r.Retained, len(r.Payload))
	}
}

func TestMemoryShare(t *testing.T) {
	const budget = 400_000
	s := newShop(t, idem.MemoryOptions{Budget: budget}) // a share is a quarter
	n := 0
	for ; ; n++ {
		c := claimOf("greedy", fmt.Sprint(n))
		if _, err := s.Begin(t.Context(), c); err == idem.ErrFull {
			break
		}
		s.settle(c, 0, 100)
	}
	if used := s.Stats().Bytes; used > budget/4 || used < budget/4-claimCost {
		t.Errorf("one partition took %d bytes, want its share of %d", used, budget/4)
	}
	for range 3 {
		s.mustBeFull("greedy", "more")
	}
	s.put("modest", "key", 1000)
	s.mustBeWhole("modest", "key", true)
	// A payload that no share can hold takes nothing from anybody.
	s.put("modest", "huge", budget)
	s.mustBeWhole("modest", "huge", false)
	s.mustBeWhole("modest", "key", true)
}

// However much one partition does, another that holds less keeps all of its answers.
func TestMemoryFloodBesideOthers(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: 1 << 20, Share: 1 << 20})
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
	if got := s.Stats(); got.Shortened < 500 {
		t.Errorf("got %+v, want a flood that had to be shortened", got)
	}
}

// A partition that needs room takes it from whichever holds most, not from one that holds less than itself, and not from
// itself while another holds more.
func TestMemoryTakesFromTheLargest(t *testing.T) {
	const budget = 90_000
	s := newShop(t, idem.MemoryOptions{Budget: budget, Share: budget})
	s.fill("large", 10, 5000)
	s.fill("middle", 5, 3000)
	s.fill("small", 2, 1000)
	for i := range 6 {
		s.put("newcomer", fmt.Sprint(i), 2000)
	}
	if got := s.Stats(); got.Shortened == 0 {
		t.Fatalf("got %+v, want pressure", got)
	}
	for partition, n := range map[string]int{"middle": 5, "small": 2, "newcomer": 6} {
		for i := range n {
			s.mustBeWhole(partition, fmt.Sprint(i), true)
		}
	}
	s.mustBeWhole("large", "0", false)
}

func TestMemoryForgetUnexpired(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Budget: 100_000, Share: 50_000, ForgetUnexpired: true})
	flying := s.claim("a", "flying")
	s.put("b", "key", 100)
	s.fill("a", 500, 1000)
	got := s.Stats()
	if got.Forgotten == 0 || got.Refused != 0 {
		t.Errorf("got %+v, want keys forgotten and nothing refused", got)
	}
	if int(got.Forgotten)+got.Whole+got.Shortened != 501 {
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

func TestMemoryBoundsClaims(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{Claims: 40})
	var held []idem.Claim
	for _, partition := range []string{"a", "b", "c", "d"} {
		for i := range 10 {
			held = append(held, s.claim(partition, fmt.Sprint(i)))
		}
		s.mustBeFull(partition, "one more")
	}
	s.mustBeFull("e", "one more")
	s.settle(held[0], 10, 10)
	s.claim("a", "one more")
	s.mustBeFull("a", "two more")
	s.settle(held[10], 10, 10)
	s.claim("e", "one more")
}

// A take-over of what was settled as unknown needs the room of a claim, and leaves everything as it was without it.
func TestMemoryTakeOverWithoutRoom(t *testing.T) {
	const budget = partitionCost + claimCost + 300
	s := newShop(t, idem.MemoryOptions{Budget: budget, Share: budget})
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

// What has expired and is never asked for again is removed by the calls of others, a few at a time.
func TestMemoryReclaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{})
		for i := range 100 {
			s.fill(fmt.Sprint("partition ", i), 10, 1000)
			s.claim(fmt.Sprint("partition ", i), "never settled")
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

func (s shop) settleAs(c idem.Claim, o idem.Outcome) {
	s.t.Helper()
	if r, err := s.Begin(s.t.Context(), c); err != nil || r.State != idem.Claimed {
		s.t.Fatalf("Begin: got %v, error %v, want claimed", r.State, err)
	}
	if err := s.Settle(s.t.Context(), c.Key, c.Token, idem.Settlement{Outcome: o, Retention: time.Hour}); err != nil {
		s.t.Fatal(err)
	}
}

// Retentions differ: those that end first go first, and none before its time.
func TestMemoryReclaimsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		s := newShop(t, idem.MemoryOptions{})
		start := time.Now()
		var ends []time.Duration
		for i := range 2000 {
			c := s.claim("a", fmt.Sprint(i))
			end := time.Duration(1+random.IntN(59)) * time.Minute // sooner than the claim's hour
			if i%3 == 0 {
				end += time.Hour
			}
			if i%7 == 0 {
				s.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: idem.NotStarted})
				continue
			}
			s.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: idem.Finished, Retention: end})
			ends = append(ends, end)
		}
		for range 12 {
			time.Sleep(10 * time.Minute)
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

// A retention is over when its time has come, also of keys that nobody has removed yet.
func TestMemoryForgetsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{})
		s.fill("a", 10, 100)
		time.Sleep(time.Hour - 1)
		for i := range 10 {
			s.mustBeWhole("a", fmt.Sprint(i), true)
		}
		time.Sleep(1)
		for _, i := range []int{5, 4, 3, 2, 1, 9, 8, 7, 6, 0} { // the first is not among those that the call removes
			s.claim("a", fmt.Sprint(i))
		}
	})
}

// Expired keys go first: no answer is shortened while there are any.
func TestMemoryDropsTheExpiredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, idem.MemoryOptions{Budget: 100_000, Share: 100_000})
		s.fill("old", 20, 3000)
		time.Sleep(30 * time.Minute)
		s.fill("young", 5, 3000)
		time.Sleep(30 * time.Minute)
		s.put("huge", "key", 60_000)
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

func TestMemoryRefusesNonsense(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{})
	for _, d := range []struct{ lease, retention time.Duration }{{0, 1}, {-1, 1}, {2, 1}, {1, 0}} {
		c := claimOf("a", "key")
		c.Lease, c.Retention = d.lease, d.retention
		if r, err := s.Begin(t.Context(), c); err == nil {
			t.Errorf("Begin with a lease of %v and a retention of %v: got %v, want an error", d.lease, d.retention, r.State)
		}
	}
	c := s.claim("a", "key")
	if err := s.Extend(t.Context(), c.Key, c.Token, 0); err == nil || errors.Is(err, idem.ErrLost) {
		t.Errorf("Extend by nothing: got error %v, want one that is no refusal", err)
	}
	for _, settlement := range []idem.Settlement{{Outcome: 3, Retention: 1}, {Outcome: idem.Finished}, {Outcome: idem.OutcomeUnknown}} {
		if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err == nil || errors.Is(err, idem.ErrLost) {
			t.Errorf("Settle as %v for %v: got error %v, want one that is no refusal", settlement.Outcome, settlement.Retention, err)
		}
	}
	s.settle(c, 0, 0)
}

func TestNewMemoryPanics(t *testing.T) {
	for _, o := range []idem.MemoryOptions{{Budget: -1}, {Share: -1}, {Claims: -1}, {Budget: 10, Share: 11}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: got no panic", o)
				}
			}()
			idem.NewMemory(o)
		}()
	}
}

func TestMemoryWarnsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newShop(t, idem.MemoryOptions{Budget: 100_000, Share: 100_000, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for round := range 2 {
			for i := range 79 {
				s.put("a", fmt.Sprint(round, " ", i), 452) // each is charged 1,000
				if used := s.Stats().Bytes; (used >= 80_000) != (strings.Count(log.String(), "WARN") > round) {
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

// A payload that is the beginning of a large buffer does not keep the buffer.
func TestMemoryKeepsNoLargeBuffers(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{})
	c := s.claim("a", "key")
	settlement := idem.Settlement{Outcome: idem.Finished, Payload: make([]byte, 100, 1<<20), Retention: time.Hour}
	if err := s.Settle(t.Context(), c.Key, c.Token, settlement); err != nil {
		t.Fatal(err)
	}
	if r := s.look("a", "key"); len(r.Payload) != 100 || cap(r.Payload) > 200 {
		t.Errorf("got %d bytes in a buffer of %d, want 100 in one of their size", len(r.Payload), cap(r.Payload))
	}
}

// The budget is about real memory: what is charged covers what the heap grows by.
func TestMemoryChargesWhatItTakes(t *testing.T) {
	for _, test := range []struct{ keys, perPartition, payload int }{
		{20_000, 20_000, 0}, {20_000, 20_000, 400}, {20_000, 1, 400}, {20_000, 7, 1000},
	} {
		s := newShop(t, idem.MemoryOptions{Budget: 1 << 30, Share: 1 << 30})
		partitions := make([]string, 0, test.keys)
		for i := range test.keys {
			partitions = append(partitions, fmt.Sprint(i/test.perPartition))
		}
		before := heap()
		for i, partition := range partitions {
			s.put(partition, fmt.Sprint(i), test.payload)
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

// Random work in a small store: no fact is forgotten before its time, no answer is another's, and the budget holds.
func TestMemoryRandomWork(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { randomWork(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func randomWork(t *testing.T, random *rand.Rand) {
	const budget, share = 60_000, 25_000
	s := newShop(t, idem.MemoryOptions{Budget: budget, Share: share, Claims: 20})
	type fact struct {
		claim   idem.Claim
		state   idem.State
		payload []byte
		expires time.Time
	}
	known := map[idem.Key]*fact{}
	var refused, short int
	for step := range 3000 {
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		c := claimOf(fmt.Sprint(random.IntN(6)), fmt.Sprint(random.IntN(60)))
		c.Retention = time.Duration(1+random.IntN(30)) * time.Minute
		r, err := s.Begin(t.Context(), c)
		f := known[c.Key]
		if f != nil && !time.Now().Before(f.expires) {
			f = nil
		}
		switch {
		case f == nil && errors.Is(err, idem.ErrFull):
			refused++
		case err != nil:
			t.Fatalf("step %d: got error %v", step, err)
		case f == nil:
			if r.State != idem.Claimed || r.Attempt != 1 {
				t.Fatalf("step %d: a new key is %v, attempt %d", step, r.State, r.Attempt)
			}
			known[c.Key] = &fact{claim: c, state: idem.InFlight, expires: time.Now().Add(c.Retention)}
		case r.State == idem.Unknown && f.state == idem.InFlight: // its lease has lapsed
		case r.State != f.state:
			t.Fatalf("step %d: got %v, want %v", step, r.State, f.state)
		case f.state == idem.Done && r.Retained && !bytes.Equal(r.Payload, f.payload):
			t.Fatalf("step %d: got a payload of %d bytes, want %d others", step, len(r.Payload), len(f.payload))
		case f.state == idem.Done && !r.Retained:
			short++
			if want := f.payload[:min(len(f.payload), 50)]; !bytes.Equal(r.Payload, want) {
				t.Fatalf("step %d: got a summary of %d bytes, want %d others", step, len(r.Payload), len(want))
			}
		}
		if f = known[c.Key]; f != nil && f.state == idem.InFlight && time.Now().Before(f.expires) && random.IntN(3) > 0 {
			settlement := idem.Settlement{Outcome: idem.Outcome(random.IntN(3)), Retention: time.Duration(1+random.IntN(30)) * time.Minute}
			switch settlement.Outcome {
			case idem.Finished:
				settlement.Payload = make([]byte, random.IntN(3000))
				for i := range settlement.Payload {
					settlement.Payload[i] = byte(random.Uint32())
				}
				settlement.Summary = settlement.Payload[:min(len(settlement.Payload), 50)]
				f.state, f.payload = idem.Done, settlement.Payload
			case idem.OutcomeUnknown:
				f.state = idem.Unknown
			case idem.NotStarted:
				delete(known, c.Key)
			}
			f.expires = time.Now().Add(settlement.Retention)
			if err := s.Settle(t.Context(), c.Key, f.claim.Token, settlement); err != nil {
				t.Fatalf("step %d: Settle as %v: got error %v", step, settlement.Outcome, err)
			}
		}
		if got := s.Stats(); got.Bytes > budget || got.Bytes < 0 || got.Claims > 20 || got.Forgotten != 0 {
			t.Fatalf("step %d: got %+v", step, got)
		}
	}
	if refused == 0 || short == 0 {
		t.Errorf("got %d refused and %d shortened, want pressure in this test", refused, short)
	}
	// In the end nothing is left, in the store or on its account.
	time.Sleep(time.Hour)
	last := claimOf("last", "key")
	for range 600 {
		s.settleAs(last, idem.NotStarted)
	}
	if got := s.Stats(); got != (idem.MemoryStats{Refused: got.Refused}) {
		t.Errorf("got %+v at the end, want nothing", got)
	}
}
