package idemtest

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// unitPatience is how long a store may take to add up what is final.
const unitPatience = 30 * time.Second

// counter is what the checks of an idem.Counter work with.
type counter struct {
	*env
	idem.Counter
}

// counts returns a check that a store which is no idem.Counter passes.
func counts(check func(*counter)) func(*env) {
	return func(e *env) {
		if c, ok := e.store.(idem.Counter); ok {
			check(&counter{e, c})
		}
	}
}

// work claims a key of its own for an account. It lapses after a lease if c does.
func (e *counter) work(c idem.Claim, units int64, names ...string) idem.Claim {
	c.Key = idem.NewKey("organization", rand.Text())
	c.Account, c.Units, c.Retention = idem.NewAccount(names...), units, max(c.Retention, c.Lease)
	return e.made(c)
}

// lapsing returns a claim that lapses after a lease and is remembered for days.
func (e *counter) lapsing() idem.Claim {
	c := e.claim()
	c.Retention = 100 * time.Hour
	return c
}

func charged(s idem.Settlement, units int64) idem.Settlement {
	s.Units = units
	return s
}

func (e *counter) used(since time.Time, names ...string) (int64, time.Time) {
	units, now, err := e.Used(e.ctx, idem.NewAccount(names...), since)
	e.mustBe("Used", err, nil)
	return units, now
}

// mustUse wants what an account has used in all.
func (e *counter) mustUse(what string, want int64, names ...string) {
	if got, _ := e.used(time.Time{}, names...); got != want {
		e.failf("%s: got %d units used of %q, want %d", what, got, names, want)
	}
}

// mustList wants charges in any order, each as text, such as "acme key: 5
// uncertain", and returns them in the order of these texts.
func (e *counter) mustList(what string, charges []idem.Charge, want []string) []idem.Charge {
	text := func(c idem.Charge) string {
		s := fmt.Sprintf("%s: %d", strings.Join(c.Account.Names(), " "), c.Units)
		if c.Uncertain {
			s += " uncertain"
		}
		return s
	}
	ids, got := map[string]bool{}, []string(nil)
	for _, c := range charges {
		if ids[c.ID] || len(c.ID) != 32 || strings.Trim(c.ID, "0123456789abcdef") != "" {
			e.failf("%s: got the id %q, want 32 hexadecimal digits that no other charge has", what, c.ID)
		}
		ids[c.ID] = true
	}
	slices.SortStableFunc(charges, func(a, b idem.Charge) int { return strings.Compare(text(a), text(b)) })
	for _, c := range charges {
		got = append(got, text(c))
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		e.failf("%s: got the charges %q, want %q", what, got, want)
	}
	return charges
}

// mustDoubt wants the charges that are uncertain and not final.
func (e *counter) mustDoubt(what string, want ...string) []idem.Charge {
	charges, err := e.Uncertain(e.ctx, 1000)
	e.mustBe("Uncertain", err, nil)
	for i, c := range charges {
		if c.Number != 0 || i > 0 && c.Began.Before(charges[i-1].Began) {
			e.failf("%s: got number %d of a charge that began at %v, want 0, and the oldest first", what, c.Number, c.Began)
		}
	}
	return e.mustList(what+", uncertain", charges, want)
}

// addedUp waits until all that is final is added up, which changes no sum, and
// returns the charges.
func (e *counter) addedUp(what string) (charges []idem.Charge) {
	before, _ := e.used(time.Time{}, "acme")
	mark := e.work(e.lasting(), 1, "mark", rand.Text())
	e.settle("a mark", mark, charged(finished("mark"), 1), nil)
	marks := func(c idem.Charge) bool { return strings.HasPrefix(string(c.Account), "mark\x00") }
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		charges = e.charges(1000)
		e.mustUse(what+", while it is added up", before, "acme")
		if slices.ContainsFunc(charges, func(c idem.Charge) bool { return c.Account == mark.Account }) {
			return slices.DeleteFunc(charges, marks)
		}
		if time.Since(begun) > unitPatience {
			e.failf("%s: what was done %v ago is not among the charges", what, unitPatience)
		}
	}
}

// mustCharge waits, and wants these charges.
func (e *counter) mustCharge(what string, want ...string) []idem.Charge {
	return e.mustList(what, e.addedUp(what), want)
}

// charges returns the charges that are final.
func (e *counter) charges(limit int) []idem.Charge {
	charges, err := e.Charges(e.ctx, limit)
	e.mustBe("Charges", err, nil)
	for i, c := range charges {
		if c.Number <= 0 || i > 0 && c.Number <= charges[i-1].Number {
			e.failf("got the number %d in place %d of the charges, want one that is higher than those before", c.Number, i)
		}
	}
	return charges
}

