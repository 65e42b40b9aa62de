package idem

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem/internal/token"
)

// Memory is a [Counter] in the memory of one process. Its records are lost with
// the process, and all that was charged, and two processes, each with its own
// Memory, may both run the same request. The zero Memory is ready to use. Set its fields before: one that
// is zero or less stands for its default.
//
// When the budget is used up, expired records go first. Then the tenant that
// holds most makes room: the bodies of its replies become summaries
// ([Record.Retained]), then its records go, those first that were settled first.
// Bodies younger than MinRetention go last, unless they take more than half of
// what the tenant holds. So no tenant can push out what belongs to another that
// holds less, and tenants of one size share.
//
// Claims and records younger than MinRetention are never forgotten: a repeat
// within it never runs a second time. If Begin finds no others, of the tenant
// itself and of up to 32 large tenants with the largest among them, it returns
// [ErrFull], and also if the tenant would leave free less than a sixteenth of
// what it holds: a flood of young records leaves room to others. Settling a claim
// always succeeds, since Begin reserves the room.
//
// Later calls of Begin remove expired records, a few at a time, which gives back
// the memory of a peak. There is no goroutine and nothing to close.
//
// Units are counted by account and UTC day, beside the Budget: see [Memory.Used]
// and [Memory.Charges] for what is kept. Setting the machine's clock moves none to
// another day.
type Memory struct {
	// Budget is how many bytes of live heap the store may take: bodies,
	// summaries, and 300 bytes a key. One tenant alone can use sixteen
	// seventeenths of it: of the default, with summaries of 100 bytes, 350,000
	// replies of 320 bytes, or 630,000 summaries.
	//
	// While longer replies take the place of short ones, the room of up to three
	// quarters of the records is not given back yet: with summaries of nearly
	// 1 KiB after none it was 1.6 times the Budget, with bodies 1.2 times.
	//
	// The default is 256 MiB.
	Budget int64
	// MinRetention is how long the record of a settled claim is kept in any
	// case. A Memory with one as long as the retention forgets nothing, and
	// refuses new requests when it is full. The default is one minute, for which
	// the default Budget suffices up to 10,000 creates a second.
	MinRetention time.Duration
	// Logger gets a warning when records are forgotten before their retention
	// is over, at most once an hour. The default is slog.Default().
	Logger *slog.Logger

	epoch        time.Time
	budget       int64
	minRetention time.Duration

	mu       sync.Mutex
	entries  entryTable
	seed     maphash.Seed
	accounts map[uint64]*account // by the hash of the tenant's name, which may be long
	expiry   queue[uint32]       // the entry that expires first comes first
	largest  queue[*account]     // the tenant that holds most comes first
	stats    MemoryStats
	lost     time.Duration // the retention of what was forgotten, if a warning is due
	nextWarn int64
	usages   map[Account]*usage
	final    []Charge // the last ones that are not acknowledged, in the order of their numbers
	charges  int64    // the last number
}

// MemoryStats describes what a [Memory] holds, and what it has forgotten.
type MemoryStats struct {
	Keys      int           // claims in progress or never settled, and records
	Bytes     int64         // of Budget
	Forgotten uint64        // records that were dropped before their retention ended
	Kept      time.Duration // the age of the last one that was; 0 if there was none
}

func (m *Memory) lock() {
	m.mu.Lock()
	if m.accounts != nil {
		return
	}
	m.epoch = time.Now()
	m.budget, m.minRetention = cmp.Or(max(m.Budget, 0), 256<<20), cmp.Or(max(m.MinRetention, 0), time.Minute)
	m.entries.numbers, m.accounts = make(map[Key]uint32), make(map[uint64]*account)
	m.seed = maphash.MakeSeed()
	m.expiry.place = func(number uint32) *uint32 { return &m.entries.at(number).place }
	m.largest.place = func(a *account) *uint32 { return &a.place }
}

var (
	_ Counter = (*Memory)(nil)
	_ Eraser  = (*Memory)(nil)
)

