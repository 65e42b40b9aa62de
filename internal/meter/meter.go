// Package meter decides whether operations may use units of their quotas.
package meter

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

const (
	refresh = time.Second     // how old what the store said may be
	timeout = 2 * time.Second // of a read
	idle    = time.Minute     // after which a gauge is forgotten
	tries   = 3               // in one read, to ask for the period that the store is in
	slots   = 1024            // for calls of the store; one that never returns keeps its slot
)

// A Meter knows what accounts have used, as its store said within the last
// second, and what operations of this process hold and have used since. It is safe
// for concurrent use.
type Meter struct {
	counter idem.Counter
	slots   chan struct{}

	mu     sync.Mutex
	gauges map[gaugeKey]*gauge
	asked  list.List // of all gauges, the one that was not asked for longest first
	reads  uint64    // that were begun
	clock  clock
}

// New returns a Meter for a store. A process has one for each.
func New(c idem.Counter) *Meter {
	now := time.Now() // until the store says its own
	return &Meter{
		counter: c, slots: make(chan struct{}, slots), gauges: map[gaugeKey]*gauge{}, clock: clock{now, now},
	}
}

// clock is what the store's clock showed at a time of this process. That time has
// passed since the store looked at its clock, so it runs late, by less than a read
// takes: no period begins before it does in the store.
type clock struct{ shown, at time.Time }

func (c clock) time() time.Time { return c.shown.Add(time.Since(c.at)) }

// gaugeKey is what a gauge is for. All quotas of an account in the same period
// share it.
type gaugeKey struct {
	account idem.Account
	period  idem.Period
}

// gauge is what is known of an account in one period. What counts on the account
// is at most used + since + held, and what operations in other processes have
// added in the last second.
type gauge struct {
	gaugeKey
	used  int64     // as the store said
	read  uint64    // the number of the read in which it said so; 0: none
	began time.Time // when that read began
	next  time.Time // the next period, by the store's clock; zero: never
	ends  time.Time // the same time by the monotonic clock

	// since is what was charged here since that read began, and maybe counts in
	// used too. during is the part of it since the one that goes on began.
	since, during int64
	// held is what operations in progress hold. They may have begun in an earlier
	// period: until they end, nothing says in which one they are charged.
	held       int64
	operations int

	reading *read         // nil: none goes on
	asked   time.Time     // when an operation asked for it
	place   *list.Element // in Meter.asked
}

// A Limit is the quota of an account.
type Limit struct {
	Account idem.Account
	Quota   *idem.Quota
}

// A Verdict says what the limits decided. Each quota is nil unless it is in the
// way: Refused is not report-only, Reported is. Of several, one that is used up
// goes before one with Held, then the first.
type Verdict struct {
	Refused, Reported *idem.Quota
	// Resets is when the period of Refused ends; zero for Lifetime.
	Resets time.Time
	// Held is set when Refused is not used up, but would be if all operations in
	// progress were charged: another try may succeed.
	Held bool
	// Fault is why the store did not say what was used of a report-only quota.
	// The operation is not refused for that.
	Fault error
}

// Hold holds units, which are not negative, on all limits for an operation that is
// about to begin, unless one refuses. Then, and after an error, the Hold is nil
// and nothing is held. Without a Refused the caller ends the Hold.
//
// Hold reads the store when it last did so a second ago, when the period is over,
// and when what was charged here since then is in the way. So a quota is used up
// only by the store's own sum. It waits for the store, and for a read that others
// have begun, until ctx is done and for 2 seconds a read. A store that does not
// answer is an error, unless all that it is asked about is report-only.
func (m *Meter) Hold(ctx context.Context, units int64, limits []Limit) (h *Hold, v Verdict, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	arrived := m.reads
	for {
		r, i := m.unsure(ctx, arrived, units, limits)
		if r == nil {
			break
		}
		m.mu.Unlock()
		err := r.wait(ctx)
		m.mu.Lock()
		if err == nil {
			continue
		}
		if !limits[i].Quota.ReportOnly {
			return nil, Verdict{}, err
		}
		v.Fault, limits = err, slices.Concat(limits[:i], limits[i+1:])
	}
	if m.decide(&v, units, limits); v.Refused != nil {
		return nil, v, nil
	}
	h = &Hold{meter: m}
	h.parts = h.room[:0]
	for _, l := range limits {
		h.hold(m.gauges[l.key()], units)
	}
	return h, v, nil
}

