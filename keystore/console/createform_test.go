package console_test

import (
	"fmt"
	"net/http"
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
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// A preset is offered when the form can pick all of it.
func TestPresetsThatTheFormCannotPick(t *testing.T) {
	presets := []console.Preset{
		{Name: "All there", Scopes: []scope.Name{"books:read"}},
		{Name: "Half there", Scopes: []scope.Name{"books:read", "films:read"}},
		{Name: "Not there", Scopes: []scope.Name{"films:read"}},
	}
	for _, row := range []struct {
		presets    []console.Preset
		assignable []scope.Name // nil: all
		want       []string
	}{
		{nil, nil, nil}, // the package's own are of other scopes
		{presets, nil, []string{"All there", "Half there", "Not there"}},
		{presets, []scope.Name{"books:read", "music:read"}, []string{"All there"}},
		{presets, []scope.Name{"music:read"}, nil},
	} {
		issuer := issuing.New(issuing.NewMemory(), issuing.Options{Service: keystore.Service{Scopes: scope.New(
			scope.Definition{Name: "books:read"}, scope.Definition{Name: "films:read"}, scope.Definition{Name: "music:read"})}})
		o := console.Options{Presets: row.presets}
		if row.assignable != nil {
			o.Assignable = func(console.Actor, keystore.Environment) []scope.Name { return row.assignable }
		}
		b := &bench{issuer: issuer, handler: http.StripPrefix(mount, console.New(issuer, admin, o))}
		got := b.get("/new")
		wantText(t, "the form", got, 200, "music")
		for _, p := range append(presets, console.DefaultPresets()...) {
			if offered := strings.Contains(got.text, `value="`+p.Name+`"`); offered != slices.Contains(row.want, p.Name) {
				t.Errorf("%v: preset %q is offered: %t", row.assignable, p.Name, offered)
			}
		}
	}
}

// Without script a preset's button sends the form, which comes back with the
// preset picked and the rest as it was filled in. Nothing is created.
func TestPresetKeepsWhatWasTyped(t *testing.T) {
	b := newBench(t)
	f := url.Values{
		"issue_token": {"x"}, "preset": {"External worker"}, "name": {`The "night" <import>`}, "environment": {"sandbox"},
		"scopes": {"account:read"}, "expiry": {"date"}, "expires_on": {"2030-12-31"},
	}
	got := b.post("/new", f)
	wantText(t, "the form", got, 200, "Create an API key")
	wantHTML(t, "the form", got, `value="The &#34;night&#34; &lt;import&gt;"`,
		`name="environment" value="sandbox" required checked`,
		`value="date" selected`, `value="2030-12-31"`,
		`value="deliverables:write" checked`, `value="chat:read chat:write" checked`)
	if strings.Contains(got.text, `value="account:read" checked`) || tokenOf(t, got) == "x" {
		t.Error("the form keeps the scopes or the token from before the preset")
	}
	b.wantHeld(t, "a preset", 0, 0)
	form := b.get("/new").text
	enter, preset := strings.Index(form, `type="submit" class="hidden"`), strings.Index(form, `name="preset"`)
	if enter < 0 || preset < enter {
		t.Error("the first button of the form, which Enter presses, is a preset's")
	}
	if !strings.Contains(form, `name="preset" value="External worker" formnovalidate`) {
		t.Error("a preset's button asks for what the form has not")
	}
	noForm := b.do("ada", "POST", "/new", "{}", "Accept", "text/html", "Sec-Fetch-Site", "same-origin")
	wantText(t, "a body that is no form", noForm, 415, "Not understood")
	wantText(t, "JSON", b.do("ada", "POST", "/new", "{}", "Content-Type", "application/json"), 415,
		"A program uses an issuing.Issuer.")
}

var checkedScopes = regexp.MustCompile(`name="(?:scopes|access\.[^"]*)" value="([^"]+)" checked`)

// picked returns the scopes that a form would send.
func picked(r reply) string {
	var names []string
	for _, m := range checkedScopes.FindAllStringSubmatch(r.text, -1) {
		names = append(names, m[1])
	}
	return strings.Join(names, " ")
}

// Reading and writing are one choice in a family, and the rest are picked one
// by one. Whatever was picked is picked again when the form comes back.
func TestAccess(t *testing.T) {
	registry := scope.New(
		scope.Definition{Name: "books:read"}, scope.Definition{Name: "books:write"}, scope.Definition{Name: "books:burn"},
		scope.Definition{Name: "films:read"}, scope.Definition{Name: "films:write", Implies: []scope.Name{"films:read"}},
		scope.Definition{Name: "music:write"}, scope.Definition{Name: "admin"},
		scope.Definition{Name: "plays:read"}, scope.Definition{Name: "plays:write"},
	)
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{Service: keystore.Service{Scopes: registry}})
	b := &bench{issuer: issuer, handler: http.StripPrefix(mount, console.New(issuer, admin, console.Options{
		Assignable: func(_ console.Actor, e keystore.Environment) (names []scope.Name) {
			for _, d := range registry.Definitions() {
				if d.Name != "plays:write" || e == keystore.Sandbox {
					names = append(names, d.Name)
				}
			}
			return names
		},
	}))}
	choices := func(family string) (values []string) {
		field := regexp.MustCompile(`name="access\.` + family + `" value="([^"]*)"([^>]*)><span>(\w+)<`)
		for _, m := range field.FindAllStringSubmatch(b.get("/new").text, -1) {
			values = append(values, m[1])
			if none := m[3] == "None"; none != (m[1] == "") || none != (m[2] == " checked") {
				t.Errorf("%s: the choice of %q is called %s:%s", family, m[1], m[3], m[2])
			}
		}
		return values
	}
	for family, want := range map[string][]string{
		"books": {"", "books:read", "books:write", "books:read books:write"},
		"films": {"", "films:read", "films:write"}, // writing is reading, too
		"music": {"", "music:write"},
		"plays": {"", "plays:read"}, // writing is for the sandbox only
		"admin": nil,
	} {
		if got := choices(family); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", family, got, want)
		}
	}
	for sent, want := range map[string]string{
		"access.books=books:read":                       "books:read",
		"access.books=books:write&scopes=books:burn":    "books:write books:burn",
		"access.books=books:read+books:write":           "books:read books:write",
		"scopes=books:write&scopes=books:read":          "books:read books:write",
		"access.films=films:write":                      "films:write",
		"scopes=films:read&scopes=films:write":          "films:read films:write",
		"access.plays=plays:read&scopes=plays:write":    "plays:read plays:write",
		"access.music=&access.books=&scopes=admin":      "admin",
		"access.other=music:write&access.books=&name=x": "music:write",
	} {
		got := b.do("ada", "POST", "/new", sent, ofPage...)
		if none := regexp.MustCompile(`name="access.books" value="" checked`); none.MatchString(got.text) ==
			strings.Contains(want, "books:") {
			t.Errorf("%s: no access to books is picked: %t", sent, none.MatchString(got.text))
		}
		if got.StatusCode != 422 || picked(got) != want {
			t.Errorf("%s: got %s with %q, want %q", sent, got.Status, picked(got), want)
		}
	}
	form := url.Values{"issue_token": {"t"}, "name": {"n"}, "environment": {"sandbox"}, "expiry": {"never"},
		"access.books": {"books:read books:write"}, "access.films": {""}, "scopes": {"admin", "plays:write"}}
	if got := b.post("/new", form); got.StatusCode != 201 {
		t.Fatalf("got %s\n%s", got.Status, plain(got))
	}
	page, err := issuer.Keys(t.Context(), "acme", issuing.Query{})
	if want := "[books:read books:write admin plays:write]"; err != nil || fmt.Sprint(page.Keys[0].Scopes) != want {
		t.Errorf("got %v, %v, want %s", page.Keys, err, want)
	}
}