var unitRules = []rule{
	{"units-done",
		"OutcomeDone charges the Settlement's Units once, also if it is resent; a claim that is held counts nothing.",
		counts(func(e *counter) {
			c := e.work(e.lasting(), 5, "acme", "key")
			e.extend("the holder", c, nil)
			e.mustClaim("resent", c, 1)
			e.mustUse("held", 0, "acme", "key")
			e.mustDoubt("held")
			for range 3 {
				e.settle("the holder", c, charged(finished("answer"), 7), nil)
				e.mustUse("settled", 7, "acme", "key")
			}
			e.mustCharge("settled", "acme key: 7")
			e.settle("resent", c, charged(finished("answer"), 7), nil)
			e.mustCharge("settled again", "acme key: 7")
		})},
	{"units-nothing", "OutcomeFree, OutcomeDone with no Units, and a claim without an Account charge nothing.",
		counts(func(e *counter) {
			e.settle("freed", e.work(e.lasting(), 5, "acme"), charged(outcomeFree, 5), nil)
			e.settle("done", e.work(e.lasting(), 5, "acme"), finished("answer"), nil)
			e.settle("unknown", e.work(e.lasting(), 5, "acme"), unknown, nil)
			for _, s := range outcomes {
				e.settle("without an account", e.work(e.lasting(), 5), charged(s, 5), nil)
			}
			e.mustUse("settled", 0, "acme")
			e.mustUse("settled", 0)
			e.mustDoubt("settled")
			e.mustCharge("settled")
		})},
	{"units-refused", "A Settle that is refused charges nothing.",
		counts(func(e *counter) {
			c, nine := e.work(e.lasting(), 5, "acme"), charged(finished("stolen"), 9)
			e.settle("a stranger", again(c), nine, idem.ErrLost)
			e.mustUse("a stranger settled", 0, "acme")
			e.settle("the holder", c, charged(unknown, 4), nil)
			e.settle("in another way", c, nine, idem.ErrSettled)
			e.settle("as free", c, outcomeFree, idem.ErrSettled)
			e.mustUse("settled twice", 4, "acme")
			e.mustDoubt("settled twice", "acme: 4 uncertain")
			e.mustCharge("settled twice")
		})},
	{"units-lapsed", "A claim whose lease has lapsed is an uncertain charge of its Units, until it is renewed or settled.",
		counts(func(e *counter) {
			c := e.work(e.lapsing(), 5, "acme", "key")
			e.leases(1.3)
			e.mustUse("lapsed", 5, "acme", "key")
			e.mustDoubt("lapsed", "acme key: 5 uncertain")
			e.extend("the holder", c, nil)
			e.mustUse("renewed", 0, "acme", "key")
			e.mustDoubt("renewed")
			for i, s := range []idem.Settlement{charged(finished("late"), 2), outcomeFree, charged(unknown, 3)} {
				c = e.work(e.lapsing(), 5, "acme", fmt.Sprint(i))
				e.leases(1.3)
				e.must("another", again(c), idem.Unknown)
				e.mustUse("told", 5, "acme", fmt.Sprint(i))
				e.settle("the holder, late", c, s, nil)
				e.mustUse("settled late", s.Units, "acme", fmt.Sprint(i))
			}
			e.mustDoubt("settled late", "acme 2: 3 uncertain", "acme key: 5 uncertain")
			e.mustCharge("settled late", "acme 0: 2")
		})},
	{"units-take-over", "A take-over replaces the account, the units and the time of an uncertain charge.",
		counts(func(e *counter) {
			for i, settled := range []bool{false, true} {
				old, a, b := e.work(e.lapsing(), 5, "acme", "old"), fmt.Sprint("a", i), fmt.Sprint("b", i)
				if settled {
					e.settle("the holder", old, charged(unknown, 5), nil)
				}
				e.leases(1.3)
				before := e.mustDoubt("before", "acme old: 5 uncertain")
				taker := reexecuting(old)
				taker.Account, taker.Units = idem.NewAccount("acme", a), 3
				e.mustClaim("the taker", taker, 2)
				e.settle("the token of before", old, charged(finished("stale"), 9), idem.ErrLost)
				e.mustUse("taken over", 0, "acme", "old")
				e.mustUse("taken over", 0, "acme", a)
				e.mustDoubt("taken over")
				e.leases(1.3)
				e.mustDoubt("lapsed again", fmt.Sprintf("acme %s: 3 uncertain", a))
				last := reexecuting(taker)
				last.Account = idem.NewAccount("acme", b)
				e.mustClaim("the last", last, 3)
				e.settle("the last", last, charged(finished("answer"), 4), nil)
				e.mustUse("taken over twice", 0, "acme", a)
				charges := e.mustCharge("taken over twice", []string{"acme b0: 4", "acme b1: 4"}[:i+1]...)
				if c := charges[i]; c.ID == before[0].ID || !c.Began.After(before[0].Began) {
					e.failf("got the charge %v of what was taken over, want another id and a later time than %v", c, before[0])
				}
			}
		})},
	{"units-expired",
		"When an uncertain charge is forgotten it is final, uncertain, and the same charge; then the key is new.",
		counts(func(e *counter) {
			short := e.claim()
			short.Retention = 2 * e.lease
			held, settled := e.work(short, 5, "acme", "held"), e.work(short, 4, "acme", "settled")
			e.settle("the holder", settled, charged(e.kept(unknown, 2), 3), nil)
			e.leases(1.3)
			before := e.mustDoubt("before", "acme held: 5 uncertain", "acme settled: 3 uncertain")
			e.leases(1)
			e.mustUse("afterwards", 8, "acme")
			for i, c := range e.mustCharge("afterwards", "acme held: 5 uncertain", "acme settled: 3 uncertain") {
				if c.ID != before[i].ID { // Began may be another by Advance
					e.failf("got the charge %v, want that of before, %v", c, before[i])
				}
			}
			e.mustDoubt("afterwards")
			e.settle("the old token", held, charged(finished("late"), 9), idem.ErrLost)
			next := e.made(again(held))
			e.settle("the next", next, charged(finished("answer"), 1), nil)
			e.mustUse("the next is settled", 6, "acme", "held")
			e.mustCharge("the next is settled", "acme held: 1", "acme held: 5 uncertain", "acme settled: 3 uncertain")
		})},
	{"units-accounts",
		"A charge counts on its account and on those that this lies within, and on no other, byte for byte.",
		counts(func(e *counter) {
			names := [][]string{{"acme", "key"}, {"acme", "key", "child"}, {"acme", "KEY"}, {"acme", "key "}, {"acme", "k_y"},
				{"acme", "k%"}, {"acme", "kéy"}, {"acme", "ke"}, {"acme", "\xff\\'"}, {"Acme", "key"}, {"acm"}}
			for round, s := range []idem.Settlement{unknown, finished("answer")} {
				for i, name := range names {
					e.settle("the holder", e.work(e.lasting(), 1, name...), charged(s, 1<<i), nil)
				}
				for range 2 { // before and after it is added up
					times := int64(round + 1)
					e.mustUse("settled", times*0b11, names[0]...)
					e.mustUse("settled", times*0b001_1111_1111, "acme")
					for i, name := range names[1:] {
						e.mustUse("settled", times<<(i+1), name...)
					}
					e.mustUse("settled", 0, "acme", "key", "child", "none")
					e.addedUp("settled")
				}
			}
		})},
	{"units-since", "Used counts from a UTC day on, by the day in which the claim was made.",
		counts(func(e *counter) {
			_, begun := e.used(time.Time{}, "acme")
			e.settle("the holder", e.work(e.lasting(), 5, "acme"), charged(finished("answer"), 5), nil)
			e.settle("the holder", e.work(e.lasting(), 3, "acme"), charged(unknown, 3), nil)
			_, now := e.used(time.Time{}, "acme")
			for _, c := range append(e.addedUp("settled"), e.mustDoubt("settled", "acme: 3 uncertain")...) {
				if c.Began.Before(begun) || c.Began.After(now) {
					e.failf("got a charge that began at %v, want one from %v to %v", c.Began, begun, now)
				}
			}
			const day = 24 * time.Hour
			tomorrow := now.Truncate(day).Add(day)
			for since, want := range map[time.Time]int64{begun.Truncate(day): 8, tomorrow: 0, {}: 8} {
				if got, _ := e.used(since, "acme"); got != want {
					e.failf("got %d units used since %v, want %d", got, since, want)
				}
			}
			if !e.suite.Bubble && e.suite.Advance == nil {
				return // a day takes too long
			}
			c := e.lasting()
			c.Lease = 2 * day
			c = e.work(c, 1, "acme")
			e.leases(float64(day) / float64(e.lease))
			if _, later := e.used(time.Time{}, "acme"); later.Before(tomorrow) {
				return // Advance sets no clock
			}
			e.settle("made a day ago", c, charged(finished("answer"), 1), nil)
			e.settle("made today", e.work(e.lasting(), 1, "acme"), charged(finished("answer"), 2), nil)
			if got, _ := e.used(tomorrow, "acme"); got != 2 {
				e.failf("got %d units used today, want the 2 of the claim that was made today", got)
			}
			e.mustUse("in all", 11, "acme")
		})},
	{"units-charges", "Charges returns what is not acknowledged, the same each time, the lowest numbers first.",
		counts(func(e *counter) {
			for range 3 {
				e.settle("the holder", e.work(e.lasting(), 5, "acme"), charged(finished("answer"), 5), nil)
				e.addedUp("settled")
			}
			all := e.charges(1000) // with the marks
			if len(all) != 6 {
				e.failf("got %d charges after 6 settlements", len(all))
			}
			for n := range all {
				for range 2 {
					got := e.charges(2)
					if want := all[n:min(n+2, len(all))]; !slices.EqualFunc(got, want, sameCharge) {
						e.failf("of %v, %d acknowledged: Charges got %v, want %v", all, n, got, want)
					}
				}
				for range 2 {
					e.mustBe("Acknowledge", e.Acknowledge(e.ctx, all[n].Number), nil)
				}
			}
			e.mustUse("acknowledged", 15, "acme")
			e.settle("the holder", e.work(e.lasting(), 5, "acme"), charged(finished("answer"), 1), nil)
			if c, last := e.mustCharge("the next", "acme: 1"), all[len(all)-1]; c[0].Number <= last.Number {
				e.failf("got the charge %v after %v was acknowledged, want a higher number", c[0], last)
			}
		})},
	{"units-count", "Count charges at once, each time anew; without an account or units it charges nothing.",
		counts(func(e *counter) {
			for _, units := range []int64{5, 0, -1, 5} {
				e.mustBe("Count", e.Count(e.ctx, idem.NewAccount("acme", "key"), units), nil)
				e.mustBe("Count", e.Count(e.ctx, "", units), nil)
			}
			e.mustUse("counted", 10, "acme")
			e.mustDoubt("counted")
			e.mustCharge("counted", "acme key: 5", "acme key: 5")
		})},
	{"units-erase", "Erase of an idem.Eraser removes uncertain charges, and leaves those that are final.",
		counts(func(e *counter) {
			eraser, ok := e.store.(idem.Eraser)
			if !ok {
				return
			}
			for i, s := range append(outcomes, outcomeFree) {
				c := e.ofOrganization("acme", "", fmt.Sprint(i))
				c.Account, c.Units = idem.NewAccount("acme"), 9
				e.made(c)
				if s.Outcome != idem.OutcomeFree { // one is held
					e.settle("the holder", c, charged(s, int64(i+1)), nil)
				}
			}
			_, err := eraser.Erase(e.ctx, "acme")
			e.mustBe("Erase", err, nil)
			e.mustUse("erased", 1, "acme")
			e.mustDoubt("erased")
			e.mustCharge("erased", "acme: 1")
		})},
}

