package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/scope"
)

// A preset is offered when the form can pick all of it.
func TestPresetsThatTheFormCannotPick(t *testing.T) {
	presets := []console.Preset{
		{Name: "All there", Scopes: []scope.Name{"books:read"}},
		{Name: "Half there", Scopes: []scope.Name{"books:read", "films:read"}},
		{Name: "Not there", Scopes: []scope.Name{"films:read"}},
	}
	for name, c := range map[string]struct {
		change func(*console.Options)
		want   []string
	}{
		"default": {func(*console.Options) {}, nil},
		"presets of one's own": {func(o *console.Options) { o.Presets = presets },
			[]string{"All there", "Half there", "Not there"}},
		"books": {func(o *console.Options) {
			o.Presets = presets
			o.Assignable = func(console.Actor, keystore.Environment) []scope.Name {
				return []scope.Name{"books:read", "music:read"}
			}
		}, []string{"All there"}},
		"narrowed": {func(o *console.Options) {
			o.Presets = presets
			o.Assignable = func(console.Actor, keystore.Environment) []scope.Name { return []scope.Name{"music:read"} }
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.IssuerOptions{
				Service: keystore.Service{
					Scopes: scope.New(scope.Definition{Name: "books:read"}, scope.Definition{Name: "films:read"},
						scope.Definition{Name: "music:read"}),
				},
			})
			o := console.Options{}
			c.change(&o)
			b := &bench{issuer: issuer, handler: http.StripPrefix(mount, console.New(issuer, admin, o))}
			got := b.get("/new")
			wantText(t, "the form", got, 200, "music")
			for _, p := range append(presets, console.DefaultPresets()...) {
				if offered := strings.Contains(got.text, `value="`+p.Name+`"`); offered != slices.Contains(c.want, p.Name) {
					t.Errorf("preset %q is offered: %t", p.Name, offered)
				}
			}
		})
	}
}

// A preset that can never be offered is a mistake.
func TestPresetMistakes(t *testing.T) {
	for _, p := range []console.Preset{{Name: "Unknown", Scopes: []scope.Name{scope.TasksRead, "chat:raed"}},
		{Name: "Empty"}} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "console: Presets: \""+p.Name) {
					t.Errorf("%s: got %s", p.Name, text)
				}
			}()
			newBench(t, func(o *console.Options) { o.Presets = []console.Preset{p} })
		}()
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
	for _, want := range []string{
		`value="The &#34;night&#34; &lt;import&gt;"`, `name="environment" value="sandbox" required checked`,
		`value="date" selected`, `value="2030-12-31"`,
		`value="deliverables:write" checked`, `value="chat:read" checked`, `value="chat:write" checked`,
	} {
		if !strings.Contains(got.text, want) {
			t.Errorf("the form has lost %s", want)
		}
	}
	if strings.Contains(got.text, `value="account:read" checked`) || tokenOf(t, got) == "x" {
		t.Error("the form keeps the scopes or the token from before the preset")
	}
	if len(b.all(t, "acme")) > 0 || len(b.entries) > 0 {
		t.Error("a preset created a key")
	}
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
		"A program uses a keystore.Issuer.")
}
