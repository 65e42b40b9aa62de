package idem_test

import (
	"errors"
	"fmt"
	"testing"
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
