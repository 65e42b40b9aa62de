package idemtest_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// modelUse is what a record may be charged for.
type modelUse struct {
	account idem.Account
	units   int64
	began   time.Duration
	id      string
}

func (m *model) newUse(c idem.Claim, r *modelRecord) {
	old := r.use
	sum := sha256.Sum256(slices.Concat(c.Key[:], r.token[:]))
	if m.has("names charges by the key alone") {
		sum = sha256.Sum256(c.Key[:])
	}
	r.use = &modelUse{c.Account, c.Units, m.now, hex.EncodeToString(sum[:16])}
	switch {
	case old != nil && m.has("keeps the account at a take-over"):
		r.use.account = old.account
	case old != nil && m.has("keeps the units at a take-over"):
		r.use.units = old.units
	case old != nil && m.has("keeps the time at a take-over"):
		r.use.began = old.began
	case old != nil && m.has("charges what is taken over"):
		m.charge(old, old.units, true)
	}
}

func (m *model) charge(u *modelUse, units int64, uncertain bool) {
	if u == nil || u.account == "" && !m.has("charges without an account") {
		return
	}
	if units == 0 && !m.has("lists charges of no units") {
		return
	}
	c := idem.Charge{ID: u.id, Account: u.account, Units: units, Began: m.wall(u.began), Uncertain: uncertain}
	if m.has("charges in the day of settling") {
		c.Began = m.wall(m.now)
	}
	if m.has("does not say what is uncertain when it is final") {
		c.Uncertain = false
	}
	m.numbers++
	if c.Number = m.numbers; m.has("numbers by what is left") {
		c.Number = int64(len(m.charges) + 1)
	}
	m.sums = append(m.sums, c)
	m.charges = append(m.charges, c)
}

func (m *model) wall(d time.Duration) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d)
}

func (r *modelRecord) inDoubt(now time.Duration) bool {
	return r.use != nil && (!r.held && r.outcome == idem.OutcomeUnknown || r.held && r.lease <= now)
}

// expire makes final what is charged for a record that is forgotten.
func (m *model) expire(r *modelRecord) {
	if !r.inDoubt(m.now) || m.has("forgets what expires") {
		return
	}
	use := *r.use
	if m.has("names anew what expires") {
		use.id = hex.EncodeToString([]byte(rand.Text())[:16])
	}
	m.charge(&use, use.units, true)
}

func (m *model) expireAll() {
	for k := range m.records {
		m.find(k)
	}
}

func (m *model) Count(_ context.Context, a idem.Account, units int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := hex.EncodeToString([]byte(rand.Text())[:16])
	if m.has("counts a number of units once") {
		if slices.ContainsFunc(m.sums, func(c idem.Charge) bool { return c.Account == a && c.Units == units }) {
			return nil
		}
	}
	if units < 0 && !m.has("counts back") {
		return nil
	}
	m.charge(&modelUse{a, units, m.now, id}, units, m.has("counts as uncertain"))
	return nil
}

func (m *model) lies(a, in idem.Account) bool {
	switch {
	case m.has("takes accounts of any case for one"):
		a, in = idem.Account(strings.ToLower(string(a))), idem.Account(strings.ToLower(string(in)))
	case m.has("takes accounts that begin alike for one"):
		in = idem.Account(strings.TrimSuffix(string(in), "\x00"))
	case m.has("ignores spaces of accounts"):
		a, in = idem.Account(strings.ReplaceAll(string(a), " ", "")), idem.Account(strings.ReplaceAll(string(in), " ", ""))
	case m.has("counts on the account alone"):
		return a == in
	}
	return in != "" && strings.HasPrefix(string(a), string(in))
}

func (m *model) Used(_ context.Context, a idem.Account, since time.Time) (units int64, now time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.has("counts from no day on") {
		since = time.Time{}
	}
	for _, c := range m.sums {
		if m.lies(c.Account, a) && !c.Began.Before(since) {
			units += c.Units
		}
	}
	for _, r := range m.records {
		if r.use == nil || !m.lies(r.use.account, a) || m.wall(r.use.began).Before(since) {
			continue
		}
		counts := r.inDoubt(m.now)
		switch {
		case r.held && m.has("counts what is held"):
			counts = true
		case r.held && m.has("counts no lapsed claim"):
			counts = false
		case r.renewed && m.has("counts what was renewed"):
			counts = true
		}
		if counts {
			units += r.use.units
		}
	}
	if len(m.charges) > 0 && m.has("counts twice what is added up") {
		for _, c := range m.charges {
			if m.read && m.lies(c.Account, a) {
				units += c.Units
			}
		}
	}
	return units, m.wall(m.now), nil
}

