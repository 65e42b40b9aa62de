package keystoretest

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func usage(t testing.TB, m issuing.Store, k *keystore.Key) *issuing.Usage {
	t.Helper()
	u, err := m.Usage(t.Context(), k.Organization, k.ID)
	if err != nil {
		t.Fatalf("Usage of a key that was inserted returned %v, want nil", err)
	}
	return u
}

// observed is a use of two requests that needed scopes.
func observed(k *keystore.Key, at time.Time, scopes ...scope.Name) keystore.Use {
	u := use(k, at)
	u.Requests, u.Scopes = 2, scopes
	return u
}

// days returns a function for the day that is n days ago. Midnight may pass
// without changing what it returns.
func days() func(n int) time.Time {
	today := at(0).Truncate(24 * time.Hour)
	return func(n int) time.Time { return today.AddDate(0, 0, -n) }
}

func wantScopes(t testing.TB, m issuing.Store, k *keystore.Key, want map[scope.Name]time.Time, rule string) {
	t.Helper()
	if got := usage(t, m, k).Scopes; !maps.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("%s: Usage has the scopes %v, want %v", rule, got, want)
	}
}

func wantDays(t testing.TB, m issuing.Store, k *keystore.Key, want []issuing.Day, rule string) {
	t.Helper()
	same := func(a, b issuing.Day) bool { return a.Date.Equal(b.Date) && a.Requests == b.Requests }
	if got := usage(t, m, k).Days; !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: Usage has the days %v, want %v", rule, got, want)
	}
}