// Begin implements [Store]. It returns at once, so no method looks at its
// context.
func (m *Memory) Begin(_ context.Context, c Claim) (Record, error) {
	if c.Lease <= 0 || c.Retention < c.Lease || c.Units < 0 {
		return Record{}, fmt.Errorf("idem: a claim with a lease of %v, a retention of %v and %d units",
			c.Lease, c.Retention, c.Units)
	}
	m.lock()
	defer m.unlock()
	now := m.now()
	// A Begin adds one entry at most. Removing two each time removes expired
	// entries faster than new ones are added.
	m.dropExpired(now)
	m.dropExpired(now)
	e := m.find(c.Key, now)
	if e == nil {
		return m.claim(&c, now)
	}
	r := Record{Fingerprint: e.fingerprint}
	switch {
	case e.held && e.token == c.Token && e.leaseEnds != told:
		m.expiry.move(e.number, after(now, c.Retention))
		e.leaseEnds = after(now, c.Lease)
		r.State, r.Attempt = Claimed, int(e.attempt)
	case e.held && now < e.leaseEnds:
		r.State = InProgress
		if e.leaseEnds != math.MaxInt64 { // a lease without end gives no hint
			r.RetryAfter = time.Duration(e.leaseEnds - now)
		}
	case !e.held && e.outcome == OutcomeDone:
		r.State, r.Payload, r.Retained = Done, e.payload, e.retained
		if !e.retained {
			r.Payload = e.summary
		}
	case c.Reexecute && e.fingerprint == c.Fingerprint:
		return m.takeOver(e, &c, now)
	default:
		r.State = Unknown
		if e.held {
			e.leaseEnds = told
		}
	}
	return r, nil
}

// told is when the lease of a claim ends that somebody was told is Unknown.
const told = math.MinInt64

// claim records a claim of a new key.
func (m *Memory) claim(c *Claim, now int64) (Record, error) {
	e := m.entries.add(c.Key)
	e.fingerprint, e.tenant = c.Fingerprint, m.account(c)
	e.tenant.entries++
	e.held = true
	m.expiry.add(e.number, after(now, c.Retention))
	m.charge(e.tenant, claimCost)
	if !m.makeRoom(e.tenant, now) {
		m.drop(e)
		return Record{}, ErrFull
	}
	return m.give(e, c, now), nil
}

// takeOver gives an entry with an unknown outcome to c.
func (m *Memory) takeOver(e *entry, c *Claim, now int64) (Record, error) {
	if !e.held {
		m.unlist(e)
		before := e.cost()
		e.held = true
		m.charge(e.tenant, claimCost-before)
		if !m.makeRoom(e.tenant, now) {
			m.charge(e.tenant, before-claimCost)
			e.held, e.settled = false, now // the newest of the list
			m.list(e)
			return Record{}, ErrFull
		}
	}
	m.expiry.move(e.number, after(now, c.Retention))
	return m.give(e, c, now), nil
}

// give gives a held entry the token of c, which holds the claim from now on.
func (m *Memory) give(e *entry, c *Claim, now int64) Record {
	e.token, e.leaseEnds = c.Token, after(now, c.Lease)
	e.attempt++
	m.open(e, c, now)
	return Record{State: Claimed, Fingerprint: e.fingerprint, Attempt: int(e.attempt)}
}

// Extend implements [Store].
func (m *Memory) Extend(_ context.Context, key Key, token ClaimToken, lease time.Duration) error {
	if lease <= 0 {
		return fmt.Errorf("idem: a lease of %v", lease)
	}
	m.lock()
	defer m.unlock()
	now := m.now()
	e := m.find(key, now)
	if e == nil || !e.held || e.token != token || e.leaseEnds == told {
		return ErrLost
	}
	e.leaseEnds = after(now, lease)
	m.expiry.move(e.number, max(m.expiry.rank(e.number), e.leaseEnds))
	return nil
}

