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
	"github.com/sallyport-go/sallyport/keystore/issuing"
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
			"expiry": {"date"}, "expires_on": {"2000-02-29"}})
		post("edit", url.Values{"name": {"New"}, "networks": {"192.0.2.7"}, "scopes_listed": {"1"}, "scopes": {"tasks:read"}})
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
	wantHTML(t, "it does not lead to all entries", page, `href=".`+at+`">All entries`)
	wantNone(t, "it shows all entries", page, "Created by")
	b.add(t, "acme") // another key's entry
	first := b.get(at)
	wantText(t, "the audit", first, 200, "Resumed Old one …"+k.Hint+" Ada Lovelace")
	older := regexp.MustCompile(`href="\.(/audit[^"]*)">Older entries`).FindStringSubmatch(first.text)
	if older == nil || strings.Contains(plain(first), "Created Old one") {
		t.Fatalf("the audit does not lead on: %s", plain(first))
	}
	last := b.get(html.UnescapeString(older[1]))
	wantText(t, "the last page", last, 200, "Created Old one …"+k.Hint+" Ada Lovelace")
	if n := strings.Count(last.text, "<li>"); n != 1 || strings.Contains(last.text, "after=") {
		t.Errorf("the last page has %d entries, want one", n)
	}
}

// The audit has what was done to all keys of the organization, and of no other.
func TestAudit(t *testing.T) {
	b := newBench(t)
	wantHTML(t, "the list does not lead to the audit", b.get("/"), `href="./audit"`)
	wantText(t, "no entries", b.get("/audit"), 200, "Nothing was done, or it is no longer kept.")
	_, first := b.add(t, "acme")
	_, second := b.addBy(t, "bea", "acme")
	_, theirs := b.add(t, "other")
	b.post("/"+first.ID+"/suspend", url.Values{"note": {"who runs this?"}})
	got := b.get("/audit")
	wantText(t, "the audit", got, 200, "Suspended Old one …"+first.Hint+" Ada Lovelace Reason: who runs this?",
		"Created Old one …"+second.Hint+" bea Name: “Old one” Environment: Production Scopes: tasks:read")
	wantHTML(t, "an entry does not lead to its key", got, `href="./`+first.ID+`"`)
	wantNone(t, "the audit tells of another organization", got, theirs.ID)
	wantNone(t, "the audit tells of another organization", b.get("/audit?key="+theirs.ID), "<li>")
	wantNone(t, "the file tells of another organization", b.get("/audit?file=csv&key="+theirs.ID), "Created")
	if strings.Index(got.text, "<b>Suspended") > strings.Index(got.text, "<b>Created") {
		t.Error("the oldest entry stands first")
	}
}

// Each filter stands in the address, with the others, and leads on to the files.
func TestAuditFilters(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		_, first := b.add(t, "acme")
		time.Sleep(24 * time.Hour)
		_, second := b.addBy(t, "bea", "acme")
		time.Sleep(24*time.Hour - time.Microsecond)
		b.post("/"+first.ID+"/suspend", nil)
		for query, want := range map[string]string{
			"":                           "Suspended Created Created",
			"key=" + first.ID:            "Suspended Created",
			"key=+" + first.ID + "+":     "Suspended Created",
			"person=bea":                 "Created",
			"person=bea&act=suspend":     "",
			"act=suspend":                "Suspended",
			"act=issue&key=" + second.ID: "Created",
			"from=2000-01-02":            "Suspended Created",
			"to=2000-01-01":              "Created",
			"from=2000-01-02&to=2000-01-02&act=issue": "Created",
			"from=2000-01-03":                         "",
			"from=&to=&key=&person=&act=":             "Suspended Created Created",
		} {
			page := b.get("/audit?" + query)
			var got []string
			for _, act := range regexp.MustCompile("<b>(.+?)</b>").FindAllStringSubmatch(page.text, -1) {
				got = append(got, act[1])
			}
			if strings.Join(got, " ") != want || page.StatusCode != 200 {
				t.Errorf("%s: got %s with %q, want %s", query, page.Status, got, want)
			}
			file := regexp.MustCompile(`href="\.(/audit[^"]*)" title="[^"]*">Download CSV`).FindStringSubmatch(page.text)
			if csv := b.get(html.UnescapeString(file[1])); strings.Count(csv.text, "\r\n") != len(got)+1 {
				t.Errorf("%s: the file has %q, want what the page has", query, csv.text)
			}
		}
		longest := strings.Repeat("%C3%9F", 127) // of a key or a person
		wantText(t, "ids that a key can have", b.get("/audit?act=delegate&from=2000-01-02&to=2000-01-03&key="+longest+
			"&person="+longest), 200, "Nothing")
		wantHTML(t, "the form", b.get("/audit?key=k%22&person=bea&act=edit&from=2000-01-02&to=2000-01-03"),
			`value="k&#34;"`, `value="bea"`, `value="edit" selected`, `value="2000-01-02"`, `value="2000-01-03"`)
		for _, query := range []string{"from=yesterday", "to=2000-13-01", "act=steal", "file=xls", "file=", "key=%zz",
			"key=" + strings.Repeat("k", 2000), "person=" + strings.Repeat("%20", 700), "x=" + strings.Repeat("x", 2000)} {
			wantText(t, query, b.get("/audit?"+query), 400, "Choose from its filters")
		}
	})
}

