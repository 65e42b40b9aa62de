package idemtest_test

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/token"
)

// model is the contract of idem.Store and idem.Joiner in its shortest form,
// with a clock that the test moves, and with flaws by name.
type model struct {
	mu      sync.Mutex
	now     time.Duration
	records map[idem.Key]*modelRecord
	open    map[idem.Key]struct{} // held by transactions
	rows    []string              // that transactions have committed
	kept    int                   // turns that never come back
	sums    []idem.Charge         // all that are final
	charges []idem.Charge         // those of them that are not acknowledged
	numbers int64
	read    bool // the charges were
	flaw    string
}

type modelRecord struct {
	token          idem.ClaimToken
	fingerprint    [32]byte
	attempt        int
	held           bool
	outcome        idem.Outcome
	payload        []byte
	lease, expires time.Duration
	told           bool // that it is unknown, while held
	use            *modelUse
	renewed        bool
}

func newModel(flaw string) *model {
	return &model{records: make(map[idem.Key]*modelRecord), open: make(map[idem.Key]struct{}), flaw: flaw}
}

func (m *model) advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now += d
}

func (m *model) has(flaw string) bool { return m.flaw == flaw }

func (m *model) key(k idem.Key) idem.Key {
	switch {
	case m.has("takes all keys for one"):
		k = idem.Key{}
	case m.has("cuts keys at 16 bytes"):
		clear(k[16:])
	case m.has("cuts keys at a zero byte"):
		if i := strings.IndexByte(string(k[:]), 0); i >= 0 {
			clear(k[i:])
		}
	}
	return k
}

func (m *model) find(k idem.Key) *modelRecord {
	r := m.records[m.key(k)]
	if r != nil && r.expires <= m.now && !m.has("never forgets") {
		m.expire(r)
		delete(m.records, m.key(k))
		return nil
	}
	return r
}

// pause lets others in between a read and a write.
func (m *model) pause(flaw string) {
	if m.has(flaw) {
		m.mu.Unlock()
		time.Sleep(time.Millisecond)
		m.mu.Lock()
	}
}

func (m *model) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	if ctx.Err() != nil && m.has("answers a dead context with a refusal") {
		return idem.Record{}, idem.ErrFull
	}
	if ctx.Err() != nil && !m.has("claims for a dead context by a token of its own") {
		return idem.Record{}, ctx.Err()
	} else if ctx.Err() != nil {
		rand.Read(c.Token[:])
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begin(c), nil
}

// begin is Begin for who holds the lock.
func (m *model) begin(c idem.Claim) idem.Record {
	r := m.find(c.Key)
	m.pause("reads, then claims")
	if r != nil && r.held && m.now >= r.lease && m.has("erases what has lapsed") {
		r = nil
	}
	if r == nil {
		if m.has("refuses new keys") {
			return idem.Record{State: idem.Unknown}
		}
		r = &modelRecord{fingerprint: c.Fingerprint}
		if m.has("forgets fingerprints") {
			r.fingerprint = [32]byte{}
		}
		if !m.has("reads, then claims") || m.records[m.key(c.Key)] == nil {
			m.records[m.key(c.Key)] = r
		}
		return m.grant(r, c)
	}
	same := r.held && r.token == c.Token && (!r.told || m.has("grants again to who holds what is unknown"))
	switch {
	case same && !m.has("does not know its own token") &&
		!(m.has("knows its own token only while the lease is live") && m.now >= r.lease):
		r.attempt--
		if m.has("counts a resent Begin as an attempt") {
			r.attempt++
		}
		lease, expires, use := r.lease, r.expires, r.use
		m.grant(r, c)
		r.use = use
		if m.has("does not renew for a resent Begin") {
			r.lease = lease
		}
		if m.has("does not remember longer for a resent Begin") {
			r.expires = expires
		}
		return idem.Record{State: idem.Claimed, Fingerprint: r.fingerprint, Attempt: r.attempt}
	case r.held && m.now < r.lease && !(c.Reexecute && m.has("takes over what is live")):
		left := r.lease - m.now
		if m.has("does not say what is left of the lease") {
			left = 0
		}
		if m.has("says the asker's lease") {
			left = c.Lease
		}
		fingerprint := r.fingerprint
		if m.has("answers with the asker's fingerprint") {
			fingerprint = c.Fingerprint
		}
		return idem.Record{State: idem.InProgress, Fingerprint: fingerprint, RetryAfter: left}
	case !r.held && r.outcome == idem.OutcomeDone && !(c.Reexecute && m.has("takes over what is done")):
		if len(r.payload) == 0 && m.has("takes no payload for no answer") {
			return idem.Record{State: idem.Unknown, Fingerprint: r.fingerprint}
		}
		return idem.Record{State: idem.Done, Fingerprint: r.fingerprint, Payload: r.payload,
			Retained: !m.has("does not say that it is whole")}
	case c.Reexecute && (r.fingerprint == c.Fingerprint || m.has("lets any request take over")) &&
		!(m.has("does not take over")):
		if m.has("takes over lapsed claims only") && !r.held {
			break
		}
		m.pause("reads, then takes over")
		return m.grant(r, c)
	}
	if m.has("runs again what is unknown") {
		return m.grant(r, c)
	}
	m.pause("says unknown, then marks")
	r.told = !m.has("renews what is unknown")
	return idem.Record{State: idem.Unknown, Fingerprint: r.fingerprint}
}

