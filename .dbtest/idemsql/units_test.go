package idemsql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// of returns a claim that is charged to a tenant's key, and using a settlement
// with its units.
func of(tenant string, units int64, c idem.Claim) idem.Claim {
	c.Account, c.Units = idem.NewAccount(tenant, "key"), units
	return c
}

func using(units int64, s idem.Settlement) idem.Settlement {
	s.Units = units
	return s
}

var (
	unknown  = idem.Settlement{Outcome: idem.OutcomeUnknown, Retention: time.Hour}
	keepsAll = idemsql.Options{KeepCharges: true}
)

// mustUse wants a tenant, and its key, to have used so many units.
func mustUse(t testing.TB, s idem.Counter, tenant string, want int64) {
	t.Helper()
	for _, a := range []idem.Account{idem.NewAccount(tenant), idem.NewAccount(tenant, "key")} {
		if got, now, err := s.Used(t.Context(), a, time.Time{}); got != want || err != nil || now.IsZero() {
			t.Errorf("%q has used %d units at %v, error %v, want %d", a, got, now, err, want)
		}
	}
}

// folds has Run add up all that is final.
func folds(t testing.TB, db *sql.DB, s store) {
	t.Helper()
	swept(t, s) // what is added up before
	mustCount(t, db, "SELECT count(*) FROM sallyport_idem WHERE account IS NOT NULL AND state = 3", 0)
}

// bill returns the units of all charges, and acknowledges them.
func bill(t testing.TB, s idem.Counter) (units []int64) {
	t.Helper()
	for {
		some, err := s.Charges(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			return units
		}
		for _, c := range some {
			units = append(units, c.Units)
		}
		if err := s.Acknowledge(t.Context(), some[len(some)-1].Number); err != nil {
			t.Fatal(err)
		}
	}
}

func mustBill(t testing.TB, s idem.Counter, want ...int64) {
	t.Helper()
	got := bill(t, s)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the charges are of %v units, want %v", got, want)
	}
}

