package console_test

import (
	"context"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/scope"
)

func TestStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, restricted, func(o *console.Options) {
			o.PersonName = func(_ context.Context, _, id string) string { return map[string]string{"bea": "Bea Cole"}[id] }
		})
		_, k := b.addBy(t, "bea", "acme", limited, func(g *keystore.Key) {
			g.Scopes = []scope.Name{scope.TasksRead, scope.TasksWrite, scope.AccountRead}
		})
		post := func(act string, form url.Values) {
			t.Helper()
			time.Sleep(time.Hour)
			if got := b.post("/"+k.ID+"/"+act, form); got.StatusCode != 303 && got.StatusCode != 201 {
				t.Fatalf("%s: got %s\n%s", act, got.Status, plain(got))
			}
		}
		post("edit", url.Values{"name": {"New"}, "networks": {"192.0.2.0/24"}, "attribute.project": {"x"},
			"attribute.team": {"Lyon"}})
		post("edit", url.Values{"name": {"New"}, "networks": {"192.0.2.7"}, "attribute.project": {"y"},
			"attribute.team": {"Lyon"}, "scopes_listed": {"1"}, "scopes": {"tasks:read", "account:read"},
			"expires_on": {"2000-02-29"}})
		post("edit", url.Values{"name": {"New"}, "networks": {"192.0.2.7"}, "scopes_listed": {"1"},
			"scopes": {"tasks:read"}})
		post("suspend", url.Values{"note": {"who runs this?"}})
		post("resume", nil)
		post("rotate", url.Values{"issue_token": {"x"}, "overlap": {"86400"}})
		post("revoke", url.Values{"reason": {"leaked"}})
		page := b.get("/" + k.ID)
		wantText(t, "the page", page, 200, "Story "+
			"Revoked by Ada Lovelace : It has leaked, or may have 1 Jan 2000, 07:00 UTC "+
			"Rotated by Ada Lovelace 1 Jan 2000, 06:00 UTC "+
			"Resumed by Ada Lovelace 1 Jan 2000, 05:00 UTC "+
			"Suspended by Ada Lovelace : who runs this? 1 Jan 2000, 04:00 UTC "+
			"Changed by Ada Lovelace Scopes taken away: account:read 1 Jan 2000, 03:00 UTC "+
			"Changed by Ada Lovelace Scopes taken away: tasks:write Attributes changed "+
			"Networks: 192.0.2.0/24 → 192.0.2.7/32 Expires: never → 29 Feb 2000, 24:00 UTC 1 Jan 2000, 02:00 UTC "+
			"Renamed by Ada Lovelace Name: “Old one” → “New” 1 Jan 2000, 01:00 UTC "+
			"Created by Bea Cole 1 Jan 2000, 00:00 UTC")
		wantNone(t, "the story tells an attribute that the console does not know", page, "i-42")
		wantText(t, "the new key", b.get("/"+b.all(t, "acme")[0].ID), 200, "Story Created in a rotation by Ada")
	})
}

// An edit that does several things at once names each.
func TestStoryOfOneEdit(t *testing.T) {
	b := newBench(t)
	b.issuer = b.issuer.By("ada", "")
	_, k := b.add(t, "acme")
	for _, suspended := range []bool{true, false} {
		_, err := edit(t, b.issuer, "acme", k.ID, func(k *keystore.Key) {
			k.Name, k.Suspended = fmt.Sprint("asleep: ", suspended), suspended
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wantText(t, "the page", b.get("/"+k.ID), 200,
		"Name: “asleep: true” → “asleep: false” Resumed", "Name: “Old one” → “asleep: true” Suspended")
}

func TestLongStory(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	for range 50 {
		for _, act := range []string{"suspend", "resume"} {
			b.post("/"+k.ID+"/"+act, nil)
		}
	}
	page := b.get("/" + k.ID)
	at := "/audit?key=" + k.ID
	if !strings.Contains(page.text, `href=".`+at+`">All entries`) || strings.Contains(plain(page), "Created by") {
		t.Error("it shows all entries, or does not lead to them")
	}
	b.add(t, "acme") // another key's entry
	first := b.get(at)
	wantText(t, "the audit", first, 200, "What was done to the key "+k.ID, "Resumed by Ada Lovelace")
	older := regexp.MustCompile(`href="\.(/audit[^"]*)">Older entries`).FindStringSubmatch(first.text)
	if older == nil || strings.Contains(plain(first), "Created by") {
		t.Fatalf("the audit does not lead on: %s", plain(first))
	}
	last := b.get(html.UnescapeString(older[1]))
	wantText(t, "the last page", last, 200, "Created by Ada Lovelace")
	if n := strings.Count(last.text, "<li>"); n != 1 || strings.Contains(last.text, "Older entries") {
		t.Errorf("the last page has %d entries, want one", n)
	}
}

// The audit has what was done to all keys of the organization, and of no other.
func TestAudit(t *testing.T) {
	b := newBench(t)
	wantHTML(t, "the list does not lead to the audit", b.get("/"), `href="./audit"`)
	wantText(t, "no entries", b.get("/audit"), 200, "Nothing, or it is no longer kept.")
	_, first := b.add(t, "acme")
	_, second := b.addBy(t, "bea", "acme")
	_, theirs := b.add(t, "other")
	b.post("/"+first.ID+"/suspend", url.Values{"note": {"who runs this?"}})
	got := b.get("/audit")
	wantText(t, "the audit", got, 200, "Suspended by Ada Lovelace : who runs this? Key "+first.ID,
		"Created by bea Key "+second.ID, "Created by Ada Lovelace Key "+first.ID)
	if strings.Contains(got.text, theirs.ID) || strings.Contains(b.get("/audit?key="+theirs.ID).text, "Created") {
		t.Error("the audit tells of another organization")
	}
	if strings.Index(got.text, "Suspended") > strings.Index(got.text, "Created") {
		t.Error("the oldest entry stands first")
	}
}

// An administrator cannot make a revocation look like a rotation.
func TestARevocationIsNoRotation(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	b.post("/"+k.ID+"/revoke", url.Values{"note": {" rotated "}})
	if got := plain(b.get("/" + k.ID)); strings.Contains(got, "Rotated by") ||
		!strings.Contains(got, "Revoked by Ada") {
		t.Errorf("the page of a revoked key says: %s", got)
	}
}