// A link fills the form in, says so, and makes nothing.
func TestLinks(t *testing.T) {
	const said = "A link has filled in this form."
	synctest.Test(t, func(t *testing.T) { // whose clock starts on 1 January 2000
		b := newBench(t)
		for query, want := range map[string][]string{
			"name=The+%22night%22&environment=sandbox": {`value="The &#34;night&#34;"`, `value="sandbox" required checked`,
				said},
			"scopes=tasks:read,chat:write+tasks:write": {`value="tasks:read tasks:write" checked`,
				`value="chat:write" checked`, said},
			"scopes=tasks:read&scopes=account:read": {`value="account:read" checked`, `value="tasks:read" checked`},
			"scopes=tasks:read,moon:walk,<b>": {"scopes that you cannot assign: <code>moon:walk</code>, " +
				"<code>&lt;b&gt;</code>."},
			"expires=90":               {`value="90" selected`, said},
			"preset=External+worker":   {`value="deliverables:write" checked`, said},
			"environment=production":   {`value="production" required checked`, said},
			"expires=45":               {`value="date" selected`, `value="2000-02-15"`},
			"expires=2031-12-31":       {`value="date" selected`, `value="2031-12-31"`},
			"expires=1":                {`value="date" selected`, `value="2000-01-02"`},
			"expires=3650":             {`value="date" selected`, `value="2009-12-29"`},
			"expires=0":                {`value="never" selected`},
			"expires=3651":             {`value="never" selected`},
			"expires=soon":             {`value="never" selected`},
			"expires=99999":            {`value="never" selected`},
			"environment=moon&token=x": {`value="never" selected`},
		} {
			got := b.get("/new?" + query)
			for _, want := range want {
				if got.StatusCode != 200 || !strings.Contains(got.text, want) {
					t.Errorf("%s: got %s without %s", query, got.Status, want)
				}
			}
		}
		if strings.Contains(b.get("/new").text, said) || strings.Contains(b.get("/new?utm=x").text, said) {
			t.Error("a form that no link has filled in says that one has")
		}
		b.wantHeld(t, "links", 0, 0)
	})
}