// What becomes of a claim decides what is charged, before it is added up and after.
func TestUnits(t *testing.T) {
	settle := func(as ...idem.Settlement) func(*testing.T, *sql.DB, store, idem.Claim) {
		return func(t *testing.T, _ *sql.DB, s store, c idem.Claim) {
			begin(t, s, c, idem.Claimed)
			for _, a := range as {
				mustSettle(t, s, c, a)
			}
		}
	}
	joined := func(as idem.Settlement) func(*testing.T, *sql.DB, store, idem.Claim) {
		return func(t *testing.T, _ *sql.DB, s store, c idem.Claim) {
			_, j := join(t, s, c, idem.Claimed)
			mustEnd(t, j, as)
		}
	}
	rolledBack := finished("refused")
	rolledBack.RollBack = true
	for _, row := range []struct {
		name string
		do   func(*testing.T, *sql.DB, store, idem.Claim)
		// What is used, what of it is uncertain, and the charges after a fold.
		used, uncertain int64
		billed          []int64
	}{
		{"held", settle(), 0, 0, nil},
		{"done", settle(using(7, finished("answer"))), 7, 0, []int64{7}},
		{"done, sent again", settle(using(7, finished("answer")), using(8, finished("answer"))), 7, 0, []int64{7}},
		{"done, for nothing", settle(finished("answer")), 0, 0, nil},
		{"free", settle(outcomeFree), 0, 0, nil},
		{"unknown", settle(using(4, unknown)), 4, 4, nil},
		{"unknown, for nothing", settle(unknown), 0, 0, nil},
		{"joined", joined(using(7, finished("answer"))), 7, 0, []int64{7}},
		{"joined, rolled back", joined(using(7, rolledBack)), 0, 0, nil},
		{"joined, free", joined(outcomeFree), 0, 0, nil},
		{"lapsed", func(t *testing.T, db *sql.DB, s store, c idem.Claim) {
			c.Lease = time.Millisecond
			begin(t, s, c, idem.Claimed)
			<-time.After(5 * time.Millisecond)
		}, 5, 5, nil},
		{"lapsed, then done", func(t *testing.T, db *sql.DB, s store, c idem.Claim) {
			c.Lease = time.Millisecond
			begin(t, s, c, idem.Claimed)
			<-time.After(5 * time.Millisecond)
			begin(t, s, again(c), idem.Unknown)
			mustSettle(t, s, c, using(7, finished("answer")))
		}, 7, 0, []int64{7}},
		{"taken over", func(t *testing.T, db *sql.DB, s store, c idem.Claim) {
			begin(t, s, c, idem.Claimed)
			mustSettle(t, s, c, using(4, unknown))
			next := again(c)
			next.Reexecute, next.Account = true, idem.NewAccount("acme", "key", "child")
			begin(t, s, next, idem.Claimed)
			mustUse(t, s, "acme", 0)
			mustSettle(t, s, next, using(9, finished("answer")))
			if units, _, err := s.Used(t.Context(), next.Account, time.Time{}); units != 9 || err != nil {
				t.Errorf("the account that took over has used %d, error %v, want 9", units, err)
			}
		}, 9, 0, []int64{9}},
		{"without a key", func(t *testing.T, db *sql.DB, s store, c idem.Claim) {
			for _, units := range []int64{3, 0, -1} {
				if err := s.Count(t.Context(), c.Account, units); err != nil {
					t.Error(err)
				}
			}
			if err := s.Count(t.Context(), "", 3); err != nil {
				t.Error(err)
			}
		}, 3, 0, []int64{3}},
		{"without an account", func(t *testing.T, db *sql.DB, s store, c idem.Claim) {
			c.Account = ""
			begin(t, s, c, idem.Claimed)
			mustSettle(t, s, c, using(7, finished("answer")))
		}, 0, 0, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			inEach(t, func(t *testing.T, d database) {
				db := d.open(t)
				s := d.on(db, keepsAll)
				row.do(t, db, s, of("acme", 5, claim("key")))
				mustUse(t, s, "acme", row.used)
				mustUse(t, s, "other", 0)
				mustDoubt(t, s, row.uncertain)
				folds(t, db, s)
				mustUse(t, s, "acme", row.used)
				mustUse(t, s, "acm", 0)
				mustDoubt(t, s, row.uncertain)
				mustBill(t, s, row.billed...)
				mustUse(t, s, "acme", row.used)
				folds(t, db, s)
				mustUse(t, s, "acme", row.used)
				if units, _, err := s.Used(t.Context(), "", time.Time{}); units != 0 || err != nil {
					t.Errorf("no account has used %d units, error %v", units, err)
				}
			})
		})
	}
}

// mustDoubt wants so many units to be uncertain.
func mustDoubt(t testing.TB, s idem.Counter, want int64) {
	t.Helper()
	all, err := s.Uncertain(t.Context(), 10)
	var got int64
	for _, c := range all {
		got += c.Units
		if !c.Uncertain || c.Number != 0 || len(c.ID) != 32 || c.Account == "" || c.Began.IsZero() {
			t.Errorf("an uncertain charge is %+v", c)
		}
	}
	if err != nil || got != want {
		t.Errorf("%d units are uncertain, error %v, want %d", got, err, want)
	}
}

// A record that expires before its charge is added up keeps its key until then.
func TestExpiredBeforeFold(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, keepsAll)
		doneOne, held, left := of("acme", 5, claim("done")), of("acme", 5, claim("held")), of("acme", 5, claim("left"))
		for _, c := range []idem.Claim{doneOne, held, left} {
			begin(t, s, c, idem.Claimed)
		}
		mustSettle(t, s, doneOne, using(7, finished("answer")))
		mustSettle(t, s, left, using(4, unknown))
		d.advance(t, db, 2*time.Hour)
		for c, want := range map[*idem.Claim]idem.State{&doneOne: idem.Done, &held: idem.Unknown, &left: idem.Unknown} {
			next := again(*c)
			next.Reexecute = true
			if r := begin(t, s, next, want); want == idem.Done && string(r.Payload) != "answer" {
				t.Errorf("got the payload %q", r.Payload)
			}
			join(t, s, next, want)
		}
		if err := s.Settle(t.Context(), held.Key, held.Token, using(99, finished("late"))); err != idem.ErrLost {
			t.Errorf("Settle of a claim that has expired: got %v, want ErrLost", err)
		}
		mustUse(t, s, "acme", 16)
		folds(t, db, s)
		mustUse(t, s, "acme", 16)
		all, err := s.Charges(t.Context(), 10)
		if err != nil || len(all) != 3 {
			t.Fatalf("got %v, error %v, want 3 charges", all, err)
		}
		for i, c := range all {
			if c.Number != int64(i+1) || c.Uncertain != (c.Units != 7) || c.Account != doneOne.Account ||
				time.Since(c.Began) < 2*time.Hour {
				t.Errorf("charge %d is %+v", i, c)
			}
		}
		for _, c := range []idem.Claim{doneOne, held, left} {
			if r := begin(t, s, again(c), idem.Claimed); r.Attempt != 1 {
				t.Errorf("got attempt %d of a key that is free, want 1", r.Attempt)
			}
		}
	})
}

