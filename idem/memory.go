package idem

import (
	"log/slog"
	"math"
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
	donors     map[*partition]struct{} // those that have payloads to give up
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
		donors:     make(map[*partition]struct{}),
	}
}

// Stats returns what the store holds. What has expired counts until it is removed.
func (m *Memory) Stats() MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Claims = len(m.claims)
	return s
}

// unlock logs after it let go of the lock: a Logger may do anything, and take its time.
func (m *Memory) unlock() {
	warn, used := m.nearlyFull(), m.stats.Bytes
	m.mu.Unlock()
	if warn {
		// It must not take with it the claim that was just made.
		defer func() { _ = recover() }()
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