func sameCharge(a, b idem.Charge) bool { return a.Number == b.Number && a.ID == b.ID }

var joinedUnitRules = []rule{
	{"join-units", "A joined claim is charged when it is committed, and not with RollBack.",
		counts(func(e *counter) {
			for i, s := range []idem.Settlement{finished("answer"), refused, outcomeFree} {
				c := e.lasting()
				c.Key, c.Account, c.Units = idem.NewKey("organization", fmt.Sprint(i)), idem.NewAccount("acme"), 5
				j := e.mustJoin("a new key", c, 1)
				e.write(j, fmt.Sprint("row ", i))
				e.mustUse("open", min(int64(i), 1)*7, "acme")
				e.settleJoined("the holder", j, charged(s, 7))
				e.mustUse("settled", 7, "acme")
			}
			e.mustHaveRows("settled", "row 0")
			e.mustDoubt("settled")
			e.mustCharge("settled", "acme: 7")
		})},
	{"join-units-take-over", "A Join that takes over replaces an uncertain charge when it commits, and else leaves it.",
		counts(func(e *counter) {
			c := e.work(e.lasting(), 5, "acme", "old")
			e.settle("the holder", c, charged(unknown, 5), nil)
			taker := reexecuting(c)
			taker.Account = idem.NewAccount("acme", "new")
			e.settleJoined("the taker", e.mustJoin("with Reexecute", taker, 2), outcomeFree)
			e.mustDoubt("rolled back", "acme old: 5 uncertain")
			taker = reexecuting(taker)
			e.settleJoined("the taker", e.mustJoin("with Reexecute", taker, 2), charged(finished("answer"), 3))
			e.mustDoubt("committed")
			e.mustCharge("committed", "acme new: 3")
			e.mustUse("committed", 3, "acme")
		})},
}