// A claim whose charge was added up, as uncertain, is not taken over, though it has
// not expired by the clock of a server that has the database since, or by the time
// at which a statement began: it would be charged twice.
func TestTakeOverOfWhatIsAddedUp(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, keepsAll)
		held, left := of("acme", 5, claim("held")), of("acme", 5, claim("left"))
		begin(t, s, held, idem.Claimed)
		begin(t, s, left, idem.Claimed)
		mustSettle(t, s, left, using(4, unknown))
		late := false
		run(t, s, func() bool {
			if !late && !s.Swept().IsZero() { // the next sweep is a minute away
				d.advance(t, db, 2*time.Hour)
				late = true
			}
			<-time.After(10 * time.Millisecond)
			return late && count(t, db, rows+" WHERE account IS NULL") == 2
		})
		mustUse(t, s, "acme", 9)
		d.advance(t, db, -90*time.Minute)
		for _, c := range []idem.Claim{held, left} {
			c = again(c)
			c.Reexecute = true
			begin(t, s, c, idem.Unknown)
			join(t, s, c, idem.Unknown)
		}
		mustUse(t, s, "acme", 9)
		mustBill(t, s, 4, 5)
	})
}

// The sweep leaves rows whose charge is not added up, and removes them later.
func TestSweepLeavesUnits(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, idemsql.Options{})
		begin(t, s, of("acme", 5, claim("key")), idem.Claimed)
		d.advance(t, db, 2*time.Hour)
		execute(t, db, "ALTER TABLE sallyport_used RENAME TO away")
		sweep(t, s, db, 0)
		if d.conf != nil {
			mustCount(t, db, rows+" WHERE sweep_at BETWEEN now() + interval '50 seconds' AND now() + interval '1 minute'", 1)
		}
		execute(t, db, "ALTER TABLE away RENAME TO sallyport_used")
		folds(t, db, s)
		d.advance(t, db, 2*time.Minute)
		swept(t, s)
		mustCount(t, db, rows, 0)
		mustUse(t, s, "acme", 5)
	})
}

// A charge counts in the day of its claim.
func TestUnitsOfDays(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, keepsAll)
		account := idem.NewAccount("acme", "key")
		const day = 24 * time.Hour
		var today time.Time
		since := func(days int, want int64) {
			t.Helper()
			got, now, err := s.Used(t.Context(), account, today.AddDate(0, 0, -days))
			if got != want || err != nil || time.Since(now).Abs() > time.Minute {
				t.Errorf("since %d days before: got %d at %v, error %v, want %d", days, got, now, err, want)
			}
		}
		for _, units := range []int64{1, 10, 100} { // 62, 31 and 0 days ago
			c := of("acme", units, claim(fmt.Sprint(units)))
			c.Retention = 10000 * time.Hour
			if units > 1 {
				d.advance(t, db, 31*day)
			}
			begin(t, s, c, idem.Claimed)
			mustSettle(t, s, c, idem.Settlement{Outcome: idem.OutcomeDone, Units: units, Retention: 10000 * time.Hour})
		}
		_, now, err := s.Used(t.Context(), account, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		today = now.Truncate(day)
		for range 2 {
			since(0, 100)
			since(30, 100)
			since(31, 110)
			since(61, 110)
			since(62, 111)
			folds(t, db, s)
		}
		mustCount(t, db, "SELECT count(*) FROM sallyport_used WHERE day > 1", 6)
		mustBill(t, s, 1, 10, 100)
	})
}

