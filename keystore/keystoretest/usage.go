package keystoretest

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func (t test) touch(uses ...keystore.Use) {
	t.Helper()
	t.noError(t.AddUses(t.Context(), uses), "AddUses")
}

func use(k *keystore.Key, at time.Time) keystore.Use {
	return keystore.Use{Organization: k.Organization, ID: k.ID, At: at}
}

func (t test) wantUsed(k *keystore.Key, want time.Time, rule string) {
	t.Helper()
	if got := t.find(k).LastUsedAt; !got.Equal(want) {
		t.Errorf("%s: LastUsedAt is %v, want %v", rule, got, want)
	}
}

var touchCases = []testCase{
	{"AddUses/Forward", func(t test) {
		k, now := t.inserted(), at(0)
		t.touch(use(k, now))
		t.wantUsed(k, now, "AddUses of a key that was never used")
		t.touch(use(k, now.Add(-time.Microsecond)))
		t.wantUsed(k, now, "AddUses with an earlier time")
		t.touch(use(k, now.Add(2*time.Microsecond)), use(k, now.Add(time.Microsecond)))
		t.wantUsed(k, now.Add(2*time.Microsecond), "AddUses with two later times, the latest first")
	}},

	{"AddUses/Others", func(t test) {
		k, other := t.inserted(), t.inserted()
		now := at(0)
		t.touch()
		t.touch(
			keystore.Use{Organization: other.Organization, ID: k.ID, At: now},
			keystore.Use{Organization: k.Organization, ID: unique("key"), At: now},
			use(other, now),
		)
		t.wantUsed(k, time.Time{}, "AddUses of the key as another organization")
		t.wantUsed(other, now, "AddUses of a key beside uses that have to be ignored")
		t.same("Lookup of the key that was not touched", t.lookup(k), k)
	}},

	{"AddUses/Many", func(t test) {
		// As many uses as Uses hands over in one call.
		k, now := t.inserted(), at(0)
		uses := make([]keystore.Use, 1000)
		for i := range uses {
			uses[i] = keystore.Use{Organization: k.Organization, ID: unique("key"), At: now}
		}
		uses[len(uses)/2] = use(k, now)
		t.touch(uses...)
		t.wantUsed(k, now, "AddUses of 1000 keys")
	}},

	{"AddUses/NothingElse", func(t test) {
		k := t.inserted()
		read := t.find(k)
		t.touch(use(k, at(0)))
		t.same("Find after AddUses", t.find(k), k)
		read.RevokedAt = at(-time.Minute)
		t.noError(t.tryUpdate(read), "Update of a key that was touched since it was read, which is no conflict,")
		used := at(time.Second)
		t.touch(use(k, used))
		read.Version = 2
		t.same("Find, after a revoked key was touched,", t.find(k), read)
		t.wantUsed(k, used, "AddUses of a key that is revoked")
	}},

	{"AddUses/RevokeRace", func(t test) {
		for range 5 {
			k, now := t.inserted(), at(0)
			revoked := k.Clone()
			revoked.RevokedAt = now
			t.allWin(atOnce(racers, func(i int) error {
				if i == racers/2 {
					return t.tryUpdate(revoked)
				}
				return t.AddUses(t.Context(), []keystore.Use{use(k, now.Add(time.Duration(i)*time.Second))})
			}), "AddUses and Update")
			revoked.Version = 2
			t.same("Find, after a key was touched while it was revoked,", t.find(k), revoked)
			t.wantUsed(k, now.Add((racers-1)*time.Second), "concurrent calls of AddUses")
		}
	}},
}

func (t test) usage(k *keystore.Key) *issuing.Usage {
	t.Helper()
	return must(t.Usage(t.Context(), k.Organization, k.ID))(t, "Usage of a key that was inserted")
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

func (t test) wantScopes(k *keystore.Key, want map[scope.Name]time.Time, rule string) {
	t.Helper()
	if got := t.usage(k).Scopes; !maps.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("%s: Usage has the scopes %v, want %v", rule, got, want)
	}
}

func (t test) wantDays(k *keystore.Key, want []issuing.Day, rule string) {
	t.Helper()
	same := func(a, b issuing.Day) bool { return a.Date.Equal(b.Date) && a.Requests == b.Requests }
	if got := t.usage(k).Days; !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: Usage has the days %v, want %v", rule, got, want)
	}
}

