package idem_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

var acmeKey = idem.NewAccount("acme", "key")

// use claims a new key for an account.
func (s shop) use(name string, a idem.Account, units int64, retention time.Duration) idem.Claim {
	s.t.Helper()
	c := claimOf("acme", name)
	c.Account, c.Units, c.Retention = a, units, retention
	if r, err := s.Begin(s.t.Context(), c); err != nil || r.State != idem.Claimed {
		s.t.Fatalf("Begin of %s: got %v, error %v, want claimed", name, r.State, err)
	}
	return c
}

func (s shop) charge(c idem.Claim, o idem.Outcome, units int64) {
	s.t.Helper()
	settlement := idem.Settlement{Outcome: o, Units: units, Retention: c.Retention}
	if err := s.Settle(s.t.Context(), c.Key, c.Token, settlement); err != nil {
		s.t.Fatal(err)
	}
}

func (s shop) used(a idem.Account, since time.Time) int64 {
	s.t.Helper()
	units, _, err := s.Used(s.t.Context(), a, since)
	if err != nil {
		s.t.Fatal(err)
	}
	return units
}

func (s shop) charges(list func(context.Context, int) ([]idem.Charge, error)) []idem.Charge {
	s.t.Helper()
	charges, err := list(s.t.Context(), math.MaxInt)
	if err != nil {
		s.t.Fatal(err)
	}
	return charges
}

// What no Runner says is an error, and charges nothing.
func TestMemoryRefusesNegativeUnits(t *testing.T) {
	s := newShop(t, &idem.Memory{})
	c := s.use("held", acmeKey, 1, time.Hour)
	negative := claimOf("acme", "other")
	negative.Units = -1
	if _, err := s.Begin(t.Context(), negative); err == nil {
		t.Error("Begin: got no error")
	}
	if err := s.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Retention: 1, Units: -1}); err == nil {
		t.Error("Settle: got no error")
	}
}

// A sum of units stays at the largest number.
func TestMemoryUnitsSaturate(t *testing.T) {
	s := newShop(t, &idem.Memory{})
	for i := range 3 {
		if err := s.Count(t.Context(), acmeKey, math.MaxInt64-1); err != nil {
			t.Fatal(err)
		}
		s.charge(s.use(fmt.Sprint(i), acmeKey, 1, time.Hour), idem.OutcomeUnknown, math.MaxInt64-1)
	}
	if got := s.used(acmeKey, time.Time{}); got != math.MaxInt64 {
		t.Errorf("got %d", got)
	}
}

// A record that is forgotten for want of room stays charged.
func TestMemoryForgetsNoUncertainCharge(t *testing.T) {
	s := newShop(t, &idem.Memory{Budget: 10_000, MinRetention: 1})
	s.charge(s.use("unknown", acmeKey, 1, time.Hour), idem.OutcomeUnknown, 5)
	if got := s.charges(s.Uncertain); len(got) != 1 {
		t.Fatalf("got the uncertain charges %v, want one", got)
	}
	before := s.charges(s.Uncertain)[0]
	s.fill("acme", 100, 0)
	if s.Stats().Forgotten < 60 {
		t.Fatal("nothing was forgotten")
	}
	charges := s.charges(s.Charges)
	if len(charges) != 1 || charges[0].ID != before.ID || !charges[0].Uncertain || s.used(acmeKey, time.Time{}) != 5 {
		t.Errorf("got the charges %v, used %d, want that of %v", charges, s.used(acmeKey, time.Time{}), before)
	}
}