// Once one process keeps charges, all do.
func TestKeepChargesStays(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		keeps, old := d.on(db, keepsAll), d.on(d.open(t), idemsql.Options{})
		charge := func() {
			t.Helper()
			if err := old.Count(t.Context(), idem.NewAccount("acme", "key"), 5); err != nil {
				t.Fatal(err)
			}
			folds(t, db, old)
		}
		charge()
		mustBill(t, old)
		folds(t, db, keeps) // nothing
		charge()
		mustBill(t, old, 5)
		charge()
		mustBill(t, keeps, 5)
		mustUse(t, old, "acme", 15)
	})
}

// What is charged finally stays when an organization is erased.
func TestEraseKeepsUnits(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, keepsAll)
		for i := range 600 {
			c := of("acme", 5, ofAcme(fmt.Sprint(i)))
			begin(t, s, c, idem.Claimed)
			switch {
			case i < 550:
				mustSettle(t, s, c, using(7, finished("answer")))
			case i < 560:
				mustSettle(t, s, c, using(4, unknown))
			}
		}
		mustUse(t, s, "acme", 550*7+10*4)
		if n, err := s.Erase(t.Context(), "acme"); n != 600 || err != nil {
			t.Errorf("Erase: got %d, %v, want 600", n, err)
		}
		mustCount(t, db, rows, 0)
		mustUse(t, s, "acme", 550*7)
		if got := bill(t, s); len(got) != 550 {
			t.Errorf("got %d charges, want 550", len(got))
		}
	})
}

// An account is not cut.
func TestLongAccount(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, idemsql.Options{})
		names := slices.Repeat([]string{strings.Repeat("\xff", 100)}, 5)
		c := claim("key")
		c.Account, c.Units = idem.NewAccount(names...), 5
		begin(t, s, c, idem.Claimed)
		mustSettle(t, s, c, using(5, finished("answer")))
		for range 2 {
			for _, a := range c.Account.Within() {
				if got, _, err := s.Used(t.Context(), a, time.Time{}); got != 5 || err != nil {
					t.Errorf("%d bytes: got %d, %v, want 5", len(a), got, err)
				}
			}
			folds(t, db, s)
		}
		c = claim("longer")
		c.Account = idem.NewAccount(append(names, "of the sixth")...)
		if _, err := s.Begin(t.Context(), c); err == nil || !strings.Contains(err.Error(), "account") {
			t.Errorf("Begin with an account of %d bytes: got %v", len(c.Account), err)
		}
		if _, _, err := s.Join(t.Context(), c, 0); err == nil || !strings.Contains(err.Error(), "account") {
			t.Errorf("Join with an account of %d bytes: got %v", len(c.Account), err)
		}
		if err := s.Count(t.Context(), c.Account, 1); err == nil || !strings.Contains(err.Error(), "account") {
			t.Errorf("Count with an account of %d bytes: got %v", len(c.Account), err)
		}
	})
}

// Each call of a Counter ends with its context, and says what is missing.
func TestCounterErrors(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db, s := d.store(t)
		account := idem.NewAccount("acme")
		calls := map[string]func(context.Context) error{
			"count":       func(ctx context.Context) error { return s.Count(ctx, account, 1) },
			"acknowledge": func(ctx context.Context) error { return s.Acknowledge(ctx, 1) },
			"used":        func(ctx context.Context) error { _, _, err := s.Used(ctx, account, time.Time{}); return err },
			"charges":     func(ctx context.Context) error { _, err := s.Charges(ctx, 1); return err },
			"uncertain":   func(ctx context.Context) error { _, err := s.Uncertain(ctx, 1); return err },
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range calls {
			if err := call(ended); err == nil || !strings.HasPrefix(err.Error(), "idemsql: "+name+": context canceled") {
				t.Errorf("%s with a context that has ended: got %v", name, err)
			}
		}
		execute(t, db, "DROP TABLE sallyport_idem")
		execute(t, db, "DROP TABLE sallyport_usage")
		for name, call := range calls {
			if err := call(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "; call Migrate") {
				t.Errorf("%s without the tables: got %v", name, err)
			}
		}
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "call Migrate") {
			t.Errorf("Check without the tables: got %v", err)
		}
	})
}