func (t test) wantRefusals(k *keystore.Key, want []keystore.Refusal, rule string) {
	t.Helper()
	same := func(a, b keystore.Refusal) bool { return a.At.Equal(b.At) && a.Code == b.Code && a.Route == b.Route }
	if got := t.usage(k).Refusals; !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: Usage has the refusals %v, want %v", rule, got, want)
	}
}

var usageCases = []testCase{
	{"Usage/From", func(t test) {
		k := t.inserted()
		if got := t.usage(k); !got.LastUsedAt.IsZero() || got.LastUsedFrom.IsValid() {
			t.Errorf("Usage of a key that was never used returned %+v", got)
		}
		early := use(k, at(0))
		early.From = netip.MustParseAddr("192.0.2.1")
		late := early
		for _, from := range []string{"192.0.2.7", "2001:db8::1:2", "fe80::1%eth0", ""} {
			late.At = late.At.Add(time.Microsecond)
			late.From, _ = netip.ParseAddr(from) // none for the empty text
			t.touch(early, late, early)
			t.touch(early)
			got := t.usage(k)
			if !got.LastUsedAt.Equal(late.At) || got.LastUsedFrom.WithZone("") != late.From.WithZone("") {
				t.Errorf("AddUses from %q at %v, beside earlier uses: Usage has %v and %v", from, late.At, got.LastUsedFrom,
					got.LastUsedAt)
			}
		}
	}},

	{"Usage/Scopes", func(t test) {
		day, k := days(), t.inserted()
		t.wantScopes(k, nil, "a key that was never used")
		now := day(1).Add(5 * time.Hour)
		odd := scope.Name("Tasks:Read/'é")
		t.touch(observed(k, now.AddDate(0, 0, -400), scope.TasksRead, odd))
		t.touch(observed(k, now, scope.TasksRead), observed(k, now.AddDate(0, 0, -1), scope.TasksRead, scope.TasksWrite))
		t.touch(observed(k, now.AddDate(0, 0, -2), scope.TasksRead, scope.TasksWrite))
		t.wantScopes(k, map[scope.Name]time.Time{
			scope.TasksRead: day(1), scope.TasksWrite: day(2), odd: day(401),
		}, "uses in another order than that of their days")
	}},

	{"Usage/Days", func(t test) {
		day, k := days(), t.inserted()
		midnight := day(1)
		// 28 days ago is within 30 days also if midnight passes meanwhile.
		t.touch(observed(k, midnight), observed(k, midnight.Add(-time.Microsecond)), observed(k, day(28)),
			observed(k, day(31)))
		t.touch(observed(k, midnight.Add(24*time.Hour-time.Microsecond)), observed(k, midnight))
		t.touch(use(k, midnight), observed(k, day(28)))
		want := []issuing.Day{{Date: midnight, Requests: 6}, {Date: day(2), Requests: 2}, {Date: day(28), Requests: 4}}
		t.wantDays(k, want, "requests of several days, and some of 31 days ago")
	}},

	{"Usage/Observed", func(t test) {
		k := t.inserted()
		now := at(0)
		for i, u := range []keystore.Use{
			use(k, now), observed(k, now.Add(-time.Second)), observed(k, now.Add(time.Second)), use(k, now.Add(time.Minute)),
		} {
			t.touch(u)
			want := now.Add(-time.Second)
			if i == 0 {
				want = time.Time{}
			}
			if got := t.usage(k).ObservedSince; !got.Equal(want) {
				t.Errorf("after %d uses, the second of which has the first requests, ObservedSince is %v, want %v", i+1, got, want)
			}
		}
	}},

	{"Usage/Others", func(t test) {
		day, k, other := days(), t.inserted(), t.inserted()
		strange := observed(other, at(0), scope.TasksRead)
		strange.ID = k.ID
		t.touch(strange, observed(other, day(1), scope.TasksWrite))
		t.wantScopes(k, nil, "uses as another organization")
		t.wantDays(k, nil, "uses as another organization")
		t.wantDays(other, []issuing.Day{{Date: day(1), Requests: 2}}, "uses beside those of another key")
		_, err := t.Usage(t.Context(), other.Organization, k.ID)
		t.wantError(err, keystore.ErrNotFound, "Usage of a key of another organization")
		late := newKey(k.Organization)
		t.touch(observed(late, at(0), scope.TasksRead))
		t.insert(late)
		t.wantScopes(late, nil, "uses of a key that was not there")
	}},

	{"Usage/Owned", func(t test) {
		day, k := days(), t.inserted()
		t.touch(observed(k, day(1), scope.TasksRead))
		u := t.usage(k)
		u.Scopes[scope.TasksRead], u.Days[0].Requests = time.Time{}, 7
		t.wantScopes(k, map[scope.Name]time.Time{scope.TasksRead: day(1)}, "a caller who writes to Usage")
		t.wantDays(k, []issuing.Day{{Date: day(1), Requests: 2}}, "a caller who writes to Usage")
	}},

	{"Usage/ScopesUnused", func(t test) {
		day := days()
		organization, two := unique("org"), []scope.Name{"a:read", "a:read:all"} // the one is within the other
		made := func(scopes []scope.Name, uses ...[]scope.Name) *keystore.Key {  // on the days before today
			k := newKey(organization)
			k.Scopes = scopes
			t.insert(k)
			for ago := len(uses); ago > 0; ago-- {
				t.touch(observed(k, day(ago).Add(time.Hour), uses[ago-1]...))
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
		t.wantTotal(organization, p, 1)
		t.wantPages(organization, p, "of whose scopes some were needed", wanted)
		p.ScopesUnusedSince = day(2).Add(-2 * time.Hour)
		t.wantPages(organization, p, "of whose scopes some were needed, since a day on which all were")
	}},

	{"Usage/Refusals", func(t test) {
		k, other, now := t.inserted(), t.inserted(), at(0)
		refused := func(k *keystore.Key, after time.Duration, code, route string) keystore.Use {
			return keystore.Use{Organization: k.Organization, ID: k.ID,
				Refused: keystore.Refusal{At: now.Add(after), Code: code, Route: route}}
		}
		t.touch(refused(k, 0, "insufficient_scope", "POST /tasks"))
		t.wantUsed(k, time.Time{}, "a refusal without a use, of a key that was never used")
		strange := refused(other, time.Minute, "not_found", "")
		strange.ID = k.ID
		used := use(k, now)
		used.Refused = refused(k, time.Second, "rate_limited", "").Refused
		t.touch(strange, refused(other, 0, "not_found", ""), used)
		odd := `GET example.com/{name...} "'é\`
		t.touch(refused(k, 2*time.Second, "insufficient_scope", odd))
		t.touch(observed(k, now))
		t.wantUsed(k, now, "a refusal without a use, of a key that was used")
		want := []keystore.Refusal{
			{At: now.Add(2 * time.Second), Code: "insufficient_scope", Route: odd},
			{At: now.Add(time.Second), Code: "rate_limited"},
		}
		t.wantRefusals(k, want, "two refusals of one code, and one of another in between")
		t.wantRefusals(other, []keystore.Refusal{{At: now, Code: "not_found"}},
			"one refusal, and one as another organization")
		t.usage(k).Refusals[0] = keystore.Refusal{}
		t.wantRefusals(k, want, "a caller who writes to Usage")
		t.same("Find after refusals", t.find(k), k)
		t.allWin(atOnce(racers, func(i int) error {
			return t.AddUses(t.Context(), []keystore.Use{refused(other, time.Duration(i)*time.Second, strconv.Itoa(i), "")})
		}), "AddUses")
		if got := len(t.usage(other).Refusals); got != racers+1 {
			t.Errorf("concurrent calls of AddUses with %d codes: Usage has %d refusals, want one more", racers, got)
		}
	}},

	{"Usage/Race", func(t test) {
		day, k, other := days(), t.inserted(), t.inserted()
		t.allWin(atOnce(racers, func(i int) error {
			uses := []keystore.Use{observed(k, day(1), scope.TasksRead), observed(other, day(2), scope.TasksWrite)}
			if i%2 == 0 {
				slices.Reverse(uses)
			}
			return t.AddUses(t.Context(), uses)
		}), "AddUses")
		t.wantDays(k, []issuing.Day{{Date: day(1), Requests: 2 * racers}}, "concurrent calls of AddUses")
		t.wantDays(other, []issuing.Day{{Date: day(2), Requests: 2 * racers}}, "concurrent calls of AddUses")
	}},
}
