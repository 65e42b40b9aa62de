package idem_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

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
