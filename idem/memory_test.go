package idem_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

func TestMemorySuite(t *testing.T) {
	idemtest.Suite{New: func(t *testing.T) idem.Store { return newMemory() }, Bubble: true}.Run(t)
}

// What a Memory charges for a key, for a claim in flight, and for an owner.
const (
	entryCost = 320
	claimCost = entryCost + 1024
	ownerCost = 256
)

// shop is a Memory with shorthands. A key is an owner and a name.
type shop struct {
	*idem.Memory
	t *testing.T
}

var tokens atomic.Uint64

// newToken returns a token that no other claim has.
func newToken() (t idem.ClaimToken) {
	binary.BigEndian.PutUint64(t[:], tokens.Add(1))
	return t
}

func newShop(t *testing.T, o idem.MemoryOptions) shop {
	if o.Logger == nil {
		o.Logger = quiet
	}
	return shop{idem.NewMemory(o), t}
}

func claimOf(owner, name string) idem.Claim {
	return idem.Claim{
		Key: idem.NewKey(owner, name), Token: newToken(), Owner: owner, Fingerprint: idem.Fingerprint{1}, Lease: time.Minute, Retention: time.Hour,
	}
}

// claim claims a new key.
func (s shop) claim(owner, name string) idem.Claim {
	s.t.Helper()
	return s.claimFor(owner, name, time.Hour)
}