// A form can be filled in like a key of the organization, whatever its state.
func TestCreateOneLikeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(o *console.Options) {
			o.Attributes = []console.Attribute{{Name: "team"}}
			o.Networks = true
			o.Assignable = func(console.Actor, keystore.Environment) []scope.Name {
				return []scope.Name{scope.AccountRead, scope.TasksRead}
			}
		})
		_, k := b.add(t, "acme", func(g *keystore.Key) {
			g.Name, g.Environment, g.ExpiresAt = "Robot 7", keystore.Sandbox, time.Now().Add(400*day)
			g.Scopes = []scope.Name{scope.AccountRead, scope.ChatRead}
			g.Attributes = map[string]string{"team": "north"}
			g.Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		})
		b.revoke(t, k)
		at := "new?like=" + k.ID
		wantHTML(t, "the page of the key does not lead there", b.get("/"+k.ID), `href="./`+at+`"`)
		form := b.get("/" + at)
		wantText(t, "the form", form, 200, "192.0.2.0/24",
			"You cannot assign these scopes, so they are left out: chat:read.")
		wantHTML(t, "the form", form, `value="Robot 7"`, `value="sandbox" required checked`, `value="account:read" checked`,
			`value="north"`, `value="365" selected`)
		wantNone(t, "the form has a scope that the key lacks, or makes the key's successor", form,
			`value="tasks:read" checked`, k.ID)
		for life, want := range map[time.Duration]string{
			5 * day: "7", 29*day - 1: "7", 29 * day: "30", 89*day - 1: "30", 364 * day: "365",
		} {
			_, k := b.add(t, "acme", func(g *keystore.Key) { g.ExpiresAt = time.Now().Add(life) })
			if got := b.get("/new?like=" + k.ID).text; !strings.Contains(got, `value="`+want+`" selected`) {
				t.Errorf("the form like a key that lives for %v: %s", life, got)
			}
		}
		_, endless := b.add(t, "acme")
		if got := b.get("/new?like=" + endless.ID).text; !strings.Contains(got, `value="never" selected`) {
			t.Errorf("the form like a key without an end: %s", got)
		}
		_, theirs := b.add(t, "other")
		wantText(t, "like another organization's", b.get("/new?like="+theirs.ID), 404, "Nothing here")
	})
}

// The only environment that there is to pick is picked, and a scope for one of
// two says for which.
func TestFormOfWhatMayBeAssigned(t *testing.T) {
	const tasks, chat = scope.TasksRead, scope.ChatRead
	for _, row := range []struct {
		production, sandbox []scope.Name
		environment, only   string
	}{
		{[]scope.Name{tasks, chat}, []scope.Name{tasks, chat}, "[]", "[]"},
		{[]scope.Name{tasks, chat}, nil, "[production]", "[]"},
		{nil, []scope.Name{tasks, chat}, "[sandbox]", "[]"},
		{[]scope.Name{tasks}, []scope.Name{chat}, "[]", "[tasks:read production only chat:read sandbox only]"},
		{[]scope.Name{tasks, chat}, []scope.Name{chat}, "[]", "[tasks:read production only]"},
		{nil, nil, "[]", "[]"},
	} {
		b := newBench(t, func(o *console.Options) {
			o.Assignable = func(_ console.Actor, e keystore.Environment) []scope.Name {
				return map[keystore.Environment][]scope.Name{"production": row.production, "sandbox": row.sandbox}[e]
			}
		})
		form := b.get("/new")
		var environment []string
		for _, m := range regexp.MustCompile(`value="(\w+)" required checked`).FindAllStringSubmatch(form.text, -1) {
			environment = append(environment, m[1])
		}
		only := regexp.MustCompile(`[a-z:]+ (production|sandbox) only`).FindAllString(plain(form), -1)
		if fmt.Sprint(environment) != row.environment || fmt.Sprint(only) != row.only {
			t.Errorf("%v and %v: got %v picked and %v, want %s and %s", row.production, row.sandbox, environment, only,
				row.environment, row.only)
		}
		_, k := b.add(t, "acme")
		list, page := b.get("/").text, b.get("/"+k.ID).text
		leads := len(row.production)+len(row.sandbox) > 0
		if strings.Contains(list, `href="./new"`) != leads || strings.Contains(page, `href="./new?like=`) != leads {
			t.Errorf("%v and %v: the list or the page of a key leads to the form: %t", row.production, row.sandbox, !leads)
		}
	}
}
