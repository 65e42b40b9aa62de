package idem

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

var _ Store = (*Memory)(nil)

// Begin implements [Store].
func (m *Memory) Begin(ctx context.Context, c Claim) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	if c.Lease <= 0 || c.Retention < c.Lease {
		return Record{}, fmt.Errorf("idem: a claim with a lease of %v and a retention of %v", c.Lease, c.Retention)
	}
	m.mu.Lock()
	now := m.now()
	// A Begin adds one entry at most; taking away two keeps ahead of those that nobody touches any more.
	m.dropExpired(now)
	m.dropExpired(now)
	r, err := m.begin(&c, now)
	m.unlock()
	return r, err
}

func (m *Memory) begin(c *Claim, now int64) (Record, error) {
	e := m.find(c.Key, now)
	if e == nil {
		return m.claim(c, now)
	}
	r := Record{Fingerprint: e.fingerprint}
	switch {
	case e.held && e.token == c.Token:
		m.renew(e, c, now)
		r.State, r.Attempt = Claimed, e.attempt
	case e.held && now < e.lease:
		r.State = InFlight
		if e.lease != math.MaxInt64 { // which is no hint for when to come back
			r.LeaseLeft = time.Duration(e.lease - now)
		}
	case !e.held && e.outcome == Finished:
		r.State, r.Payload, r.Retained = Done, e.payload, e.retained
		if !e.retained {
			r.Payload = e.summary
		}
	case c.Reexecute && e.fingerprint == c.Fingerprint:
		return m.takeOver(e, c, now)
	default:
		r.State = Unknown
	}
	return r, nil
}

func (m *Memory) claim(c *Claim, now int64) (Record, error) {
	p, err := m.admit(c.Key.Partition, claimCost, now)
	if err != nil {
		return Record{}, err
	}
	e := &entry{key: c.Key, fingerprint: c.Fingerprint, home: p}
	m.expiries.add(e, after(now, c.Retention))
	m.hold(e)
	return m.give(e, c, now), nil
}

func (m *Memory) takeOver(e *entry, c *Claim, now int64) (Record, error) {
	if e.held {
		return m.give(e, c, now), nil
	}
	// Off its shelf the entry cannot be forgotten to make room for itself.
	m.unshelve(e)
	if _, err := m.admit(c.Key.Partition, claimCost-e.cost, now); err != nil {
		m.shelve(e)
		return Record{}, err
	}
	m.hold(e)
	return m.give(e, c, now), nil
}

// give makes c's the token of a held entry.
func (m *Memory) give(e *entry, c *Claim, now int64) Record {
	e.token = c.Token
	e.attempt++
	m.renew(e, c, now)
	return Record{State: Claimed, Fingerprint: e.fingerprint, Attempt: e.attempt}
}

func (m *Memory) renew(e *entry, c *Claim, now int64) {
	e.lease = after(now, c.Lease)
	m.expiries.move(e, after(now, c.Retention))
}

// Extend implements [Store].
func (m *Memory) Extend(ctx context.Context, key Key, token Token, lease time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if lease <= 0 {
		return fmt.Errorf("idem: a lease of %v", lease)
	}
	m.mu.Lock()
	defer m.unlock()
	now := m.now()
	e := m.find(key, now)
	if e == nil || !e.held || e.token != token {
		return ErrLost
	}
	e.lease = after(now, lease)
	if m.expiries.at(e) < e.lease {
		m.expiries.move(e, e.lease)
	}
	return nil
}

// Settle implements [Store]. The slices of s are kept, not copied, unless they are small parts of large buffers.
func (m *Memory) Settle(ctx context.Context, key Key, token Token, s Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case s.Outcome > NotStarted:
		return fmt.Errorf("idem: a settlement as %v", s.Outcome)
	case s.Outcome != NotStarted && s.Retention <= 0:
		return fmt.Errorf("idem: a settlement with a retention of %v", s.Retention)
	case s.Outcome != Finished:
		s.Payload, s.Summary = nil, nil
	}
	s.Payload, s.Summary = fitted(s.Payload), fitted(s.Summary)

	m.mu.Lock()
	defer m.unlock()
	now := m.now()
	e := m.find(key, now)
	switch {
	case e == nil || e.token != token:
		return ErrLost
	case !e.held && e.settledAs(&s):
		return nil
	case !e.held:
		return ErrSettled
	case s.Outcome == NotStarted:
		m.drop(e)
	default:
		m.settle(e, &s, now)
	}
	return nil
}

// settle turns a held entry into a settled one, as whole as there is room for.
func (m *Memory) settle(e *entry, s *Settlement, now int64) {
	short := entryCost + int64(len(s.Summary))
	cost := short + int64(len(s.Payload))
	e.outcome, e.retained, e.payload, e.summary = s.Outcome, true, s.Payload, s.Summary
	if !m.makeRoom(e.home, cost-e.cost, now) {
		e.payload, e.retained, cost = nil, false, short
		if !m.makeRoom(e.home, cost-e.cost, now) {
			e.summary, cost = nil, entryCost
		}
	}
	m.recharge(e, cost)
	m.shelve(e)
	m.letGo(e)
	m.expiries.move(e, after(now, s.Retention))
}

// fitted returns b in no more room than it is charged for: a slice may be a small part of a large buffer.
func fitted(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	if cap(b) > len(b)+len(b)/8+64 {
		return slices.Clone(b)
	}
	return b
}
