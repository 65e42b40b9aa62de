package console_test

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestCreateWithAttributesAndNetworks(t *testing.T) {
	b := newBench(t, restricted)
	wantText(t, "the form", b.get("/new"), 200, "Attributes", "Project", "Networks", "Lyon", "Oslo")
	f := b.form(t)
	f.Set("attribute.project", "x")
	f.Set("attribute.team", "Rome")
	f.Set("attribute.plan", "gold")
	f.Set("networks", "192.0.2.7 nowhere")
	got := b.post("/new", f)
	wantText(t, "a bad form", got, 422, "Attributes", `The attribute team cannot be "Rome".`,
		`"nowhere" is neither a network`)
	wantHTML(t, "the form has lost what was typed", got, "\n192.0.2.7 nowhere</textarea>", `value="x"`)
	if len(b.all(t, "acme")) > 0 {
		t.Fatal("a key was created")
	}
	f.Set("attribute.team", "Oslo")
	f.Set("networks", "192.0.2.7")
	secretOf(t, b.post("/new", f))
	k := b.all(t, "acme")[0]
	if !maps.Equal(k.Attributes, map[string]string{"project": "x", "team": "Oslo"}) ||
		fmt.Sprint(k.Networks) != "[192.0.2.7/32]" {
		t.Errorf("got %v and %v", k.Attributes, k.Networks)
	}
	if e := b.entries[0]; e.Act != "issue" || !slices.Contains(e.Changes,
		issuing.Change{Field: "attributes", After: "project=x team=Oslo"}) {
		t.Errorf("got the event %+v", e)
	}
	// A preset's button keeps them too.
	f.Set("preset", "External worker")
	wantHTML(t, "a preset has lost what was typed", b.post("/new", f), `<option value="Oslo" selected>`,
		"\n192.0.2.7</textarea>")
}

// A value from before the choice was narrowed stays until it is changed.
func TestValuesThatCannotBeChosenAnyMore(t *testing.T) {
	b := newBench(t, restricted)
	_, k := b.add(t, "acme", func(g *keystore.Key) { g.Attributes = map[string]string{"team": "Rome"} })
	path := "/" + k.ID + "/edit"
	wantHTML(t, "the form does not offer the value that the key has", b.get(path), `<option value="Rome" selected>`,
		`<option value="Oslo">`)
	f := url.Values{"name": {"n"}, "attribute.team": {"Rome"}}
	b.post(path, f)
	if got := b.key(t, k.ID); got.Name != "n" || got.Attributes["team"] != "Rome" {
		t.Errorf("got %+v", got)
	}
	wantNone(t, "a new key is offered the value", b.get("/new"), "Rome")
}

// A legacy key is marked until it is rotated.
func TestLegacyKeys(t *testing.T) {
	b := newBench(t)
	service := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}}}
	b.issuer = issuing.New(b.store, issuing.Options{Service: service})
	b.handler = benchOf(b.issuer, console.Options{}).handler
	old, err := b.issuer.Import(t.Context(), keystore.Key{
		Organization: "acme", Name: "Old one", Environment: keystore.Production,
		Digest: keystore.DigestOf("acme_0123456789abcdef"), Legacy: "v1", Hint: "cdef",
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, "the list", b.get("/"), 200, "acme_…cdef Production", "Active Legacy")
	wantText(t, "the key", b.get("/"+old.ID), 200, "acme_…cdef Production Active Legacy",
		"This key has the form of an older system. Rotate it")
	// secretOf knows tokens of the present form alone.
	secretOf(t, b.post("/"+old.ID+"/rotate", url.Values{"issue_token": {"x"}, "overlap": {"86400"}}))
	wantNone(t, "the key that replaces it is marked", b.get("/"+b.all(t, "acme")[0].ID), "Legacy")
	wantText(t, "the old key", b.get("/"+old.ID), 200, "Legacy", "It stops working on")
}