// A claim for which there is no room charges nothing, and one that cannot be
// taken over for want of room stays charged as it was.
func TestMemoryFullChargesNothing(t *testing.T) {
	refused := 0
	for budget := range int64(30) {
		s := newShop(t, &idem.Memory{Budget: 10_000 + 50*budget})
		c := s.use("unknown", acmeKey, 1, time.Hour)
		s.charge(c, idem.OutcomeUnknown, 5)
		for n := 0; ; n++ {
			filler := claimOf("acme", fmt.Sprint(n))
			if _, err := s.Begin(t.Context(), filler); err == idem.ErrFull {
				break
			}
			s.settle(filler, 0, 800)
		}
		bytes := s.Stats().Bytes
		other := claimOf("acme", "new")
		other.Account, other.Units, other.Reexecute = acmeKey, 9, true
		if _, err := s.Begin(t.Context(), other); err != idem.ErrFull {
			t.Fatalf("a new key: got error %v, want ErrFull", err)
		}
		other.Key = c.Key
		if _, err := s.Begin(t.Context(), other); err == nil {
			continue // there is room for what is known
		}
		refused++
		if got := s.charges(s.Uncertain); len(got) != 1 || got[0].Units != 5 || s.Stats().Bytes != bytes {
			t.Errorf("got the uncertain charges %v, %d bytes, want one of 5 units, %d bytes", got, s.Stats().Bytes, bytes)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// The last 10,000 charges are kept, and all count.
func TestMemoryKeepsTheLastCharges(t *testing.T) {
	s := newShop(t, &idem.Memory{})
	const n = 25_000
	for range n {
		if err := s.Count(t.Context(), acmeKey, 1); err != nil {
			t.Fatal(err)
		}
	}
	charges := s.charges(s.Charges)
	if len(charges) != 10_000 || charges[0].Number != n-10_000+1 || charges[9999].Number != n {
		t.Errorf("got %d charges, the first %+v", len(charges), charges[0])
	}
	if err := s.Acknowledge(t.Context(), n-3); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{-1, 0, 2, 3, 4} {
		got, err := s.Charges(t.Context(), limit)
		if want := min(max(limit, 0), 3); err != nil || len(got) != want || len(got) > 0 && got[0].Number != n-2 {
			t.Errorf("limit %d: got %v, error %v, want %d", limit, got, err, want)
		}
	}
	if err := s.Acknowledge(t.Context(), math.MaxInt64); err != nil || len(s.charges(s.Charges)) > 0 {
		t.Errorf("all acknowledged: got %v, error %v", s.charges(s.Charges), err)
	}
	if got := s.used(acmeKey, time.Time{}); got != n {
		t.Errorf("got %d units used, want %d", got, n)
	}
}

// An account has a sum for each of its last 400 days, and one for all before. It
// takes 200 bytes, and 32 for each day.
func TestMemorySumsOfDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, &idem.Memory{})
		time.Sleep(time.Hour)
		unknown := s.use("unknown", acmeKey, 1, 100*24*time.Hour)
		s.charge(unknown, idem.OutcomeUnknown, 1_000_000) // final when later days have sums
		const accounts, days = 100, 500
		account := func(i int) idem.Account { return idem.NewAccount(fmt.Sprint(i)) }
		before := heap()
		for day := range days {
			for i := range accounts {
				if err := s.Count(t.Context(), account(i), 1); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Count(t.Context(), acmeKey, 1); err != nil {
				t.Fatal(err)
			}
			last := s.charges(s.Charges)
			if err := s.Acknowledge(t.Context(), last[len(last)-1].Number); err != nil {
				t.Fatal(err)
			}
			if day == 30 {
				if grown := int(heap()-before) / accounts; grown > 200+31*32 {
					t.Errorf("after 31 days: an account takes %d bytes", grown)
				}
			}
			time.Sleep(24 * time.Hour)
		}
		if grown := int(heap()-before) / accounts; grown > 200+400*32 {
			t.Errorf("after %d days: an account takes %d bytes", days, grown)
		}
		today := time.Now().Truncate(24 * time.Hour)
		for _, ago := range []int{1, 2, 31, 399} {
			if got := s.used(account(0), today.AddDate(0, 0, -ago)); got != int64(ago) {
				t.Errorf("got %d units in the last %d days", got, ago)
			}
		}
		if got := s.used(account(0), today.AddDate(0, 0, -450)); got != 399 {
			t.Errorf("got %d units in the last 450 days, want those of 399: the others are one sum", got)
		}
		if got := s.used(account(0), time.Time{}); got != days {
			t.Errorf("got %d units in all, want %d", got, days)
		}
		if got := s.used(acmeKey, time.Time{}); got != days+1_000_000 {
			t.Errorf("got %d units in all, want %d", got, days+1_000_000)
		}
		if got := s.used(acmeKey, today.AddDate(0, 0, -399)); got != 399 {
			t.Errorf("got %d units in the last 399 days, with those of an older claim", got)
		}
		runtime.KeepAlive(s)
	})
}

// What has expired is final when it is asked for, without another Begin.
func TestMemoryChargesWhatExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ask := range []func(shop) (before, after []idem.Charge){
			func(s shop) (before, after []idem.Charge) { return s.charges(s.Uncertain), s.charges(s.Charges) },
			func(s shop) (before, after []idem.Charge) {
				after = s.charges(s.Charges)
				return s.charges(s.Uncertain), after
			},
		} {
			s := newShop(t, &idem.Memory{})
			for i := range 10 {
				s.use(fmt.Sprint(i), acmeKey, 1, time.Hour)
			}
			time.Sleep(time.Hour - 1)
			for limit, want := range []int{0, 1, 2} {
				if got, err := s.Uncertain(t.Context(), limit); err != nil || len(got) != want {
					t.Errorf("limit %d: got %v, error %v", limit, got, err)
				}
			}
			if got, err := s.Uncertain(t.Context(), -1); err != nil || len(got) > 0 {
				t.Errorf("limit -1: got %v, error %v", got, err)
			}
			time.Sleep(time.Nanosecond)
			if uncertain, final := ask(s); len(uncertain) != 0 || len(final) != 10 {
				t.Errorf("got %d uncertain charges and %d final ones, want none and 10", len(uncertain), len(final))
			}
		}
	})
}