func (m *model) grant(r *modelRecord, c idem.Claim) idem.Record {
	if !m.has("keeps the old token at a take-over") || r.attempt == 0 {
		r.token = c.Token
	}
	r.held, r.told = true, m.has("never renews what was unknown") && r.told
	r.attempt++
	if m.has("always says attempt 1") {
		r.attempt = 1
	}
	if r.expires == 0 || !m.has("does not remember longer for a take-over") {
		r.expires = m.now + c.Retention
	}
	r.lease = m.now + c.Lease
	if m.has("forgets a claim with its lease") {
		r.expires = r.lease
	}
	if m.has("mixes up lease and retention") {
		r.lease = r.expires
	}
	m.newUse(c, r)
	return idem.Record{State: idem.Claimed, Fingerprint: r.fingerprint, Attempt: r.attempt}
}

func (m *model) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	if ctx.Err() != nil && m.has("extends nothing for a dead context, and says lost") {
		return idem.ErrLost
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.find(key)
	switch {
	case r == nil && m.has("extends what is not there"):
		m.records[m.key(key)] = &modelRecord{token: token, held: true, lease: m.now + lease, expires: m.now + lease}
		return nil
	case r == nil:
		return idem.ErrLost
	case r.token != token && !m.has("extends for any token"), r.told:
		return idem.ErrLost
	case !r.held && m.has("extends what is settled"):
		r.held = true
	case !r.held:
		return idem.ErrLost
	case m.now >= r.lease && m.has("does not extend what has lapsed"):
		return idem.ErrLost
	case m.has("extends nothing"):
		return nil
	}
	r.lease, r.renewed = m.now+lease, true
	if !m.has("lets the retention end a live lease") {
		r.expires = max(r.expires, r.lease)
	}
	return nil
}

func (m *model) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, s idem.Settlement) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.find(key)
	var holder idem.ClaimToken
	if r != nil {
		holder = r.token
	}
	m.pause("reads, then settles")
	took := r != nil && holder == token && r.attempt > 1 && !m.has("frees what was taken over")
	if took && s.Outcome == idem.OutcomeFree {
		s.Outcome = idem.OutcomeUnknown
	}
	if r != nil && holder != token && (m.has("charges what it refuses") ||
		r.attempt > 1 && m.has("charges what it refuses because of a take-over")) {
		m.charge(r.use, s.Units, false)
	}
	switch {
	case r == nil && m.has("settles what is not there") && s.Outcome != idem.OutcomeFree:
		r = &modelRecord{token: token, held: true}
		m.records[m.key(key)] = r
	case r == nil && m.has("takes nothing there for freed"):
		return nil
	case r == nil:
		return idem.ErrLost
	case holder != token && m.has("settles for any token"):
	case holder != token && s.Outcome == idem.OutcomeFree && m.has("frees for any token"):
	case holder != token:
		return idem.ErrLost
	case r.held && m.now >= r.lease && s.Outcome == idem.OutcomeDone && m.has("does not settle what has lapsed"):
		return idem.ErrLost
	case r.held && m.now >= r.lease && s.Outcome == idem.OutcomeFree && m.has("does not free what has lapsed"):
		return idem.ErrLost
	case !r.held && m.has("settles once only"):
		return idem.ErrSettled
	case !r.held && m.has("settles as often as it is told"):
	case !r.held && r.outcome == s.Outcome && string(r.payload) == string(s.Payload):
		if m.has("charges what is settled again") {
			m.charge(r.use, s.Units, false)
		}
		if m.has("tells nil from empty") && (r.payload == nil) != (s.Payload == nil) {
			return idem.ErrSettled
		}
		return nil
	case !r.held:
		return idem.ErrSettled
	}
	if s.Outcome == idem.OutcomeFree {
		if m.has("charges what is freed") {
			m.charge(r.use, s.Units, false)
		}
		if m.has("keeps what was freed") {
			r.held, r.outcome = false, idem.OutcomeUnknown
			return nil
		}
		delete(m.records, m.key(key))
		return nil
	}
	late := r.held && m.now >= r.lease
	r.held, r.outcome, r.payload = false, s.Outcome, s.Payload
	switch {
	case r.use == nil: // what Extend found nowhere
	case s.Outcome == idem.OutcomeUnknown && !m.has("charges the claim's units when it is unknown"):
		r.use.units = s.Units
	case s.Outcome == idem.OutcomeDone:
		if m.has("charges the claim's units") {
			s.Units = r.use.units
		}
		if late && m.has("charges a late reply twice") {
			m.charge(r.use, r.use.units, true)
		}
		m.charge(r.use, s.Units, false)
	}
	switch {
	case m.has("cuts payloads at 64 KiB"):
		r.payload = r.payload[:min(len(r.payload), 64<<10)]
	case m.has("keeps payloads as text"):
		r.payload = []byte(strings.ToValidUTF8(string(r.payload), "?"))
	case m.has("keeps payloads as Summaries"):
		r.payload = s.Summary
	case m.has("takes unknown for freed") && s.Outcome == idem.OutcomeUnknown:
		delete(m.records, m.key(key))
		return nil
	}
	expires := m.now + s.Retention
	switch {
	case m.has("keeps the claim's retention"):
	case m.has("never shortens a retention"):
		r.expires = max(r.expires, expires)
	default:
		r.expires = expires
	}
	return nil
}

func (m *model) Erase(ctx context.Context, organization string) (removed int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	prefix := token.Prefix(organization)
	for k, r := range m.records {
		others := [8]byte(r.token[:]) != prefix && !(m.has("erases the replies of all") && len(r.payload) > 0)
		if others || m.has("erases nothing") || r.held && m.has("erases replies only") {
			continue
		}
		if r.held && m.has("charges held claims that it erases") {
			r.lease = m.now
			m.expire(r)
		}
		if m.has("charges uncertain claims that it erases") {
			m.expire(r)
		}
		delete(m.records, k)
		removed++
	}
	return removed, nil
}
