package idem_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// sharedStore is the contract of idem.Store in its shortest form: a map, and the
// clock of a bubble.
type sharedStore struct {
	mu      sync.Mutex
	records map[idem.Key]*sharedRecord
}

type sharedRecord struct {
	claim         idem.Claim // with the first fingerprint and the last token
	attempt       int
	settled       *idem.Settlement // nil while it is held
	lapses, until time.Time
	began         time.Time
	told          bool // that it is unknown, while it is held
}

func newSharedStore() *sharedStore { return &sharedStore{records: make(map[idem.Key]*sharedRecord)} }

// find returns the record of a key and locks the store.
func (m *sharedStore) find(key idem.Key) (r *sharedRecord, now time.Time) {
	m.mu.Lock()
	if r, now = m.records[key], time.Now(); r != nil && !now.Before(r.until) {
		delete(m.records, key)
		r = nil
	}
	return r, now
}

func (m *sharedStore) Begin(_ context.Context, c idem.Claim) (idem.Record, error) {
	r, now := m.find(c.Key)
	defer m.mu.Unlock()
	if r == nil {
		r = &sharedRecord{claim: c}
		m.records[c.Key] = r
	}
	answer := idem.Record{State: idem.Claimed, Fingerprint: r.claim.Fingerprint}
	switch {
	case r.attempt > 0 && r.settled == nil && r.claim.Token == c.Token && !r.told: // sent again
	case r.attempt > 0 && r.settled == nil && now.Before(r.lapses):
		answer.State, answer.RetryAfter = idem.InProgress, r.lapses.Sub(now)
		return answer, nil
	case r.settled != nil && r.settled.Outcome == idem.OutcomeDone:
		answer.State, answer.Payload, answer.Retained = idem.Done, r.settled.Payload, true
		return answer, nil
	case r.attempt > 0 && !(c.Reexecute && r.claim.Fingerprint == c.Fingerprint):
		answer.State, r.told = idem.Unknown, true
		return answer, nil
	default:
		r.attempt++
		r.claim.Account, r.claim.Units, r.began = c.Account, c.Units, now
	}
	r.claim.Token, r.settled, r.told = c.Token, nil, false
	r.lapses, r.until = now.Add(c.Lease), now.Add(c.Retention)
	answer.Attempt = r.attempt
	return answer, nil
}

func (m *sharedStore) Extend(_ context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	r, now := m.find(key)
	defer m.mu.Unlock()
	if r == nil || r.claim.Token != token || r.settled != nil || r.told {
		return idem.ErrLost
	}
	if r.lapses = now.Add(lease); r.until.Before(r.lapses) {
		r.until = r.lapses
	}
	return nil
}

func (m *sharedStore) Settle(_ context.Context, key idem.Key, token idem.ClaimToken, s idem.Settlement) error {
	r, now := m.find(key)
	defer m.mu.Unlock()
	if r != nil && r.attempt > 1 && s.Outcome == idem.OutcomeFree {
		s.Outcome = idem.OutcomeUnknown
	}
	switch {
	case r == nil || r.claim.Token != token:
		return idem.ErrLost
	case r.settled != nil && (r.settled.Outcome != s.Outcome || string(r.settled.Payload) != string(s.Payload)):
		return idem.ErrSettled
	case r.settled != nil: // sent again
	case s.Outcome == idem.OutcomeFree:
		delete(m.records, key)
	default:
		r.settled, r.until = &s, now.Add(s.Retention)
	}
	return nil
}

func TestSharedStore(t *testing.T) {
	idemtest.Suite{Bubble: true, New: func(*testing.T) idem.Store { return newSharedStore() }}.Run(t)
}

func TestStateString(t *testing.T) {
	for value, want := range map[idem.State]string{
		idem.Claimed: "claimed", idem.InProgress: "in progress", idem.Done: "done", idem.Unknown: "unknown",
		idem.State(0): "State(0)", idem.State(5): "State(5)",
	} {
		if got := value.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