// The files have the words of the page and no value of an attribute. No cell of
// the CSV is a formula, whichever character a spreadsheet separates them by.
func TestAuditFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, restricted)
		b.issuer = b.issuer.By("=1+1", "a;=2;\t-3,\"x\"|@y - z\n +4＝5")
		_, k := b.addBy(t, "=1+1", "acme", limited, func(g *keystore.Key) { g.Name = "＝cmd" })
		time.Sleep(time.Hour)
		if _, err := b.issuer.Revoke(t.Context(), "acme", k.ID); err != nil {
			t.Fatal(err)
		}
		csv := b.get("/audit?file=csv&act=revoke")
		id := regexp.MustCompile("act_[0-9a-z]+").FindString(csv.text)
		want := "at,act,key,name,hint,actor,reason,details,id\r\n2000-01-01T01:00:00Z,Revoked," + k.ID + ",'＝cmd," + k.Hint +
			",'=1+1,\"a;'=2;'\t-3,\"\"x\"\"|'@y - z\r\n' +4＝5\",\"Stops working: 1 Jan 2000, 01:00 UTC\"," + id + "\r\n"
		if csv.text != want {
			t.Errorf("got the CSV %q, want %q", csv.text, want)
		}
		json := b.get("/audit?file=json")
		wantHTML(t, "the JSON", json, `"act":"Revoked"`, `"reason":"a;=2;\t-3`, `"key_name":"＝cmd"`, `"details":["Stops`,
			`"Attributes changed"`, `"Networks: 192.0.2.0/24"`)
		wantNone(t, "the JSON has the value of an attribute", json, "i-42")
		for kind, got := range map[string]reply{"csv": csv, "json": json} {
			for name, want := range map[string]string{"Content-Disposition": `attachment; filename="audit.` + kind + `"`,
				"Content-Type":  map[string]string{"csv": "text/csv; charset=utf-8", "json": "application/json"}[kind],
				"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
				if h := got.Header.Get(name); h != want {
					t.Errorf("the %s: got the %s %q, want %q", kind, name, h, want)
				}
			}
		}
		if none := b.get("/audit?file=json&act=erase").text; none != "[]\n" {
			t.Errorf("got %q, want an empty list", none)
		}
	})
}

// A file is whole, or refused. It takes a statement for a thousand entries.
func TestAuditFileBound(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme")
	for n := 1; n <= 10_001; n++ {
		at := time.UnixMicro(int64(n) * 86_400_000_000 / 10_001) // the last one is of the second day
		e := issuing.AuditEntry{ID: fmt.Sprintf("act_%014x", at.UnixMicro()), At: at, Act: "rename", Organization: "acme"}
		if err := b.store.Update(t.Context(), k, e); err != nil {
			t.Fatal(err)
		}
		k.Version++
	}
	calls := 0
	b.store.Before = func(string) error { calls++; return nil }
	if got := b.get("/audit?file=csv&act=rename"); got.StatusCode != 422 || calls != 11 {
		t.Errorf("got %s after %d calls, want 422 after 11", got.Status, calls)
	}
	got := b.get("/audit?file=csv&act=rename&from=1970-01-01&to=1970-01-01&after=act_0000000000000f")
	if n := strings.Count(got.text, "\r\n"); n != 10_001 || got.StatusCode != 200 {
		t.Errorf("got %s with %d lines, want 10,001", got.Status, n)
	}
}
