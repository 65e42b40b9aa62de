package idem

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"
)

// Memory is a [Store] in the memory of one process: what it knows ends with the process, and two processes with a Memory each
// do not keep each other from running the same request. NewMemory makes one; the zero Memory is not usable.
//
// Its room is a budget of bytes. Under pressure it first drops what has expired. Then it gives up payloads, least recently used
// first: those requests are still known and still not run again, but their answer is only a summary ([Record.Retained]). When
// that is not enough, Begin answers [ErrFull]. It forgets a request whose retention is not over only with ForgetUnexpired. A
// claim in flight is never given up for anything, and settling one always succeeds: Begin sets aside the room for it.
//
// One partition cannot take another's place. None gets more than its Share, and none loses a key to another. It loses a payload
// to another only while it holds more than the other does.
//
// What has expired is removed a little at a time by later calls of Begin; there is no goroutine and nothing to close.
type Memory struct {
	epoch   time.Time
	options MemoryOptions

	mu         sync.Mutex
	claims     map[Key]*entry
	partitions map[Sum]*partition
	expiries   expiryQueue
	stats      MemoryStats
	warned     bool
}

// MemoryOptions are the settings of a [Memory]. The zero value of each field stands for its default.
type MemoryOptions struct {
	// Budget is how many bytes the store may take, live ones as the garbage collector counts them: payloads, summaries, and 448
	// bytes a key. The default is 256 MiB. With a retention of 24 hours and summaries of 100 bytes that is 280,000 creates a
	// day whose answers take 400 bytes, 170,000 of 1 KiB or 25,000 of 10 KiB, all of them kept whole, and 480,000 of any size
	// before work is refused; one partition may have a quarter of that. One warning is logged at 80 %.
	Budget int64
	// Share is how many of those bytes one partition may take. The default is a quarter of Budget.
	Share int64
	// Claims is how many claims may be in flight at once, and one partition may hold a quarter of them. The default is 65,536.
	Claims int
	// ForgetUnexpired lets a partition without room forget its own least recently used key, rather than refuse new work. A
	// repeat of a forgotten request runs a second time; [MemoryStats] counts what was forgotten.
	ForgetUnexpired bool
	// Logger gets the warning. The default is slog.Default().
	Logger *slog.Logger
}

// MemoryStats is what a [Memory] holds, and what it did for want of room.
type MemoryStats struct {
	Claims    int    // in flight, or never settled
	Whole     int    // settled, with all of the payload
	Shortened int    // settled, the payload given up
	Unknown   int    // settled as OutcomeUnknown
	Bytes     int64  // of Budget
	Forgotten uint64 // keys forgotten before their retention was over, since the start
	Refused   uint64 // calls of Begin answered with ErrFull, since the start
}

// NewMemory returns an empty Memory. It panics when an option is negative or Share exceeds Budget.
func NewMemory(o MemoryOptions) *Memory {
	if o.Budget < 0 || o.Share < 0 || o.Claims < 0 {
		panic("idem: NewMemory with a negative option")
	}
	if o.Budget == 0 {
		o.Budget = 256 << 20
	}
	if o.Share == 0 {
		o.Share = o.Budget / 4
	}
	if o.Share > o.Budget {
		panic("idem: NewMemory with a Share that exceeds the Budget")
	}
	if o.Claims == 0 {
		o.Claims = 65_536
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Memory{
		epoch:      time.Now(),
		options:    o,
		claims:     make(map[Key]*entry),
		partitions: make(map[Sum]*partition),
	}
}

var _ Store = (*Memory)(nil)

// Stats returns what the store holds. What has expired counts until it is removed.
func (m *Memory) Stats() MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Claims = len(m.claims)
	return s
}

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
		r.State, r.LeaseLeft = InFlight, time.Duration(e.lease-now)
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

// find returns the entry of a key unless its time has come.
func (m *Memory) find(key Key, now int64) *entry {
	e := m.claims[key]
	if e == nil {
		if p := m.partitions[key.Partition]; p != nil {
			e = p.find(key.Digest)
		}
	}
	if e != nil && m.expiries.at(e) <= now {
		m.drop(e)
		return nil
	}
	return e
}

// hold puts an entry among the claims, where nothing is given up. admit has counted it.
func (m *Memory) hold(e *entry) {
	e.held = true
	m.claims[e.key] = e
	m.recharge(e, claimCost)
}

// letGo takes an entry from the claims.
func (m *Memory) letGo(e *entry) {
	e.held = false
	delete(m.claims, e.key)
	m.dismiss(e.home)
}

// shelve puts a settled entry among those that may be given up.
func (m *Memory) shelve(e *entry) {
	e.home.add(e)
	*m.count(e)++
}

func (m *Memory) unshelve(e *entry) {
	e.home.remove(e)
	*m.count(e)--
}

func (m *Memory) count(e *entry) *int {
	switch {
	case e.outcome == OutcomeUnknown:
		return &m.stats.Unknown
	case e.retained:
		return &m.stats.Whole
	}
	return &m.stats.Shortened
}

// drop forgets an entry.
func (m *Memory) drop(e *entry) {
	m.expiries.remove(e)
	m.recharge(e, 0)
	if e.held {
		m.letGo(e)
		return
	}
	m.unshelve(e)
	m.discardEmpty(e.home)
}

// unlock logs after it let go of the lock: a Logger may do anything, and take its time.
func (m *Memory) unlock() {
	warn, used := m.nearlyFull(), m.stats.Bytes
	m.mu.Unlock()
	if warn {
		m.options.Logger.Warn("the store of idempotent requests is nearly full; answers will be shortened, then new work refused",
			"bytes", used, "budget", m.options.Budget)
	}
}

// now is monotonic: setting the machine's clock moves no lease and no retention.
func (m *Memory) now() int64 { return int64(time.Since(m.epoch)) }

// after saturates, for a retention that is meant to have no end.
func after(now int64, d time.Duration) int64 {
	if int64(d) > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + int64(d)
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