// A peak of claims with an account does not stay in memory.
func TestMemoryFreesAPeakOfUses(t *testing.T) {
	s := newShop(t, &idem.Memory{Budget: 1 << 30})
	claims := make([]idem.Claim, 50_000)
	for i := range claims {
		claims[i] = claimOf("acme", fmt.Sprint(i))
		claims[i].Account = acmeKey
	}
	before := heap()
	for _, c := range claims {
		if _, err := s.Begin(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range claims {
		s.charge(c, idem.OutcomeFree, 0)
	}
	if grown := int64(heap() - before); grown > 200_000 {
		t.Errorf("%d bytes are left of %d claims that were freed", grown, len(claims))
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(claims)
}

// What is left of a peak is still charged, and can be settled.
func TestMemoryChargesAfterAPeak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, &idem.Memory{})
		var left []idem.Claim
		for i := range 2000 {
			s.claimFor("acme", fmt.Sprint("short ", i), time.Minute)
			if i%50 == 0 {
				left = append(left, s.use(fmt.Sprint(i), acmeKey, 1, time.Hour))
			}
		}
		time.Sleep(time.Minute)
		for range 1000 {
			s.settleAs(claimOf("b", "key"), idem.OutcomeFree)
		}
		s.fill("other", 2000, 0) // in the places of before
		if got := s.used(acmeKey, time.Time{}); got != int64(len(left)) {
			t.Errorf("got %d units used, want %d", got, len(left))
		}
		for _, c := range left {
			s.charge(c, idem.OutcomeDone, 2)
		}
		if got := s.used(acmeKey, time.Time{}); got != 2*int64(len(left)) {
			t.Errorf("settled: got %d units used, want %d", got, 2*len(left))
		}
	})
}

// A claim that was erased while it was held counts nothing, also when another is
// in its place.
func TestMemoryErasesUses(t *testing.T) {
	s := newShop(t, &idem.Memory{})
	for _, name := range []string{"erased", "next"} {
		c := s.use(name, acmeKey, 1, time.Hour)
		if name == "next" {
			s.charge(c, idem.OutcomeUnknown, 5)
		} else if n, err := s.Erase(t.Context(), "acme"); n != 1 || err != nil {
			t.Fatalf("got %d, error %v", n, err)
		}
	}
	if got := s.used(acmeKey, time.Time{}); got != 5 {
		t.Errorf("got %d units used, want 5", got)
	}
}

// The budget covers what is kept of claims whose outcome is unknown.
func TestMemoryChargesWhatUsesTake(t *testing.T) {
	for _, name := range []int{1, 100} {
		s := newShop(t, &idem.Memory{Budget: 1 << 30})
		const keys = 10_000
		before := heap()
		for i := range keys {
			a := idem.NewAccount(strings.Repeat("x", name), fmt.Sprint(i%10))
			s.charge(s.use(fmt.Sprint(i), a, 1, time.Hour), idem.OutcomeUnknown, 1)
		}
		grown, charged := int64(heap()-before), s.Stats().Bytes
		if grown > charged || grown*2 < charged {
			t.Errorf("names of %d: the heap grew by %d bytes a key, charged are %d", name, grown/keys, charged/keys)
		}
		runtime.KeepAlive(s)
	}
}

// unitModel is what should be charged, claim by claim.
type unitModel struct {
	open  map[idem.Key]idem.Claim // held, or unknown
	lapse map[idem.Key]time.Time  // of those that are held
	ends  map[idem.Key]time.Time
	again map[idem.Key]bool // those that took over
	final map[idem.Account]int64
}

func (m *unitModel) used(a idem.Account) (units int64) {
	for b, n := range m.final {
		if strings.HasPrefix(string(b), string(a)) {
			units += n
		}
	}
	for k, c := range m.open {
		if strings.HasPrefix(string(c.Account), string(a)) && !m.lapse[k].After(time.Now()) {
			units += c.Units
		}
	}
	return units
}

// expire makes final what is forgotten.
func (m *unitModel) expire() {
	for k, c := range m.open {
		if !m.ends[k].After(time.Now()) {
			m.final[c.Account] += c.Units
			delete(m.open, k)
		}
	}
}

// Random work: what is used is what the model says, step by step, also when
// records are forgotten and peaks are given back.
func TestMemoryUnitsAreTheirModel(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) { unitWork(t, rand.New(rand.NewPCG(seed, 2))) })
	}
}