func (m *model) Charges(_ context.Context, limit int) ([]idem.Charge, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireAll()
	m.read = true
	if m.has("knows no limit") {
		limit = len(m.charges)
	}
	charges := slices.Clone(m.charges[:min(limit, len(m.charges))])
	if m.has("returns the newest first") {
		slices.Reverse(charges)
	}
	if m.has("returns a charge once") {
		m.charges = m.charges[len(charges):]
	}
	return charges, nil
}

func (m *model) Acknowledge(_ context.Context, number int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	acknowledged := func(c idem.Charge) bool { return c.Number <= number }
	if m.has("acknowledges nothing") {
		return nil
	}
	m.charges = slices.DeleteFunc(m.charges, acknowledged)
	if m.has("forgets what is acknowledged") {
		m.sums = slices.DeleteFunc(m.sums, acknowledged)
	}
	return nil
}

func (m *model) Uncertain(_ context.Context, limit int) (charges []idem.Charge, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireAll()
	for _, r := range m.records {
		if u := r.use; r.inDoubt(m.now) && u.account != "" && u.units > 0 {
			charges = append(charges, idem.Charge{
				ID: u.id, Account: u.account, Units: u.units, Began: m.wall(u.began), Uncertain: true,
			})
		}
	}
	slices.SortFunc(charges, func(a, b idem.Charge) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.ID, b.ID))
	})
	if m.has("returns the newest uncertain charge first") {
		slices.Reverse(charges)
	}
	return charges[:min(limit, len(charges))], nil
}

var _ idem.Counter = (*model)(nil)

// unitFlaws are those of a store that counts.
var unitFlaws = []flaw{
	{"charges the claim's units", []string{"units-done", "units-nothing"}},
	{"charges what is settled again", []string{"units-done"}},
	{"counts what is held", []string{"units-done", "units-lapsed"}},
	{"counts twice what is added up", []string{"units-done", "units-accounts"}},
	{"charges what is freed", []string{"units-nothing"}},
	{"lists charges of no units", []string{"units-nothing"}},
	{"charges without an account", []string{"units-nothing", "units-count"}},
	{"charges what it refuses", []string{"units-refused"}},
	{"charges what it refuses because of a take-over", []string{"units-take-over"}},
	{"counts no lapsed claim", []string{"units-lapsed"}},
	{"counts what was renewed", []string{"units-lapsed"}},
	{"returns the newest uncertain charge first", []string{"units-lapsed"}},
	{"charges the claim's units when it is unknown", []string{"units-refused", "units-lapsed", "units-expired"}},
	{"charges a late reply twice", []string{"units-lapsed"}},
	{"keeps the account at a take-over", []string{"units-take-over", "join-units-take-over"}},
	{"keeps the units at a take-over", []string{"units-take-over"}},
	{"keeps the time at a take-over", []string{"units-take-over"}},
	{"charges what is taken over", []string{"units-take-over", "join-units-take-over"}},
	{"names charges by the key alone", []string{"units-take-over", "units-expired"}},
	{"forgets what expires", []string{"units-expired"}},
	{"names anew what expires", []string{"units-expired"}},
	{"does not say what is uncertain when it is final", []string{"units-expired"}},
	{"takes accounts of any case for one", []string{"units-accounts"}},
	{"takes accounts that begin alike for one", []string{"units-accounts"}},
	{"ignores spaces of accounts", []string{"units-accounts"}},
	{"counts on the account alone", []string{"units-accounts"}},
	{"counts from no day on", []string{"units-since"}},
	{"charges in the day of settling", []string{"units-since"}},
	{"knows no limit", []string{"units-charges"}},
	{"returns the newest first", []string{"units-charges"}},
	{"returns a charge once", []string{"units-charges"}},
	{"numbers by what is left", []string{"units-charges"}},
	{"acknowledges nothing", []string{"units-charges"}},
	{"forgets what is acknowledged", []string{"units-charges"}},
	{"counts a number of units once", []string{"units-count"}},
	{"counts back", []string{"units-count"}},
	{"counts as uncertain", []string{"units-count"}},
	{"charges uncertain claims that it erases", []string{"units-erase"}},
	{"charges held claims that it erases", []string{"units-erase"}},
	{"charges what is rolled back", []string{"join-units"}},
	{"charges at Join", []string{"join-units"}},
	{"takes over for good", []string{"join-units-take-over"}},
}