// Settle implements [Store]. The slices of s are kept, not copied, unless they
// are small parts of large buffers.
func (m *Memory) Settle(_ context.Context, key Key, token ClaimToken, s Settlement) error {
	switch {
	case s.Outcome > OutcomeFree:
		return fmt.Errorf("idem: a settlement as %v", s.Outcome)
	case s.Retention <= 0, s.Units < 0:
		return fmt.Errorf("idem: a settlement with a retention of %v and %d units", s.Retention, s.Units)
	case s.Outcome != OutcomeDone:
		s.Payload, s.Summary = nil, nil
	}
	s.Payload, s.Summary = fitted(s.Payload), fitted(s.Summary)

	m.lock()
	defer m.unlock()
	now := m.now()
	e := m.find(key, now)
	if e != nil && e.attempt > 1 && s.Outcome == OutcomeFree {
		s.Outcome = OutcomeUnknown
	}
	switch {
	case e == nil || e.token != token:
		return ErrLost
	case !e.held && e.settledAs(&s):
		return nil
	case !e.held:
		return ErrSettled
	case s.Outcome == OutcomeFree:
		m.discard(e)
		m.drop(e)
	default:
		m.settle(e, &s, now)
	}
	return nil
}

// settle turns a held entry into a settled one, with as much of the reply as
// there is room for.
func (m *Memory) settle(e *entry, s *Settlement, now int64) {
	e.held = false
	e.outcome, e.settled, e.summary = s.Outcome, now, s.Summary
	// A longer body would push out all others of its tenant, and then itself.
	if e.retained = int64(cap(s.Payload)) <= m.budget/2; e.retained {
		e.payload = s.Payload
	}
	if s.Outcome == OutcomeDone {
		m.conclude(e, s.Units, false)
	} else if e.use != nil {
		e.use.units = s.Units
	}
	m.list(e)
	m.expiry.move(e.number, after(now, s.Retention))
	m.charge(e.tenant, e.cost()-claimCost)
	if !m.makeRoom(e.tenant, now) && e.cost() > claimCost {
		m.charge(e.tenant, -cap(e.summary)) // it is longer than what Begin reserved
		e.summary = nil
	}
}

// fitted returns b, or a copy of it when b leaves much of its buffer unused.
// The whole buffer stays in memory, so that is what its tenant is charged for.
func fitted(b []byte) []byte {
	if cap(b) > len(b)+len(b)/8+64 || len(b) == 0 {
		return append([]byte(nil), b...)
	}
	return b
}

// find returns the entry of a key unless it has expired.
func (m *Memory) find(key Key, now int64) *entry {
	number, known := m.entries.numbers[key]
	if !known {
		return nil
	}
	e := m.entries.at(number)
	if m.expiry.rank(number) <= now {
		m.drop(e)
		return nil
	}
	return e
}

// Erase implements [Eraser]. It looks at the records one by one, and other calls
// wait for it. What the organization was charged for stays, but for its uncertain
// charges.
func (m *Memory) Erase(_ context.Context, organization string) (removed int, err error) {
	m.lock()
	defer m.unlock()
	prefix := token.Prefix(organization)
	for _, number := range m.entries.numbers {
		if e := m.entries.at(number); e.tenant.prefix == prefix {
			if !e.held { // what is held costs no more for its use
				m.charge(e.tenant, -e.use.cost())
			}
			m.discard(e)
			m.drop(e)
			removed++
		}
	}
	return removed, nil
}

// Stats returns what the store holds. Expired records count until they are
// removed.
func (m *Memory) Stats() MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Keys = len(m.entries.numbers)
	return m.stats
}

// unlock compacts, releases the lock, and then logs: a Logger may be slow, or
// may call the store.
func (m *Memory) unlock() {
	m.compact()
	retention, kept, budget := m.lost, m.stats.Kept, m.budget
	m.lost = 0
	m.mu.Unlock()
	if retention == 0 {
		return
	}
	// A Logger that panics must not lose the claim that was just made.
	defer func() { _ = recover() }()
	cmp.Or(m.Logger, slog.Default()).Warn(
		"the reply store forgets records before their retention is over: a repeat after that runs again",
		"kept", kept, "retention", retention, "budget", budget,
		"budget_needed", int64(min(float64(budget)*float64(retention)/float64(kept), 1<<60)))
}

// now is monotonic: setting the machine's clock moves no lease and no
// retention.
func (m *Memory) now() int64 { return int64(time.Since(m.epoch)) }

// after adds, and saturates for a retention that is meant to have no end.
func after(now int64, d time.Duration) int64 { return now + min(int64(d), math.MaxInt64-now) }
