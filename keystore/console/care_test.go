package console_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

const day = 24 * time.Hour

// use records one request with a key, now.
func (b *bench) use(t *testing.T, k *keystore.Key, scopes ...scope.Name) {
	t.Helper()
	b.record(t, k, keystore.Use{At: time.Now(), Requests: 1, Scopes: scopes})
}

func (b *bench) record(t *testing.T, k *keystore.Key, u keystore.Use) {
	t.Helper()
	u.Organization, u.ID = k.Organization, k.ID
	if err := b.store.AddUses(t.Context(), []keystore.Use{u}); err != nil {
		t.Fatal(err)
	}
}

func TestCare(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		three := holding(scope.AccountRead, scope.TasksRead, scope.TasksWrite)
		add := func(name string, change ...func(*keystore.Key)) *keystore.Key {
			_, k := b.add(t, "acme", append(change, called(name))...)
			time.Sleep(time.Second)
			return k
		}
		quiet, wide := add("quiet"), add("wide", three)
		asleep := add("asleep")
		b.suspend(t, asleep)
		b.use(t, quiet)
		b.use(t, wide, scope.TasksWrite)
		time.Sleep(62 * day)
		b.use(t, wide, scope.TasksRead)
		young := add("young", three)
		b.use(t, young)
		time.Sleep(97 * day)
		b.use(t, young, scope.TasksRead)
		b.use(t, wide, scope.TasksRead)
		add("soon", ending(15*day))
		add("later", ending(17*day))
		time.Sleep(2 * day)
		add("new")
		list := b.get("/")
		wantText(t, "the strip", list, 200, "Expiring within 14 days 1", "Unused for 90 days 1",
			"Never used, over a day old 2", "Scopes unused")
		for text, want := range map[string][]string{
			"Expiring within 14 days": {"soon"}, "Unused for 90 days": {"quiet"},
			"Never used, over a day old": {"later", "soon"}, "Scopes unused": {"wide"},
		} {
			at := address(list, text+" ?")
			if got := names(b.get(at)); !slices.Equal(got, want) {
				t.Errorf("%s, %q: got %q, want %q", text, at, got, want)
			}
		}
		// Of the keys with unused scopes those can be taken away.
		page := b.get("/" + wide.ID)
		wantText(t, "its page", page, 200, "No request has needed account:read , tasks:write for 100 days.",
			"Take these 2 away")
		for what, k := range map[string]*keystore.Key{"is observed for 99 days": young, "uses none of its scopes": quiet} {
			wantNone(t, "a key that "+what, b.get("/"+k.ID), "away")
		}
		wantText(t, "done", b.post("/"+wide.ID+"/narrow", url.Values{"without": {"account:read", "tasks:write"}}), 303)
		wantText(t, "its page again", b.get("/"+wide.ID+"?done=narrowed"), 200, "The scopes are taken away.")
		if k := b.key(t, wide.ID); !slices.Equal(k.Scopes, []scope.Name{scope.TasksRead}) {
			t.Errorf("the key holds %v", k.Scopes)
		}
		if got := b.get("/?status=scopes"); len(names(got)) != 0 {
			t.Errorf("after that: got %q", names(got))
		}
		wantText(t, "a state without keys", b.get("/?status=scopes"), 200, "Nothing to do")
	})
}

// When a key begins to need care.
func TestWhenCareIsDue(t *testing.T) {
	for _, row := range []struct {
		status       string
		life         time.Duration // of the key, from when the list is asked for; zero: it does not end
		made, unused time.Duration // ago; zero: never used
		due          bool
	}{
		{"expiring", 14*day - time.Hour, day, 0, true},
		{"expiring", 14*day + time.Hour, day, 0, false},
		{"unused", 0, 91 * day, 90*day - time.Hour, false},
		{"unused", 0, 91 * day, 90*day + time.Hour, true},
		{"never", 0, day - time.Hour, 0, false},
		{"never", 0, day + time.Hour, 0, true},
		{"never", 0, 91 * day, 90 * day, false},
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			_, k := b.add(t, "acme", func(g *keystore.Key) {
				if row.life > 0 {
					g.ExpiresAt = time.Now().Add(row.made + row.life)
				}
			})
			time.Sleep(row.made - row.unused)
			if row.unused > 0 {
				b.use(t, k)
				time.Sleep(row.unused)
			}
			if due := len(names(b.get("/?status="+row.status))) > 0; due != row.due {
				t.Errorf("%+v: it is listed: %t", row, due)
			}
		})
	}
}

// A scope that a request needs while the page is open stays.
func TestAScopeThatIsUsedMeanwhileStays(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		_, k := b.add(t, "acme", holding(scope.TasksRead, scope.TasksWrite))
		b.use(t, k, scope.TasksRead)
		time.Sleep(102 * day)
		b.use(t, k, scope.TasksRead)
		wantText(t, "its page", b.get("/"+k.ID), 200, "Take it away")
		b.use(t, k, scope.TasksWrite)
		got := b.post("/"+k.ID+"/narrow", url.Values{"without": {"tasks:write"}})
		wantText(t, "the button", got, 409, "This scope is in use", "A request has needed tasks:write")
		if got := b.key(t, k.ID).Scopes; len(got) != 2 {
			t.Errorf("the key holds %v", got)
		}
	})
}

// A scope is unused when the last day of its use has been over for 100 days.
func TestScopesAreUnusedAfter100Days(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		_, k := b.add(t, "acme", holding(scope.TasksRead, scope.TasksWrite))
		time.Sleep(23 * time.Hour)
		b.use(t, k, scope.TasksRead, scope.TasksWrite)
		time.Sleep(100*day + 30*time.Minute)
		b.use(t, k, scope.TasksRead)
		if got := names(b.get("/?status=scopes")); len(got) != 0 {
			t.Errorf("100 days after that: got %q", got)
		}
		wantNone(t, "a scope is offered to be taken away too early", b.get("/"+k.ID), "away")
		time.Sleep(time.Hour)
		list := b.get("/?status=scopes")
		if got := names(list); len(got) != 1 {
			t.Errorf("100 days after the end of that day: got %q", got)
		}
		wantText(t, "the page", b.get("/"+k.ID), 200, "Take it away")
		wantText(t, "the list", list, 200, "some of their scopes since "+
			time.Now().UTC().AddDate(0, 0, -100).Format("2 Jan 2006"), "the 1,000 newest")
	})
}

// A count is bounded, and says so.
func TestCareCountsToAHundred(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for i := range 100 {
			if i == 99 {
				time.Sleep(2 * day)
				wantText(t, "the strip with 99", b.get("/"), 200, "Never used, over a day old 99 ")
			}
			b.add(t, "acme")
		}
		time.Sleep(2 * day)
		wantText(t, "the strip with 100", b.get("/"), 200, "Never used, over a day old 99+")
	})
}
