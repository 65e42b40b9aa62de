package console_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/faulty"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// restricted is a console that knows attributes and networks.
func restricted(o *console.Options) {
	o.Networks = true
	o.Attributes = []console.Attribute{
		{Name: "project", Title: "Project"}, {Name: "team", Values: []string{"Lyon", "Oslo"}},
		{Name: "plan", Title: "Plan", ReadOnly: true},
	}
}

func limited(g *keystore.Key) {
	g.Attributes = map[string]string{"project": "x", "team": "Lyon", "plan": "pro", "billing": "i-42"}
	g.Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
}

func (b *bench) key(t *testing.T, id string) *keystore.Key {
	t.Helper()
	k, err := b.issuer.Key(t.Context(), "acme", id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestEdit(t *testing.T) {
	b := newBench(t, restricted)
	_, k := b.add(t, "acme", limited)
	path := "/" + k.ID
	wantText(t, "the key", b.get(path), 200, "Project x", "team Lyon", "Plan pro", "Networks 192.0.2.0/24", "Edit")
	wantNone(t, "an attribute is shown that the console does not know", b.get(path), "i-42")
	form := b.get(path + "/edit")
	wantText(t, "the form", form, 200, "Edit “Old one”", "Project", "team", "Networks", "They can only be narrowed")
	_, unlimited := b.add(t, "acme")
	wantText(t, "the form of a key without networks", b.get("/"+unlimited.ID+"/edit"), 200, "Empty: from anywhere.")
	wantText(t, "the form of a new key", b.get("/new"), 200, "one a line. Empty: from anywhere.")
	wantHTML(t, "the form", form, `value="Old one"`, `name="attribute.project" type="text" value="x"`,
		`<option value="Lyon" selected>`, "\n192.0.2.0/24</textarea>")
	wantNone(t, "the form has a field for an attribute that is ReadOnly", form, "attribute.plan")

	f := url.Values{"name": {" New one "}, "attribute.project": {" y "}, "attribute.team": {""},
		"attribute.plan": {"gold"}, "attribute.billing": {"z"},
		"networks": {"192.0.2.9/26, 192.0.2.7;\r\n 192.0.2.200"}}
	for range 2 { // a repeat changes nothing
		wantSeeOther(t, "edit", b.post(path+"/edit", f), "../"+k.ID+"?done=edited")
	}
	wantText(t, "the key then", b.get(path+"?done=edited"), 200, "Your changes are saved.")
	after := b.key(t, k.ID)
	attributes := map[string]string{"project": "y", "plan": "pro", "billing": "i-42"}
	const networks = "[192.0.2.0/26 192.0.2.7/32 192.0.2.200/32]"
	if after.Name != "New one" || after.Version != 2 || !maps.Equal(after.Attributes, attributes) ||
		fmt.Sprint(after.Networks) != networks {
		t.Errorf("got %+v", after)
	}
	b.wantActs(t, "edit "+k.ID+" by ada: ")

	for _, more := range []string{"", "192.0.2.0/24", "198.51.100.7"} {
		f.Set("networks", more)
		wantText(t, "other networks", b.post(path+"/edit", f), 422, "for more networks issue a new key")
	}

	f.Set("version", "1") // of a form from before the edit
	f.Set("name", "typed for an hour")
	f.Set("networks", "192.0.2.9")
	stale := b.post(path+"/edit", f)
	wantText(t, "a form of yesterday", stale, 409, "Error: Edit", "Somebody else has changed this key", "192.0.2.9")
	wantHTML(t, "what was typed is lost, or cannot be saved", stale, `value="typed for an hour"`,
		`name="version" value="2"`)
	b.store.Before = faulty.At("Update", issuing.ErrConflict) // somebody came in between
	f.Del("version")
	stale = b.post(path+"/edit", f)
	wantText(t, "a form that is overtaken", stale, 409)
	wantHTML(t, "what was typed is lost", stale, `value="typed for an hour"`)
	b.store.Before = nil
	if after := b.key(t, k.ID); after.Version != 2 || fmt.Sprint(after.Networks) != networks {
		t.Errorf("after edits that were refused the key is %+v", after)
	}
}

// The first attribute of a key that has none.
func TestEditTheFirstAttribute(t *testing.T) {
	b := newBench(t, restricted)
	_, k := b.add(t, "acme")
	if k.Attributes != nil {
		t.Fatalf("a key without attributes has %v", k.Attributes)
	}
	b.post("/"+k.ID+"/edit", url.Values{"name": {k.Name}, "attribute.project": {"x"}})
	if got := b.key(t, k.ID).Attributes; !maps.Equal(got, map[string]string{"project": "x"}) {
		t.Errorf("got the attributes %v, want the project x", got)
	}
	// A form from before the console knew an attribute leaves it as it is.
	b.post("/"+k.ID+"/edit", url.Values{"name": {"New"}})
	if got := b.key(t, k.ID); got.Name != "New" || got.Attributes["project"] != "x" {
		t.Errorf("a form without the field made of it %+v", got)
	}
}

func TestEditProblems(t *testing.T) {
	b := newBench(t, restricted)
	_, k := b.add(t, "acme", limited)
	path := "/" + k.ID + "/edit"
	got := b.post(path, url.Values{"name": {""}, "attribute.project": {strings.Repeat("x", 201)},
		"attribute.team": {"Rome"}, "networks": {"a b 300.1.1.1 d fe80::1%eth0 10.0.0.0/8"}})
	wantText(t, "a bad form", got, 422, "Nothing was changed.", "Give the key a name",
		`The attribute team cannot be "Rome".`,
		`"a" is neither a network, such as 192.0.2.0/24, nor an address.`, `"300.1.1.1" is neither`)
	wantHTML(t, "what was typed is lost", got, "\na b 300.1.1.1")
	wantNone(t, "more than three messages", reply{text: plain(got)}, `"d" is neither`)
	// What the console finds comes first, then what the issuer does.
	got = b.post(path, url.Values{"name": {strings.Repeat("x", 101)}, "attribute.project": {strings.Repeat("x", 201)},
		"attribute.team": {"Lyon"}})
	wantText(t, "too long", got, 422, "The name is longer than 100 characters.",
		`The value of the attribute "project" is longer than 200 bytes.`)
	if after := b.key(t, k.ID); after.Version != 1 || len(b.entries) > 0 {
		t.Errorf("something was changed: %+v, entries %v", after, b.entries)
	}
	got = b.post(path, url.Values{"name": {"x"}, "networks": {"192.0.2.0/24"}, "expiry": {"date"},
		"expires_on": {"9999-12-31"}})
	wantText(t, "a day that JSON cannot write", got, 422, "The expiry must lie before the year 10000.")
	wantText(t, "no form", b.do("ada", "POST", path, "{}", "Accept", "text/html", "Sec-Fetch-Site", "same-origin"), 415,
		"Not understood")

	b.store.Before = faulty.At("Update", errors.New("the disk is on fire"))
	got = b.post(path, url.Values{"name": {"typed"}, "networks": {"192.0.2.0/24"}})
	wantText(t, "the store is down", got, 503, "Try again in a moment")
	wantHTML(t, "the form was lost", got, `value="typed"`)
}

// Some keys are not to be edited or rotated: dead ones, and those whose secret
// the actor could not be shown. A page advises to rotate a key if that is
// possible, and it was not replaced yet.
func TestEditAndRotationAreRefused(t *testing.T) {
	b := newBench(t, restricted, assignable(scope.TasksRead))
	const edit, rotate = "Edit “Old one”", "Rotate “Old one”"
	const revoked, expired = "A revoked key cannot be changed or rotated.", "An expired key cannot be changed or rotated."
	rows := map[string]struct {
		change     func(*testing.T, *keystore.Key)
		edit       int
		editText   string
		rotate     int
		rotateText string
		advice     bool
	}{
		"active":    {func(*testing.T, *keystore.Key) {}, 200, edit, 200, rotate, true},
		"replaced":  {func(t *testing.T, k *keystore.Key) { b.rotate(t, k) }, 200, edit, 200, rotate, false},
		"suspended": {b.suspend, 200, edit, 409, "A suspended key cannot be rotated until it is resumed.", false},
		"revoked":   {b.revoke, 409, revoked, 409, revoked, false},
		"expired": {func(t *testing.T, k *keystore.Key) {
			k.ExpiresAt = time.Now().Add(-time.Hour)
			b.put(t, k)
		}, 409, expired, 409, expired, false},
		"one with more": {func(t *testing.T, k *keystore.Key) {
			k.Scopes = append(k.Scopes, scope.TasksWrite)
			b.put(t, k)
		}, 403, "so you cannot change it", 403, "so you cannot be shown its new secret", false},
	}
	for name, row := range rows {
		_, k := b.add(t, "acme")
		row.change(t, k)
		path := "/" + k.ID
		page := b.get(path)
		wantText(t, name, page, 200, "The secret cannot be shown again.")
		wantShown(t, name, page, row.advice, "rotate the key")
		wantShown(t, name, page, row.edit == 200, path[1:]+"/edit")
		wantText(t, name, b.get(path+"/edit"), row.edit, row.editText)
		wantText(t, name, b.get(path+"/rotate"), row.rotate, row.rotateText)
		if got := b.post(path+"/edit", url.Values{"name": {"changed"}}); row.edit == 200 {
			wantText(t, name, got, 303)
		} else {
			wantText(t, name, got, row.edit, row.editText)
		}
		if k := b.key(t, k.ID); (k.Name == "changed") != (row.edit == 200) {
			t.Errorf("%s: the name is %q", name, k.Name)
		}
		if row.rotate != 200 {
			got := b.post(path+"/rotate", url.Values{"issue_token": {name}, "overlap": {"0"}})
			wantText(t, name, got, row.rotate, row.rotateText)
		}
	}
	if n := len(b.all(t, "acme")); n != len(rows)+1 { // that of the one rotation
		t.Errorf("there are %d keys", n)
	}
}

// A key that ends while its form is open is not edited, and the page says why.
func TestEditOfAKeyThatEndsMeanwhile(t *testing.T) {
	for _, err := range []error{issuing.ErrConflict, keystore.ErrRevoked} {
		b := newBench(t)
		_, k := b.add(t, "acme")
		b.store.Before = func(call string) error {
			if call != "Update" {
				return nil
			}
			b.store.Before = nil
			if _, err := b.issuer.Revoke(t.Context(), "acme", k.ID); err != nil {
				t.Error(err)
			}
			return err
		}
		got := b.post("/"+k.ID+"/edit", url.Values{"name": {"New"}})
		wantText(t, err.Error(), got, 409, "This key is revoked ·", "A revoked key cannot be changed or rotated.")
	}
}

// Without the options nothing of it can be set, and networks are shown.
func TestEditWithoutTheOptions(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme", limited)
	path := "/" + k.ID + "/edit"
	b.post(path, url.Values{"name": {"renamed"}, "networks": {"10.0.0.0/8"}, "attribute.team": {"Oslo"}})
	if got := b.key(t, k.ID); got.Name != "renamed" || got.Attributes["team"] != "Lyon" ||
		got.Networks[0] != k.Networks[0] {
		t.Errorf("got %+v, want a new name and nothing else", got)
	}
	wantText(t, "the key", b.get("/"+k.ID), 200, "Networks 192.0.2.0/24")
	wantNone(t, "the form has fields that cannot be set", b.get(path), "textarea", "Attributes")
}

func TestEditTakesScopesAway(t *testing.T) {
	b := newBench(t)
	_, k := b.add(t, "acme", holding(scope.TasksRead, scope.TasksWrite, scope.AccountRead))
	path := "/" + k.ID + "/edit"
	if got := picked(b.get(path)); got != "tasks:read tasks:write account:read" {
		t.Errorf("the form has picked %q", got)
	}
	form := url.Values{"name": {"Old one"}, "scopes_listed": {"1"}}
	got := b.post(path, form)
	wantText(t, "no scope", got, 422, "Nothing was changed.", "Leave at least one")
	if again := picked(got); again != "" {
		t.Errorf("the form has forgotten what was taken away: %q", again)
	}
	form["scopes"] = []string{"tasks:read", "workers:read"} // one that the key does not have
	wantText(t, "fewer scopes", b.post(path, form), 303)
	wantText(t, "not the last one", b.post(path, url.Values{"name": {"New"}, "scopes_listed": {"1"}}), 422,
		"Leave at least one")
	_, bare := b.add(t, "acme", holding())
	wantText(t, "a key without scopes", b.post("/"+bare.ID+"/edit", url.Values{"name": {"New"}, "scopes_listed": {"1"}}),
		303)
	if got := b.key(t, k.ID).Scopes; !slices.Equal(got, []scope.Name{scope.TasksRead}) {
		t.Errorf("the key holds %v", got)
	}
	wantText(t, "a form without scopes", b.post(path, url.Values{"name": {"New"}}), 303)
	if got := b.key(t, k.ID).Scopes; !slices.Equal(got, []scope.Name{scope.TasksRead}) {
		t.Errorf("then it holds %v", got)
	}
}

// The form offers what the key holds, as the form to create a key does. Sent as
// it is, it changes nothing.
func TestEditAccess(t *testing.T) {
	store := issuing.NewMemory()
	registry := scope.New(scope.Definition{Name: "books:read"}, scope.Definition{Name: "books:write"},
		scope.Definition{Name: "books:burn"}, scope.Definition{Name: "films:read"},
		scope.Definition{Name: "films:write", Implies: []scope.Name{"films:read"}},
		scope.Definition{Name: "plays:read"}, scope.Definition{Name: "plays:write"})
	issuer := issuing.New(store, issuing.Options{Service: keystore.Service{Scopes: registry}})
	b := benchOf(issuer, console.Options{})
	held := []scope.Name{"books:read", "books:burn", "films:read", "films:write", "plays:read", "plays:write"}
	_, k := b.add(t, "acme", holding(held...))
	held = append(held, "gone:read") // the registry knew it once
	if k.Scopes = held; store.Update(t.Context(), k, issuing.AuditEntry{}) != nil {
		t.Fatal("the key cannot be changed")
	}
	path := "/" + k.ID + "/edit"
	form, f := b.get(path), url.Values{"name": {k.Name}, "scopes_listed": {"1"}}
	wantHTML(t, "the form", form, `name="access.plays" value="plays:read plays:write" checked`,
		`name="access.plays" value="plays:write">`, `name="access.gone" value="gone:read" checked`,
		`name="scopes" value="books:burn" checked`)
	wantNone(t, "the form offers what the key does not hold", form, "books:write")
	for _, m := range regexp.MustCompile(`name="([^"]+)" value="([^"]+)" checked`).FindAllStringSubmatch(form.text, -1) {
		f.Add(m[1], m[2])
	}
	for _, row := range []struct {
		field, value string
		want         []scope.Name
	}{
		{"expiry", "same", held},
		{"access.plays", "plays:write", []scope.Name{"books:read", "books:burn", "films:read", "films:write", "plays:write",
			"gone:read"}},
		{"access.films", "films:read", []scope.Name{"books:read", "books:burn", "films:read", "plays:write", "gone:read"}},
		{"access.books", "books:write", []scope.Name{"books:burn", "films:read", "plays:write", "gone:read"}},
		{"access.gone", "", []scope.Name{"books:burn", "films:read", "plays:write"}},
	} {
		f.Set(row.field, row.value)
		wantText(t, row.field, b.post(path, f), 303)
		if got := b.key(t, k.ID).Scopes; !slices.Equal(got, row.want) {
			t.Errorf("after %s=%s the key holds %v, want %v", row.field, row.value, got, row.want)
		}
	}
}

func TestEditBringsTheExpiryForward(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		_, k := b.add(t, "acme", func(g *keystore.Key) { g.ExpiresAt = time.Date(2000, 3, 1, 0, 0, 0, 0, time.UTC) })
		path := "/" + k.ID + "/edit"
		form := b.get(path)
		wantText(t, "the form", form, 200, "The key expires: 29 Feb 2000, 24:00 UTC.")
		wantHTML(t, "the form allows other days", form, `min="2000-01-01" max="2000-02-29"`)
		_, noon := b.add(t, "acme", func(g *keystore.Key) { g.ExpiresAt = time.Date(2000, 3, 1, 12, 0, 0, 0, time.UTC) })
		wantHTML(t, "the form of a key that ends at noon allows other days than those that end before",
			b.get("/"+noon.ID+"/edit"), `min="2000-01-01" max="2000-02-29"`)
		wantText(t, "the choices", form, 200, "As now: 29 Feb 2000 In 7 days In 30 days On a date")
		for _, row := range []struct{ kind, typed, want string }{
			{"date", "2000-03-01", "The expiry can only be brought forward"},
			{"date", "1999-12-31", "The expiry must lie in the future"},
			{"date", "soon", "Fill in the last day on which the key works"},
			{"same", "2000-02-01", "A date is filled in."},
			{"", "2000-02-01", "A date is filled in."},
			{"90", "", "The expiry can only be brought forward"},
			{"never", "", "The expiry can only be brought forward"},
			{"soon", "", "Choose when the key expires."},
		} {
			got := b.post(path, url.Values{"name": {"Old one"}, "expiry": {row.kind}, "expires_on": {row.typed}})
			wantText(t, row.kind+row.typed, got, 422, row.want)
			wantHTML(t, "what was typed is lost", got, `value="`+row.typed+`"`)
		}
		for _, row := range [][3]string{{"date", "2000-02-29", "2000-03-01"}, {"", "", "2000-03-01"},
			{"same", "", "2000-03-01"}, {"30", "", "2000-01-31"}, {"date", "2000-01-01", "2000-01-02"}} {
			got := b.post(path, url.Values{"name": {"Old one"}, "expiry": {row[0]}, "expires_on": {row[1]}})
			wantText(t, row[0]+row[1], got, 303)
			if end := b.key(t, k.ID).ExpiresAt.Format(time.DateOnly); end != row[2] {
				t.Errorf("after %q %q the key ends on %s, want %s", row[0], row[1], end, row[2])
			}
		}
		_, soon := b.add(t, "acme", ending(time.Hour))
		wantNone(t, "a key that ends within the day has choices", b.get("/"+soon.ID+"/edit"), "In 7 days", "On a date")
	})
}