func unitWork(t *testing.T, random *rand.Rand) {
	s := newShop(t, &idem.Memory{Budget: 1 << 30})
	m := &unitModel{make(map[idem.Key]idem.Claim), make(map[idem.Key]time.Time), make(map[idem.Key]time.Time),
		make(map[idem.Key]bool), make(map[idem.Account]int64)}
	accounts := []idem.Account{
		idem.NewAccount("a"), idem.NewAccount("a", "1"), idem.NewAccount("a", "1", "x"),
		idem.NewAccount("a", "2"), idem.NewAccount("b"),
	}
	for step := range 3000 {
		time.Sleep(time.Duration(random.IntN(2)) * time.Duration(random.Int64N(int64(10*time.Second))))
		m.expire()
		if step%1000 > 800 { // a peak that goes
			time.Sleep(time.Minute)
			m.expire()
		}
		c := claimOf(fmt.Sprint("tenant ", random.IntN(3)), fmt.Sprint(random.IntN(1000)))
		c.Account, c.Units = accounts[random.IntN(len(accounts))], random.Int64N(100)
		c.Lease = time.Duration(1 + random.Int64N(int64(time.Minute)))
		c.Retention = c.Lease + time.Duration(random.Int64N(int64(10*time.Minute)))
		c.Reexecute = random.IntN(2) == 0
		if r, err := s.Begin(t.Context(), c); err != nil {
			t.Fatal(err)
		} else if r.State == idem.Claimed {
			m.open[c.Key], m.lapse[c.Key], m.ends[c.Key] = c, time.Now().Add(c.Lease), time.Now().Add(c.Retention)
			m.again[c.Key] = r.Attempt > 1
		}
		for k, c := range m.open { // one of them
			settlement := idem.Settlement{Outcome: idem.Outcome(random.IntN(3)), Units: random.Int64N(100), Retention: c.Lease}
			if err := s.Settle(t.Context(), k, c.Token, settlement); err == idem.ErrSettled {
				break
			} else if err != nil {
				t.Fatalf("step %d: Settle: got error %v", step, err)
			}
			if m.again[k] && settlement.Outcome == idem.OutcomeFree {
				settlement.Outcome = idem.OutcomeUnknown
			}
			_, held := m.lapse[k]
			switch c.Units = settlement.Units; {
			case settlement.Outcome == idem.OutcomeUnknown && held:
				m.open[k], m.ends[k] = c, time.Now().Add(c.Lease)
				delete(m.lapse, k)
			case settlement.Outcome == idem.OutcomeDone:
				m.final[c.Account] += c.Units
				delete(m.open, k)
			case settlement.Outcome == idem.OutcomeFree:
				delete(m.open, k)
			}
			break
		}
		for _, a := range accounts {
			if got, want := s.used(a, time.Time{}), m.used(a); got != want {
				t.Fatalf("step %d: got %d units used of %q, want %d", step, got, a.Names(), want)
			}
		}
		if step%100 > 0 {
			continue
		}
		want := 0
		for k, c := range m.open {
			if c.Units > 0 && !m.lapse[k].After(time.Now()) {
				want++
			}
		}
		charges := s.charges(s.Uncertain)
		older := func(a, b idem.Charge) int { return a.Began.Compare(b.Began) }
		if len(charges) != want || !slices.IsSortedFunc(charges, older) {
			t.Fatalf("step %d: got %d uncertain charges, want %d in their order", step, len(charges), want)
		}
	}
}

// The time of the machine's clock when the store was first used, and what has
// passed since.
func TestMemoryWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t, &idem.Memory{})
		time.Sleep(36 * time.Hour)
		s.used(acmeKey, time.Time{})
		time.Sleep(36 * time.Hour)
		_, now, err := s.Used(t.Context(), acmeKey, time.Time{})
		if err != nil || now != time.Now().Round(0).UTC() {
			t.Errorf("got %v, error %v, want %v", now, err, time.Now().Round(0).UTC())
		}
	})
}

// An account costs one allocation: what is kept while its claim is held.
func TestMemoryAllocationsOfUnits(t *testing.T) {
	s := newShop(t, &idem.Memory{})
	s.claim("a", "other")
	for want, a := range []idem.Account{"", acmeKey} {
		c := claimOf("a", "key")
		c.Account = a
		got := testing.AllocsPerRun(100, func() {
			if _, err := s.Begin(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if err := s.Settle(t.Context(), c.Key, c.Token, freed); err != nil {
				t.Fatal(err)
			}
		})
		if got != float64(want) {
			t.Errorf("for %q: got %v allocations, want %d", a, got, want)
		}
	}
}