// Used returns what the account of a limit has used, as Hold would find it, and
// when the period ends; zero for Lifetime.
func (m *Meter) Used(ctx context.Context, l Limit) (units int64, next time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	g := m.gauge(l.key(), now)
	if !g.fresh(now) {
		r := m.begin(ctx, g)
		m.mu.Unlock()
		err = r.wait(ctx)
		m.mu.Lock()
	}
	return add(g.used, g.since), g.next, err
}

// unsure begins the reads without which the limits cannot be decided, and returns
// one to wait for with the index of its limit, or nil. A read that began after the
// operation has arrived is as good as another one, so no operation waits for more
// than two of a gauge. A limit that may refuse goes first: its error is the answer.
func (m *Meter) unsure(ctx context.Context, arrived uint64, units int64, limits []Limit) (wait *read, index int) {
	now := time.Now()
	for i, l := range limits {
		g := m.gauge(l.key(), now)
		if g.read > arrived || g.fresh(now) && (g.since == 0 || !g.pending(l.Quota, units)) {
			continue
		}
		if r := m.begin(ctx, g); wait == nil || limits[index].Quota.ReportOnly {
			wait, index = r, i
		}
	}
	return wait, index
}

func (m *Meter) decide(v *Verdict, units int64, limits []Limit) {
	for _, l := range limits {
		g, q := m.gauges[l.key()], l.Quota
		up, pending := g.usedUp(q, units), g.pending(q, units)
		switch {
		case !up && !pending:
		case q.ReportOnly:
			v.Reported = cmp.Or(v.Reported, q)
		case v.Refused == nil || v.Held && up:
			v.Refused, v.Resets, v.Held = q, g.next, pending
		}
	}
}

func (l Limit) key() gaugeKey { return gaugeKey{l.Account, l.Quota.Period} }

// fresh reports whether the store has said in the last second, and in the period
// that it is in now, what was used.
func (g *gauge) fresh(now time.Time) bool {
	return now.Sub(g.began) < refresh && (g.next.IsZero() || now.Before(g.ends))
}

// usedUp reports whether units are too many by the store's own sum.
func (g *gauge) usedUp(q *idem.Quota, units int64) bool { return over(q.Units, g.used, units) }

// pending reports whether units are too many only by what is held or was charged
// here since.
func (g *gauge) pending(q *idem.Quota, units int64) bool {
	return !g.usedUp(q, units) && over(q.Units, g.used, g.since, g.held, units)
}

// over reports whether a sum is higher than a limit. The sum may be too high for an
// int64.
func over(limit int64, summands ...int64) bool {
	for _, n := range summands {
		if n > limit {
			return true
		}
		limit -= n
	}
	return false
}

