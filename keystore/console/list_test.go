package console_test

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/scope"
)

func TestNoListTellsADigestOrAToken(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme", func(g *keystore.Key) { g.IssueToken = "issue-token-of-mine" })
	digest := fmt.Sprintf("%x", k.Digest[:])
	for _, path := range []string{"/", "/" + k.ID} {
		wantNone(t, path, b.get(path), digest[:8], "issue-token-of-mine", "digest", "Digest")
	}
}

func TestFilters(t *testing.T) {
	b := newBench(t)
	b.add(t, "acme", called("live"))
	b.add(t, "acme", called("test"), func(g *keystore.Key) { g.Environment = keystore.Sandbox })
	_, gone := b.add(t, "acme", called("gone"))
	_, asleep := b.add(t, "acme", called("asleep"))
	b.revoke(t, gone)
	b.suspend(t, asleep)
	for query, want := range map[string][]string{
		"":                                     {"asleep", "test", "live", "gone"}, // behind a fold
		"?environment=sandbox":                 {"test"},
		"?environment=production&status=ended": {"gone"},
		"?status=revoked":                      {"gone"},
		"?status=suspended":                    {"asleep"},
		"?status=expired":                      nil,
		"?status=ended":                        {"gone"},
		"?environment=&status=":                {"asleep", "test", "live", "gone"},
	} {
		if names := names(b.get("/" + query)); !slices.Equal(names, want) {
			t.Errorf("%q: got %v, want %v", query, names, want)
		}
	}
	wantText(t, "nothing matches", b.get("/?status=expired"), 200, "No such keys", "Show all live keys")
	for _, bad := range []string{"?environment=moon", "?status=odd", "?after=%21",
		"?after=" + url.QueryEscape("bm90YW51bWJlcg"), "?%zz"} {
		wantText(t, bad, b.get("/"+bad), 400, "Not understood")
	}
}

func TestStatesOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		people := map[string]string{"ada": "wrong", "eva": "Eva Moss"}
		b := newBench(t, func(o *console.Options) {
			o.PersonName = func(_ context.Context, _, id string) string { return people[id] }
		})
		_, k := b.addBy(t, "eva", "acme", ending(2*day), holding(scope.TasksRead, scope.TasksWrite))
		page := func() reply { return b.get("/" + k.ID) }
		wantText(t, "a key", page(), 200, "1 Jan 2000, 00:00 UTC by Eva Moss", "Never used", "Expires 2 Jan 2000, 24:00 UTC",
			"Active", "tasks:read", "List tasks and read their details.")
		wantHTML(t, "no machine-readable time", page(), `<time datetime="2000-01-03T00:00:00Z">`)
		delete(people, "eva") // her account is gone; the key still says who made it
		wantText(t, "a key of nobody", page(), 200, "by eva")
		b.record(t, k, keystore.Use{At: time.Now()})
		time.Sleep(3 * time.Hour)
		wantText(t, "a used key", page(), 200, "Last used 3 hours ago Expires")
		b.record(t, k, keystore.Use{At: time.Now(), From: netip.MustParseAddr("192.0.2.7"), Requests: 12,
			Scopes: []scope.Name{scope.TasksWrite}})
		wantText(t, "an observed key", page(), 200, "from 192.0.2.7",
			"Requests 12 in the last 30 days, 12 on the busiest day",
			"read their details. tasks:write", "change them. Needed on 1 Jan 2000",
			"Scopes without a day have not been needed since 1 Jan 2000 , when the first use was seen.")
		wantText(t, "the form to edit it", b.get("/"+k.ID+"/edit"), 200, "change them. Needed on 1 Jan 2000",
			"Scopes without a day have not been needed since 1 Jan 2000 , when the first use was seen.")
		b.suspend(t, k)
		wantText(t, "a suspended key", page(), 200, "Suspended", "until it is resumed", "Revoke")
		time.Sleep(72 * time.Hour)
		wantText(t, "an expired key", page(), 200, "Expired", "expired on 2 Jan 2000, 24:00 UTC")
		b.revoke(t, k)
		wantText(t, "a revoked key", page(), 200, "Revoked", "was revoked on 4 Jan 2000, 03:00 UTC")
		wantNone(t, "a revoked key can be rotated or revoked", page(), "/rotate\"", "/revoke\"")
	})
}

// After a rotation two rows have one name, and the list says which one ends.
func TestListTellsARotatedKey(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		_, k := b.add(t, "acme")
		time.Sleep(90 * time.Minute)
		secretOf(t, b.post("/"+k.ID+"/rotate", url.Values{"issue_token": {"x"}, "overlap": {"3600"}}))
		rows := strings.Split(b.get("/").text, "<tr ")
		if len(rows) != 4 {
			t.Fatalf("got %d rows, want two keys", len(rows)-2)
		}
		wantShown(t, "the new key", reply{text: rows[2]}, true, "Never Active")
		wantShown(t, "the old key", reply{text: rows[3]}, true, "in 1 hour Replaced")
	})
}

