package idem

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is a [Store] in the memory of one process. Its records are lost with
// the process, and two processes, each with its own Memory, may both run the
// same request. The zero Memory has the default options.
//
// Its room is a budget of bytes. Under pressure it removes expired records
// first. Then it evicts payloads: those requests are still known and are not
// run again, but their answer is only a summary ([Record.Retained]). Owner A
// loses a payload to owner B only while A holds more than B, and first the one
// that it used least recently.
//
// Claims, outcomes and summaries are never evicted. With them, one owner may
// fill at most a quarter of what the other owners leave free, so that no number
// of owners can shut out the next one. Beyond that Begin returns [ErrFull] with
// the time until the next record expires. An unexpired request is forgotten
// only with ForgetUnexpired. Settling a claim always succeeds: Begin reserves
// the room for it.
//
// Expired records are removed a few at a time by later calls of Begin, which
// gives back the memory of a peak; there is no goroutine and nothing to close.
type Memory struct {
	epoch   time.Time
	options MemoryOptions
	tokens  atomic.Uint64 // of its Runners

	mu           sync.Mutex
	entries      entryTable
	owners       map[string]*account
	withPayloads map[*account]struct{} // owners that have payloads to evict
	expiry       expiryQueue
	fixed        int64 // the part of stats.Bytes that cannot be evicted
	stats        MemoryStats
	warned       bool
}

// MemoryOptions are the settings of a [Memory]. The zero value of each field
// stands for its default.
type MemoryOptions struct {
	// Budget is how many bytes of live heap the store may take: payloads,
	// summaries, and 320 bytes a key. The default is 256 MiB. With a retention
	// of 24 hours and summaries of 100 bytes it keeps the answers of 320,000
	// creates a day whole if they take 400 bytes each, 180,000 of 1 KiB or
	// 25,000 of 10 KiB. One owner alone may create 155,000 times a day before
	// it is refused. One warning is logged at 80 %.
	Budget int64
	// Claims is how many claims may be in flight at once. One owner may hold a
	// quarter of those that the others leave. The default is 65,536.
	Claims int
	// ForgetUnexpired lets an owner without room forget its own least recently
	// used key instead of refusing new work. A repeat of a forgotten request
	// runs a second time; [MemoryStats] counts the forgotten keys.
	ForgetUnexpired bool
	// Logger gets the warning. The default is slog.Default().
	Logger *slog.Logger
}

// MemoryStats describes what a [Memory] holds, and what it evicted or refused.
type MemoryStats struct {
	Claims    int    // in flight, or never settled
	Whole     int    // settled, with the whole payload
	Evicted   int    // settled, the payload evicted
	Unknown   int    // settled as OutcomeUnknown
	Bytes     int64  // of Budget
	Forgotten uint64 // keys forgotten before their retention was over, since the start
	Refused   uint64 // calls of Begin answered with ErrFull, since the start
}

// NewMemory returns an empty Memory. It panics when an option is negative.
func NewMemory(o MemoryOptions) *Memory {
	if o.Budget < 0 || o.Claims < 0 {
		panic("idem: NewMemory with a negative option")
	}
	return &Memory{options: o}
}

func (m *Memory) lock() {
	m.mu.Lock()
	if m.owners != nil {
		return
	}
	m.epoch = time.Now()
	o := &m.options
	o.Budget, o.Claims, o.Logger = cmp.Or(o.Budget, 256<<20), cmp.Or(o.Claims, 65_536), cmp.Or(o.Logger, slog.Default())
	m.entries.numbers = make(map[Key]uint32)
	m.owners, m.withPayloads = make(map[string]*account), make(map[*account]struct{})
}

var _ Store = (*Memory)(nil)

