package idem

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"
)

// use is what an entry may be charged for, while it is held or its outcome is
// unknown. It does not count while the claim has a live lease, and else it is an
// uncertain charge: nothing is written when a lease ends or is renewed.
type use struct {
	account      Account
	units, began int64
	entry, place uint32 // place is that in usage.open
}

// cost is what an entry is charged for its use: the measured bytes, rounded up.
func (u *use) cost() int {
	if u == nil {
		return 0
	}
	return 100 + len(u.account)
}

// usage is what was charged to an account. There is one for each account that was
// used, for as long as the process lives and beside the Budget. It takes 200 bytes
// with a short name, and 32 for each day with charges, of which it has at most
// usageDays: 1.2 KB after a month, and 13 KB in the end.
type usage struct {
	days []dayUnits // in their order; the first has those of all days before it too
	// open has the uses of the account and of those within it, if it lies within
	// no other: so Used looks at those of one tenant.
	open queue[*use]
}

type dayUnits struct{ day, units int64 } // days since 1970

const (
	usageDays   = 400
	keptCharges = 10_000
)

func (m *Memory) usage(a Account) *usage {
	u := m.usages[a]
	if u == nil {
		if m.usages == nil {
			m.usages = make(map[Account]*usage)
		}
		u = &usage{open: queue[*use]{place: func(u *use) *uint32 { return &u.place }}}
		m.usages[a] = u
	}
	return u
}

// widest returns the widest account that a lies within.
func (a Account) widest() Account { return a[:strings.IndexByte(string(a), 0)+1] }

// open notes what a claim will use, in place of what the entry had.
func (m *Memory) open(e *entry, c *Claim, now int64) {
	m.discard(e)
	if c.Account != "" {
		e.use = &use{account: c.Account, units: c.Units, began: now, entry: e.number}
		m.usage(c.Account.widest()).open.add(e.use, now)
	}
}

// discard takes from an entry its use, which is then not charged.
func (m *Memory) discard(e *entry) {
	if e.use == nil {
		return
	}
	open := &m.usage(e.use.account.widest()).open
	if open.remove(e.use); len(open.items) == 0 && cap(open.items) > 64 {
		open.items = nil // which gives back the memory of a peak
	}
	e.use = nil
}

// uncertain reports whether an entry is charged for, for want of an outcome.
func (e *entry) uncertain(now int64) bool { return e.use != nil && (!e.held || e.leaseEnds <= now) }

// charged returns the charge of an entry that has a use.
func (m *Memory) charged(e *entry, units int64, uncertain bool) Charge {
	sum := sha256.Sum256(slices.Concat(e.key[:], e.token[:]))
	return Charge{
		ID: hex.EncodeToString(sum[:16]), Account: e.use.account, Units: units, Began: m.wall(e.use.began),
		Uncertain: uncertain,
	}
}

// conclude makes final what an entry is charged for.
func (m *Memory) conclude(e *entry, units int64, uncertain bool) {
	if e.use != nil && units > 0 {
		m.add(m.charged(e, units, uncertain))
	}
	m.discard(e)
}

// add adds a final charge to the sums, and to the list.
func (m *Memory) add(c Charge) {
	day := dayOf(c.Began)
	for _, a := range c.Account.Within() {
		u := m.usage(a)
		i, found := slices.BinarySearchFunc(u.days, day, func(d dayUnits, day int64) int { return cmp.Compare(d.day, day) })
		if !found {
			u.days = slices.Insert(u.days, i, dayUnits{day: day})
		}
		u.days[i].units = plus(u.days[i].units, c.Units)
		if len(u.days) > usageDays {
			u.days[0].units = plus(u.days[0].units, u.days[1].units)
			u.days = slices.Delete(u.days, 1, 2)
		}
	}
	m.charges++
	c.Number = m.charges
	if len(m.final) == keptCharges {
		m.final[0] = Charge{}
		m.final = m.final[1:]
	}
	m.final = append(m.final, c)
}

// plus adds, and stays at the largest number: no sum of units becomes negative.
func plus(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// wall returns what the machine's clock said when the store was first used, and
// what has passed since by the monotonic clock.
func (m *Memory) wall(now int64) time.Time { return m.epoch.Round(0).UTC().Add(time.Duration(now)) }

// Count implements [Counter].
func (m *Memory) Count(_ context.Context, a Account, units int64) error {
	m.lock()
	defer m.unlock()
	if a != "" && units > 0 {
		var id [16]byte
		rand.Read(id[:])
		m.add(Charge{ID: hex.EncodeToString(id[:]), Account: a, Units: units, Began: m.wall(m.now())})
	}
	return nil
}

// Used implements [Counter]. Of an account that was charged on more than 400 days,
// those of the oldest days count in one of them.
func (m *Memory) Used(_ context.Context, a Account, since time.Time) (units int64, now time.Time, err error) {
	m.lock()
	defer m.unlock()
	at, first := m.now(), dayOf(since)
	if u := m.usages[a]; u != nil {
		for _, d := range slices.Backward(u.days) {
			if d.day < first {
				break
			}
			units = plus(units, d.units)
		}
	}
	if u := m.usages[a.widest()]; u != nil {
		for _, item := range u.open.items {
			u, e := item.element, m.entries.at(item.element.entry)
			if e.uncertain(at) && strings.HasPrefix(string(u.account), string(a)) && dayOf(m.wall(u.began)) >= first {
				units = plus(units, u.units)
			}
		}
	}
	return units, m.wall(at), nil
}

// Charges implements [Counter]. Of charges that are not acknowledged, the last
// 10,000 are kept: a gap in their numbers shows that older ones are gone.
func (m *Memory) Charges(_ context.Context, limit int) ([]Charge, error) {
	m.lock()
	defer m.unlock()
	m.allUncertain(m.now())
	return slices.Clone(m.final[:min(max(limit, 0), len(m.final))]), nil
}

// Acknowledge implements [Counter].
func (m *Memory) Acknowledge(_ context.Context, number int64) error {
	m.lock()
	defer m.unlock()
	read, _ := slices.BinarySearchFunc(m.final, number, func(c Charge, n int64) int {
		return cmp.Compare(c.Number, plus(n, 1))
	})
	m.final = slices.Delete(m.final, 0, read)
	return nil
}

// Uncertain implements [Counter].
func (m *Memory) Uncertain(_ context.Context, limit int) (charges []Charge, err error) {
	m.lock()
	defer m.unlock()
	all := m.allUncertain(m.now())
	for _, e := range all[:min(max(limit, 0), len(all))] {
		charges = append(charges, m.charged(e, e.use.units, true))
	}
	return charges, nil
}

// allUncertain returns the entries that are uncertain charges, the oldest first.
// It drops those whose retention is over, which makes their charges final.
func (m *Memory) allUncertain(now int64) (all []*entry) {
	for _, u := range m.usages {
		for _, item := range u.open.items {
			if e := m.entries.at(item.element.entry); e.uncertain(now) && e.use.units > 0 {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.use.began, b.use.began) })
	return slices.DeleteFunc(all, func(e *entry) bool { return m.find(e.key, now) == nil })
}
