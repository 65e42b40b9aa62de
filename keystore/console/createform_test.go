package console_test

import (
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
			assignable(row.assignable...)(&o)
		}
		got := benchOf(issuer, o).get("/new")
		wantText(t, "the form", got, 200, "music")
		for _, p := range append(presets, console.DefaultPresets()...) {
			wantShown(t, fmt.Sprint(row.assignable), got, slices.Contains(row.want, p.Name), `value="`+p.Name+`"`)
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
	form := b.get("/new")
	enter, preset := strings.Index(form.text, `type="submit" class="hidden"`), strings.Index(form.text, `name="preset"`)
	if enter < 0 || preset < enter {
		t.Error("the first button of the form, which Enter presses, is a preset's")
	}
	wantHTML(t, "a preset's button asks for what the form has not", form,
		`name="preset" value="External worker" formnovalidate`)
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
	b := benchOf(issuer, console.Options{
		Assignable: func(_ console.Actor, e keystore.Environment) (names []scope.Name) {
			for _, d := range registry.Definitions() {
				if d.Name != "plays:write" || e == keystore.Sandbox {
					names = append(names, d.Name)
				}
			}
			return names
		},
	})
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
		wantShown(t, sent, got, !strings.Contains(want, "books:"), `name="access.books" value="" checked`)
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
	inBubble(t, func(t *testing.T, b *bench) {
		for query, want := range map[string][]string{
			"name=The+%22night%22&environment=sandbox": {`value="The &#34;night&#34;"`, `value="sandbox" required checked`,
				said},
			"scopes=tasks:read,chat:write+tasks:write": {`value="tasks:read tasks:write" checked`, `value="chat:write" checked`,
				said},
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
			wantText(t, query, got, 200)
			wantHTML(t, query, got, want...)
		}
		for _, at := range []string{"/new", "/new?utm=x"} {
			wantNone(t, "a form that no link has filled in says that one has", b.get(at), said)
		}
		b.wantHeld(t, "links", 0, 0)
	})
}

// A form can be filled in like a key of the organization, whatever its state.
func TestCreateOneLikeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, assignable(scope.AccountRead, scope.TasksRead), func(o *console.Options) {
			o.Attributes = []console.Attribute{{Name: "team"}}
			o.Networks = true
		})
		scopes := holding(scope.AccountRead, scope.ChatRead)
		_, k := b.add(t, "acme", called("Robot 7"), ending(400*day), scopes, func(g *keystore.Key) {
			g.Environment = keystore.Sandbox
			g.Attributes = map[string]string{"team": "north"}
			g.Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		})
		b.revoke(t, k)
		at := "new?like=" + k.ID
		wantHTML(t, "the page of the key does not lead there", b.get("/"+k.ID), `href="./`+at+`"`)
		form := b.get("/" + at)
		wantText(t, "the form", form, 200, "192.0.2.0/24", "You cannot assign these scopes, so they are left out: chat:read.")
		wantHTML(t, "the form", form, `value="Robot 7"`, `value="sandbox" required checked`, `value="account:read" checked`,
			`value="north"`, `value="365" selected`)
		wantNone(t, "the form has a scope that the key lacks, or makes the key's successor", form,
			`value="tasks:read" checked`, k.ID)
		for life, want := range map[time.Duration]string{
			5 * day: "7", 29*day - 1: "7", 29 * day: "30", 89*day - 1: "30", 364 * day: "365",
		} {
			_, k := b.add(t, "acme", ending(life))
			wantHTML(t, fmt.Sprint("like a key that lives for ", life), b.get("/new?like="+k.ID), `value="`+want+`" selected`)
		}
		_, endless := b.add(t, "acme")
		wantHTML(t, "like a key without an end", b.get("/new?like="+endless.ID), `value="never" selected`)
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
		leads := len(row.production)+len(row.sandbox) > 0
		wantShown(t, "the list leads to the form", b.get("/"), leads, `href="./new"`)
		wantShown(t, "the page of a key leads to the form", b.get("/"+k.ID), leads, `href="./new?like=`)
	}
}