// Begin implements [Store].
func (m *Memory) Begin(ctx context.Context, c Claim) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	if c.Lease <= 0 || c.Retention < c.Lease {
		return Record{}, fmt.Errorf("idem: a claim with a lease of %v and a retention of %v", c.Lease, c.Retention)
	}
	m.lock()
	now := m.now()
	// A Begin adds one entry at most. Removing two each time removes expired
	// entries faster than new ones are added.
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
		r.State, r.Attempt = Claimed, int(e.attempt)
	case e.held && now < e.leaseEnds:
		r.State = InFlight
		if e.leaseEnds != math.MaxInt64 { // a lease without end gives no hint
			r.RetryAfter = time.Duration(e.leaseEnds - now)
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

// claim records a claim of a new key.
func (m *Memory) claim(c *Claim, now int64) (Record, error) {
	a := m.account(c.Owner)
	a.entries++ // first, so that making room does not close the account
	if !m.admit(a, claimCost, now) {
		m.leave(a)
		return m.refuse(now)
	}
	e := m.entries.add(c.Key)
	e.fingerprint, e.owner = c.Fingerprint, a
	m.expiry.add(e.number)
	m.hold(e)
	m.charge(a, claimCost, 0)
	return m.give(e, c, now), nil
}

// takeOver gives a claim whose outcome is unknown to another token.
func (m *Memory) takeOver(e *entry, c *Claim, now int64) (Record, error) {
	if !e.held {
		// While it is off the lists, admit cannot forget this entry to make
		// room for it.
		m.unlist(e)
		more := claimCost - e.fixed()
		if !m.admit(e.owner, more, now) {
			m.list(e)
			return m.refuse(now)
		}
		m.charge(e.owner, more, 0)
		m.hold(e)
	}
	return m.give(e, c, now), nil
}

func (m *Memory) refuse(now int64) (Record, error) {
	m.stats.Refused++
	return Record{RetryAfter: m.expiry.next(now)}, ErrFull
}

// hold counts an entry as a claim in flight. admit has made the room.
func (m *Memory) hold(e *entry) {
	e.held = true
	e.owner.claims++
	m.stats.Claims++
}

func (m *Memory) unhold(e *entry) {
	e.held = false
	e.owner.claims--
	m.stats.Claims--
}

// give gives a held entry the token of c, which holds the claim from now on.
func (m *Memory) give(e *entry, c *Claim, now int64) Record {
	e.token = c.Token
	e.attempt++
	m.renew(e, c, now)
	return Record{State: Claimed, Fingerprint: e.fingerprint, Attempt: int(e.attempt)}
}

func (m *Memory) renew(e *entry, c *Claim, now int64) {
	e.leaseEnds = after(now, c.Lease)
	m.expiry.move(e.number, after(now, c.Retention))
}

// Extend implements [Store].
func (m *Memory) Extend(ctx context.Context, key Key, token ClaimToken, lease time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if lease <= 0 {
		return fmt.Errorf("idem: a lease of %v", lease)
	}
	m.lock()
	defer m.unlock()
	now := m.now()
	e := m.find(key, now)
	if e == nil || !e.held || e.token != token {
		return ErrLost
	}
	e.leaseEnds = after(now, lease)
	if m.expiry.at(e.number) < e.leaseEnds {
		m.expiry.move(e.number, e.leaseEnds)
	}
	return nil
}

// Settle implements [Store]. The slices of s are kept, not copied, unless they
// are small parts of large buffers.
func (m *Memory) Settle(ctx context.Context, key Key, token ClaimToken, s Settlement) error {
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

	m.lock()
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

// settle turns a held entry into a settled one, with as much of the answer as
// there is room for.
func (m *Memory) settle(e *entry, s *Settlement, now int64) {
	m.unhold(e)
	e.outcome, e.retained, e.summary = s.Outcome, true, s.Summary
	if !m.makeRoom(e.owner, e.fixed()-claimCost, now) {
		e.summary = nil // it is longer than what Begin reserved
	}
	m.charge(e.owner, e.fixed()-claimCost, 0)
	if size := int64(cap(s.Payload)); m.makeRoom(e.owner, size, now) {
		e.payload = s.Payload
		m.charge(e.owner, 0, size)
	} else {
		e.retained = false
	}
	m.list(e)
	m.expiry.move(e.number, after(now, s.Retention))
}

// fitted returns b, or a copy of it when b leaves much of its buffer unused. The
// whole buffer stays in memory, so that is what its owner is charged for.
func fitted(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	if cap(b) > len(b)+len(b)/8+64 {
		return slices.Clone(b)
	}
	return b
}

// find returns the entry of a key unless it has expired. Finding a settled
// entry makes it the most recently used one.
func (m *Memory) find(key Key, now int64) *entry {
	number, has := m.entries.numbers[key]
	if !has {
		return nil
	}
	e := m.entries.at(number)
	switch {
	case m.expiry.at(number) <= now:
		m.drop(e)
		return nil
	case !e.held:
		l := e.owner.list(e)
		m.entries.unlink(l, e)
		m.entries.push(l, e)
	}
	return e
}

// drop forgets an entry.
func (m *Memory) drop(e *entry) {
	m.expiry.remove(e.number)
	m.charge(e.owner, -e.fixed(), -int64(cap(e.payload)))
	if e.held {
		m.unhold(e)
	} else {
		m.unlist(e)
	}
	m.leave(e.owner)
	m.entries.remove(e)
}

// Stats returns what the store holds. Expired records count until they are
// removed.
func (m *Memory) Stats() MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// unlock compacts, releases the lock, and then logs: a Logger may be slow, or
// may call the store.
func (m *Memory) unlock() {
	m.compact()
	warn, used := m.nearlyFull(), m.stats.Bytes
	m.mu.Unlock()
	if warn {
		// A Logger that panics must not lose the claim that was just made.
		defer func() { _ = recover() }()
		m.options.Logger.Warn("the store of idempotent requests is nearly full; it will keep summaries in place of answers, then refuse new requests",
			"bytes", used, "budget", m.options.Budget)
	}
}

// now is monotonic: setting the machine's clock moves no lease and no
// retention.
func (m *Memory) now() int64 { return int64(time.Since(m.epoch)) }

// after adds, and saturates for a retention that is meant to have no end.
func after(now int64, d time.Duration) int64 {
	if int64(d) > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + int64(d)
}