var usageCases = []testCase{
	{"Usage/From", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		if got := usage(t, m, k); !got.LastUsedAt.IsZero() || got.LastUsedFrom.IsValid() {
			t.Errorf("Usage of a key that was never used returned %+v", got)
		}
		first := at(0)
		last := first
		for _, c := range []struct{ from, want string }{
			{"192.0.2.7", "192.0.2.7"}, {"2001:db8::1:2", "2001:db8::1:2"}, {"fe80::1%eth0", "fe80::1"}, {"", ""},
		} {
			last = last.Add(time.Microsecond)
			late, early := use(k, last), use(k, first)
			early.From = netip.MustParseAddr("192.0.2.1")
			if c.from != "" {
				late.From = netip.MustParseAddr(c.from)
			}
			touch(t, m, early, late, early)
			touch(t, m, early)
			got, text := usage(t, m, k), ""
			if got.LastUsedFrom.IsValid() {
				text = got.LastUsedFrom.WithZone("").String()
			}
			if !got.LastUsedAt.Equal(last) || text != c.want {
				t.Errorf("AddUses from %q at %v, beside earlier uses: Usage has %q and %v", c.from, last, text, got.LastUsedAt)
			}
		}
	}},

	{"Usage/Scopes", func(t testing.TB, m issuing.Store) {
		day := days()
		k := inserted(t, m)
		wantScopes(t, m, k, nil, "a key that was never used")
		now := day(1).Add(5 * time.Hour)
		odd := scope.Name("Tasks:Read/'é")
		touch(t, m, observed(k, now.AddDate(0, 0, -400), scope.TasksRead, odd))
		touch(t, m, observed(k, now, scope.TasksRead), observed(k, now.AddDate(0, 0, -1), scope.TasksRead, scope.TasksWrite))
		touch(t, m, observed(k, now.AddDate(0, 0, -2), scope.TasksRead, scope.TasksWrite))
		wantScopes(t, m, k, map[scope.Name]time.Time{
			scope.TasksRead: day(1), scope.TasksWrite: day(2), odd: day(401),
		}, "uses in another order than that of their days")
	}},

	{"Usage/Days", func(t testing.TB, m issuing.Store) {
		day := days()
		k := inserted(t, m)
		midnight := day(1)
		// 28 days ago is within 30 days also if midnight passes meanwhile.
		touch(t, m, observed(k, midnight), observed(k, midnight.Add(-time.Microsecond)), observed(k, day(28)),
			observed(k, day(31)))
		touch(t, m, observed(k, midnight.Add(24*time.Hour-time.Microsecond)), observed(k, midnight))
		touch(t, m, use(k, midnight), observed(k, day(28)))
		want := []issuing.Day{{Date: midnight, Requests: 6}, {Date: day(2), Requests: 2}, {Date: day(28), Requests: 4}}
		wantDays(t, m, k, want, "requests of several days, and some of 31 days ago")
	}},

	{"Usage/Observed", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		now := at(0)
		for i, u := range []keystore.Use{
			use(k, now), observed(k, now.Add(-time.Second)), observed(k, now.Add(time.Second)), use(k, now.Add(time.Minute)),
		} {
			touch(t, m, u)
			want := now.Add(-time.Second)
			if i == 0 {
				want = time.Time{}
			}
			if got := usage(t, m, k).ObservedSince; !got.Equal(want) {
				t.Errorf("after %d uses, the second of which has the first requests, ObservedSince is %v, want %v", i+1, got, want)
			}
		}
	}},

	{"Usage/Others", func(t testing.TB, m issuing.Store) {
		day := days()
		k, other := inserted(t, m), inserted(t, m)
		strange := observed(other, at(0), scope.TasksRead)
		strange.ID = k.ID
		touch(t, m, strange, observed(other, day(1), scope.TasksWrite))
		wantScopes(t, m, k, nil, "uses as another organization")
		wantDays(t, m, k, nil, "uses as another organization")
		wantDays(t, m, other, []issuing.Day{{Date: day(1), Requests: 2}}, "uses beside those of another key")
		_, err := m.Usage(t.Context(), other.Organization, k.ID)
		wantError(t, err, keystore.ErrNotFound, "Usage of a key of another organization")
		late := newKey(k.Organization)
		touch(t, m, observed(late, at(0), scope.TasksRead))
		insert(t, m, late)
		wantScopes(t, m, late, nil, "uses of a key that was not there")
	}},

	{"Usage/Owned", func(t testing.TB, m issuing.Store) {
		day := days()
		k := inserted(t, m)
		touch(t, m, observed(k, day(1), scope.TasksRead))
		u := usage(t, m, k)
		u.Scopes[scope.TasksRead], u.Days[0].Requests = time.Time{}, 7
		wantScopes(t, m, k, map[scope.Name]time.Time{scope.TasksRead: day(1)}, "a caller who writes to Usage")
		wantDays(t, m, k, []issuing.Day{{Date: day(1), Requests: 2}}, "a caller who writes to Usage")
	}},

	{"Usage/ScopesUnused", func(t testing.TB, m issuing.Store) {
		day := days()
		organization, two := unique("org"), []scope.Name{"a:read", "a:read:all"} // the one is within the other
		made := func(scopes []scope.Name, uses ...[]scope.Name) *keystore.Key {  // on the days before today
			k := newKey(organization)
			k.Scopes = scopes
			insert(t, m, k)
			for ago := len(uses); ago > 0; ago-- {
				touch(t, m, observed(k, day(ago).Add(time.Hour), uses[ago-1]...))
			}
			return k
		}
		wanted := made(two, two[:1], nil, two)
		made(two, two[:1], two[1:], two)                       // needed both
		made(two, nil, nil, two)                               // needed none
		made(two, two[:1])                                     // observed for a day
		made(two, []scope.Name{"b:read"}, two, two)            // no matter what it lost
		made([]scope.Name{}, []scope.Name{"a:read"}, nil, two) // holds none
		p := issuing.Query{ScopesUnusedSince: day(2).Add(2 * time.Hour), Limit: 1}
		wantTotal(t, m, organization, p, 1)
		wantPages(t, m, organization, p, "of whose scopes some were needed", wanted)
		p.ScopesUnusedSince = day(2).Add(-2 * time.Hour)
		wantPages(t, m, organization, p, "of whose scopes some were needed, since a day on which all were")
	}},

	{"Usage/Race", func(t testing.TB, m issuing.Store) {
		day := days()
		k, other := inserted(t, m), inserted(t, m)
		errs := atOnce(racers, func(i int) error {
			uses := []keystore.Use{observed(k, day(1), scope.TasksRead), observed(other, day(2), scope.TasksWrite)}
			if i%2 == 0 {
				slices.Reverse(uses)
			}
			return m.AddUses(t.Context(), uses)
		})
		for _, err := range errs {
			if err != nil {
				t.Errorf("one of %d concurrent calls of AddUses returned %v, want nil", racers, err)
			}
		}
		wantDays(t, m, k, []issuing.Day{{Date: day(1), Requests: 2 * racers}}, "concurrent calls of AddUses")
		wantDays(t, m, other, []issuing.Day{{Date: day(2), Requests: 2 * racers}}, "concurrent calls of AddUses")
	}},
}