// add adds what is not negative, up to the highest number.
func add(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

// gauge returns the gauge of a key. For each that it adds it forgets up to two that
// are idle, so there are not more than were asked for in some minute.
func (m *Meter) gauge(k gaugeKey, now time.Time) *gauge {
	g := m.gauges[k]
	if g == nil {
		g = &gauge{gaugeKey: k}
		m.gauges[k], g.place = g, m.asked.PushBack(g)
	}
	m.touch(g, now)
	for range 2 {
		oldest := m.asked.Front().Value.(*gauge)
		if now.Sub(oldest.asked) < idle {
			break
		}
		if oldest.operations > 0 { // a read has ended by now
			m.touch(oldest, now)
			continue
		}
		delete(m.gauges, oldest.gaugeKey)
		m.asked.Remove(oldest.place)
	}
	return g
}

func (m *Meter) touch(g *gauge, now time.Time) {
	g.asked = now
	m.asked.MoveToBack(g.place)
}

// read is a question to the store that goes on, or has ended with err.
type read struct {
	number uint64
	done   chan struct{}
	err    error
}

func (r *read) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin returns the read of a gauge that goes on, or begins one. It does not end
// with ctx, because others wait for it too.
func (m *Meter) begin(ctx context.Context, g *gauge) *read {
	if g.reading != nil {
		return g.reading
	}
	m.reads++
	r := &read{number: m.reads, done: make(chan struct{})}
	g.reading, g.during = r, 0
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	// The store may not honor ctx. Then it is left behind. After the end of the read
	// this changes nothing. It is not stopped then: the goroutine below could do so
	// when ctx is done and this has not begun.
	context.AfterFunc(ctx, func() {
		m.end(g, r, answer{err: fmt.Errorf("meter: the store did not answer: %w", context.Cause(ctx))})
	})
	go func() {
		defer cancel()
		select {
		case m.slots <- struct{}{}:
			defer func() { <-m.slots }()
			m.end(g, r, m.ask(ctx, g.gaugeKey))
		case <-ctx.Done():
		}
	}()
	return r
}

// end ends a read, unless it has ended.
func (m *Meter) end(g *gauge, r *read, a answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g.reading != r {
		return
	}
	g.reading, r.err = nil, a.err
	if a.err == nil {
		m.clock = a.clock
		g.used, g.since, g.read, g.began = a.used, g.during, r.number, a.began
		g.next, g.ends = a.next, a.clock.at.Add(a.next.Sub(a.clock.shown))
	}
	close(r.done)
}

// answer is what the store said, in a period that ends with next.
type answer struct {
	used  int64
	began time.Time
	clock clock
	next  time.Time
	err   error
}

// ask asks the store for what was used in the period that it is in. Only its answer
// tells which one that is.
func (m *Meter) ask(ctx context.Context, k gaugeKey) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a.err = fmt.Errorf("meter: the store panicked: %v", p)
		}
	}()
	m.mu.Lock()
	a.clock = m.clock
	m.mu.Unlock()
	for range tries {
		asked, _ := k.period.Bounds(a.clock.time())
		a.began = time.Now()
		if a.used, a.clock.shown, a.err = m.counter.Used(ctx, k.account, asked); a.err != nil {
			return a
		}
		a.clock.at = time.Now()
		var begin time.Time
		if begin, a.next = k.period.Bounds(a.clock.shown); begin.Equal(asked) {
			return a
		}
	}
	a.err = errors.New("meter: the store's clock jumps from one period to another")
	return a
}

// A Hold is units that are held for an operation that runs.
type Hold struct {
	meter *Meter
	parts []part
	room  [3]part // of parts, unless there are more
}

// part is what is held on one gauge.
type part struct {
	gauge *gauge
	units int64
}

// hold holds units on a gauge, once if two limits have the same.
func (h *Hold) hold(g *gauge, units int64) {
	if slices.ContainsFunc(h.parts, func(p part) bool { return p.gauge == g }) {
		return
	}
	units = min(units, math.MaxInt64-g.held) // which only report-only quotas let grow so high
	g.held += units
	g.operations++
	h.parts = append(h.parts, part{g, units})
}

// End ends the hold of an operation that was charged for so many units, which may
// be none. The store has counted them before. It is called once, on nil too.
func (h *Hold) End(charged int64) {
	if h == nil {
		return
	}
	h.meter.mu.Lock()
	defer h.meter.mu.Unlock()
	for _, p := range h.parts {
		g := p.gauge
		g.held -= p.units
		g.operations--
		g.since, g.during = add(g.since, charged), add(g.during, charged)
	}
}