// The list says an end within fourteen days in the largest unit and a later one
// by its last day, and the page of a key when it ends to the minute: the end of a
// day as that day's.
func TestListShowsTheEnd(t *testing.T) {
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble's clock
	for _, row := range []struct {
		expires    time.Time
		list, page string
	}{
		{begin.Add(30 * time.Minute), "in 30 minutes", "1 Jan 2000, 00:30 UTC"},
		{begin.Add(time.Hour - 1), "in 59 minutes", "1 Jan 2000, 00:59 UTC"},
		{begin.Add(time.Hour), "in 1 hour", "1 Jan 2000, 01:00 UTC"},
		{begin.Add(day - 1), "in 23 hours", "1 Jan 2000, 23:59 UTC"},
		{begin.Add(day), "in 1 day", "1 Jan 2000, 24:00 UTC"},
		{begin.Add(14*day - 1), "in 13 days", "14 Jan 2000, 23:59 UTC"},
		{begin.Add(14 * day), "14 Jan 2000", "14 Jan 2000, 24:00 UTC"},
		{begin.Add(15*day - 1), "15 Jan 2000", "15 Jan 2000, 23:59 UTC"},
		{time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC), "31 Dec 2030", "31 Dec 2030, 24:00 UTC"},
		{time.Date(2030, 12, 31, 19, 0, 0, 0, time.FixedZone("west", -5*3600)), "31 Dec 2030", "31 Dec 2030, 24:00 UTC"},
		{time.Date(2031, 1, 1, 0, 0, 1, 0, time.UTC), "1 Jan 2031", "1 Jan 2031, 00:00 UTC"},
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			_, k := b.add(t, "acme", func(g *keystore.Key) { g.ExpiresAt = row.expires })
			wantText(t, "the list", b.get("/"), 200, " Never used "+row.list+" Active")
			wantText(t, "the key", b.get("/"+k.ID), 200, "Expires "+row.page)
		})
	}
}

// How long ago a key was used is said in the largest unit, and by the day after
// thirty days.
func TestListShowsTheLastUse(t *testing.T) {
	for ago, want := range map[time.Duration]string{
		time.Minute - 1:       "just now",
		time.Minute:           "1 minute ago",
		time.Hour - 1:         "59 minutes ago",
		time.Hour:             "1 hour ago",
		day - 1:               "23 hours ago",
		day:                   "1 day ago",
		29 * day:              "29 days ago",
		30*day - 1:            "29 days ago",
		30 * day:              "1 Jan 2000",
		30*day + 23*time.Hour: "1 Jan 2000",
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			_, k := b.add(t, "acme")
			b.use(t, k)
			time.Sleep(ago)
			wantText(t, fmt.Sprint(ago), b.get("/"), 200, " 1 Jan 2000 Ada Lovelace "+want+" Never Active")
		})
	}
}

// All keys that have ended are a list of their own, of which the first ten
// stand below the others.
func TestEndedKeysAreFolded(t *testing.T) {
	b := newBench(t)
	b.add(t, "acme")
	for ended := 1; ended <= 11; ended++ {
		_, k := b.add(t, "acme")
		b.revoke(t, k)
		got := b.get("/")
		if shown := len(names(got)) - 1; shown != min(ended, 10) {
			t.Errorf("of %d keys that have ended the list shows %d: %s", ended, shown, plain(got))
		}
		wantShown(t, "the rest", got, ended > 10, `href="./?status=ended">All ended keys`)
		wantNone(t, "a list with keys", got, "No keys yet")
	}
}

func TestUnknownScopesAreShownAsSuch(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	k.Scopes = append(k.Scopes, "future:thing")
	b.put(t, k)
	wantText(t, "the page", b.get("/"+k.ID), 200, "future:thing (unknown)", "It grants nothing.")
	wantHTML(t, "the list does not say that a scope is unknown", b.get("/"),
		`title="tasks:read, future:thing (unknown)"`, `2 <span class="hidden">tasks:read, future:thing (unknown)</span>`)
	// It survives a rotation.
	f := url.Values{"issue_token": {"x"}, "overlap": {"0"}}
	secretOf(t, b.post("/"+k.ID+"/rotate", f))
	if got := b.all(t, "acme")[0].Scopes; !slices.Contains(got, "future:thing") {
		t.Errorf("the new key has %v", got)
	}
}

// An imported key has the ID of an older system, whatever stands in it.
func TestPagesOfAnImportedKey(t *testing.T) {
	for _, id := range []string{"acme:12", "urn:uuid:7/a b?c#d%", "javascript:alert(1)"} {
		b := newBench(t)
		token := keystore.Service{}.Generate(keystore.Production).Reveal()
		if _, err := b.issuer.Import(t.Context(), keystore.Key{ID: id, Organization: "acme", Name: "Old one",
			Environment: keystore.Production, Scopes: []scope.Name{scope.TasksRead}}, token); err != nil {
			t.Fatal(err)
		}
		link := regexp.MustCompile(`<a href="\./([^"]+)" title="Old one">`).FindStringSubmatch(b.get("/").text)
		if link == nil {
			t.Fatalf("the list has no link to %s", id)
		}
		page := "/" + link[1]
		wantText(t, id, b.get(page), 200, "Old one")
		wantHTML(t, "the form does not revoke "+id, b.get(page+"/revoke"), `action="..`+page+`/revoke"`)
		wantSeeOther(t, "revoke "+id, b.post(page+"/revoke", url.Values{}), ".."+page)
		b.wantStatus(t, id, token, keystore.Revoked)
	}
}

// names returns the keys of a list.
func names(r reply) (names []string) {
	link := regexp.MustCompile(`<a href="[^"]*key_[a-z0-9]+" title="([^"]+)">`)
	for _, m := range link.FindAllStringSubmatch(r.text, -1) {
		names = append(names, m[1])
	}
	return names
}
