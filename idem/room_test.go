package idem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

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

// The one that holds most is found among many that have nothing to give up, or have been forgotten.
func TestMemoryFindsWhoHasPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 1 << 20
		s := newShop(t, idem.MemoryOptions{Budget: budget, Share: budget})
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
		if got := s.Stats(); got.Shortened == 0 || got.Refused != 0 {
			t.Errorf("got %+v, want answers shortened and nothing refused", got)
		}
		for i := range 60 {
			s.mustBeWhole("newcomer", fmt.Sprint(i), true)
		}
	})
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

type panickingLog struct{ slog.Handler }

func (panickingLog) Handle(context.Context, slog.Record) error { panic("the log is full") }

// What the log does with the warning is no matter to the claim that led to it.
func TestMemoryWarnsALogThatPanics(t *testing.T) {
	log := slog.New(panickingLog{slog.NewTextHandler(io.Discard, nil)})
	m := idem.NewMemory(idem.MemoryOptions{Budget: 20_000, Share: 20_000, Logger: log})
	r := idem.NewRunner(m, idem.Options{})
	for i := range 20 {
		_, e, err := r.Begin(t.Context(), idem.Request{Key: idem.NewKey("o", strconv.Itoa(i)), Owner: "o"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Settle(t.Context(), idem.Settlement{Outcome: idem.Finished, Payload: make([]byte, 500), Summary: []byte("s")}); err != nil {
			t.Fatal(err)
		}
	}
	if s := m.Stats(); s.Claims != 0 || s.Bytes < 16_000 {
		t.Errorf("%+v, want no claims and more than the 80 %% at which it warns", s)
	}
}