func (s shop) claimFor(owner, name string, retention time.Duration) idem.Claim {
	s.t.Helper()
	c := claimOf(owner, name)
	c.Retention = retention
	if r, err := s.Begin(s.t.Context(), c); err != nil || r.State != idem.Claimed {
		s.t.Fatalf("Begin of %s %s: got %v, error %v, want claimed", owner, name, r.State, err)
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
func (s shop) put(owner, name string, payload int) {
	s.t.Helper()
	s.settle(s.claim(owner, name), payload, 100)
}

// fill puts n keys.
func (s shop) fill(owner string, n, payload int) {
	s.t.Helper()
	for i := range n {
		s.put(owner, fmt.Sprint(i), payload)
	}
}

func (s shop) mustBeFull(owner, name string) {
	s.t.Helper()
	if _, err := s.Begin(s.t.Context(), claimOf(owner, name)); err != idem.ErrFull {
		s.t.Fatalf("Begin of %s %s: got error %v, want ErrFull", owner, name, err)
	}
}

// look asks for a key that is known.
func (s shop) look(owner, name string) idem.Record {
	s.t.Helper()
	r, err := s.Begin(s.t.Context(), claimOf(owner, name))
	if err != nil || r.State == idem.Claimed {
		s.t.Fatalf("Begin of %s %s: got %v, error %v, want it known", owner, name, r.State, err)
	}
	return r
}

func (s shop) mustBeWhole(owner, name string, whole bool) {
	s.t.Helper()
	if r := s.look(owner, name); r.State != idem.Done || r.Retained != whole {
		s.t.Errorf("%s %s: got %v, retained %t, want done, retained %t", owner, name, r.State, r.Retained, whole)
	}
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

func TestMemoryRefusesNonsense(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{})
	for _, d := range []struct{ lease, retention time.Duration }{{0, 1}, {-1, 1}, {2, 1}, {1, 0}} {
		c := claimOf("a", "key")
		c.Lease, c.Retention = d.lease, d.retention
		if r, err := s.Begin(t.Context(), c); err == nil {
			t.Errorf("Begin with a lease of %v and a retention of %v: got %v, want an error", d.lease, d.retention, r.State)
		}
	}
	shortest := claimOf("a", "shortest")
	shortest.Lease, shortest.Retention = 1, 1
	if _, err := s.Begin(t.Context(), shortest); err != nil {
		t.Errorf("Begin with a lease and a retention of 1ns: got error %v", err)
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
	// The shortest times that are accepted.
	if err := s.Extend(t.Context(), c.Key, c.Token, 1); err != nil {
		t.Errorf("Extend by 1ns: got error %v", err)
	}
	if err := s.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Retention: 1}); err != nil {
		t.Errorf("Settle for 1ns: got error %v", err)
	}
}

// A caller who has left gets the error of its context, and nothing is done.
func TestMemoryOfACallerWhoLeft(t *testing.T) {
	s := newShop(t, idem.MemoryOptions{})
	c := s.claim("a", "key")
	before := s.Stats()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := s.Begin(ctx, claimOf("a", "other")); err != context.Canceled || r.State != 0 {
		t.Errorf("Begin: got %v, error %v, want context.Canceled", r.State, err)
	}
	if err := s.Extend(ctx, c.Key, c.Token, time.Minute); err != context.Canceled {
		t.Errorf("Extend: got error %v, want context.Canceled", err)
	}
	if err := s.Settle(ctx, c.Key, c.Token, freed); err != context.Canceled {
		t.Errorf("Settle: got error %v, want context.Canceled", err)
	}
	if after := s.Stats(); after != before {
		t.Errorf("got %+v, want %+v as before", after, before)
	}
}

// The defaults are what the documentation says.
func TestMemoryDefaults(t *testing.T) {
	const budget = 256 << 20
	for _, test := range []struct {
		payload int
		whole   bool
	}{{budget - ownerCost - entryCost, true}, {budget - ownerCost - entryCost + 1, false}} {
		s := newShop(t, idem.MemoryOptions{})
		s.settle(s.claim("a", "key"), test.payload, 0)
		s.mustBeWhole("a", "key", test.whole)
	}
	s := newShop(t, idem.MemoryOptions{})
	for i := range 65_536 {
		s.claim(fmt.Sprint(i), "key")
	}
	s.mustBeFull("one more", "key")
}

// TestZeroMemory: the zero Memory works, whatever is called first.
func TestZeroMemory(t *testing.T) {
	claim := idem.Claim{Key: idem.NewKey("1"), Token: idem.ClaimToken{1}, Owner: "a", Lease: time.Minute, Retention: time.Hour}
	for name, first := range map[string]func(*idem.Memory) error{
		"Begin":  func(m *idem.Memory) error { return nil },
		"Extend": func(m *idem.Memory) error { return m.Extend(t.Context(), claim.Key, claim.Token, time.Minute) },
		"Settle": func(m *idem.Memory) error {
			return m.Settle(t.Context(), claim.Key, claim.Token, idem.Settlement{Outcome: idem.NotStarted})
		},
		"Stats": func(m *idem.Memory) error { m.Stats(); return nil },
	} {
		m := new(idem.Memory)
		if err := first(m); err != nil && !errors.Is(err, idem.ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
		if r, err := m.Begin(t.Context(), claim); err != nil || r.State != idem.Claimed {
			t.Errorf("Begin after %s: got %+v, %v", name, r, err)
		}
		if err := m.Settle(t.Context(), claim.Key, claim.Token, idem.Settlement{Outcome: idem.Finished, Payload: []byte("x"), Retention: time.Hour}); err != nil {
			t.Errorf("Settle after %s: %v", name, err)
		}
		claim.Token[0]++
		if r, err := m.Begin(t.Context(), claim); err != nil || r.State != idem.Done || string(r.Payload) != "x" {
			t.Errorf("a repeat after %s: got %+v, %v", name, r, err)
		}
	}
}

func TestNewMemoryPanics(t *testing.T) {
	for _, o := range []idem.MemoryOptions{{Budget: -1}, {Claims: -1}} {
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

// Random work in a small store. No key is forgotten before its time, none gets
// the answer of another, and the budget is kept.
func TestMemoryRandomWork(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { randomWork(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func randomWork(t *testing.T, random *rand.Rand) {
	const budget = 60_000
	s := newShop(t, idem.MemoryOptions{Budget: budget, Claims: 20})
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
		t.Errorf("got %d refused and %d evicted, want pressure in this test", refused, short)
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
