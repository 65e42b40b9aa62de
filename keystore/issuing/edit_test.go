package issuing_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// edit changes a key as it is now.
func edit(
	t testing.TB, i *issuing.Issuer, organization, id string, change func(*keystore.Key),
) (*keystore.Key, error) {
	t.Helper()
	k, err := i.Key(t.Context(), organization, id)
	if err != nil {
		return nil, err
	}
	change(k)
	return i.Edit(t.Context(), *k)
}

func renamed(name string) func(*keystore.Key) { return func(k *keystore.Key) { k.Name = name } }

func TestEdit(t *testing.T) {
	memory, issuer := newIssuer()
	_, k := issue(t, issuer, grant())
	version := int64(1)
	for _, c := range []struct {
		name     string
		change   func(k *keystore.Key)
		want     map[string]string
		networks []netip.Prefix
		writes   int64
	}{
		{"nothing", func(k *keystore.Key) {}, nil, nil, 0},
		{"a name", renamed("new"), nil, nil, 1},
		{"the same name", renamed("new"), nil, nil, 0},
		{"an attribute", func(k *keystore.Key) { k.Attributes = map[string]string{"plan": "pro", "team": ""} },
			map[string]string{"plan": "pro"}, nil, 1},
		{"an attribute without a value", func(k *keystore.Key) { k.Attributes["team"] = "" },
			map[string]string{"plan": "pro"}, nil, 0},
		{"another one", func(k *keystore.Key) { k.Attributes["team"] = "Lyon" },
			map[string]string{"plan": "pro", "team": "Lyon"}, nil, 1},
		{"networks", func(k *keystore.Key) { k.Networks = prefixes("10.1.2.3/8", "10.0.0.0/8") },
			map[string]string{"plan": "pro", "team": "Lyon"}, prefixes("10.0.0.0/8"), 1},
		{"the same networks", func(k *keystore.Key) { k.Networks = prefixes("10.9.9.9/8") },
			map[string]string{"plan": "pro", "team": "Lyon"}, prefixes("10.0.0.0/8"), 0},
		{"a name and the same networks", func(k *keystore.Key) { k.Name, k.Networks = "new 2", prefixes("10.9.9.9/8") },
			map[string]string{"plan": "pro", "team": "Lyon"}, prefixes("10.0.0.0/8"), 1},
		{"a name and no other attribute", func(k *keystore.Key) { k.Name, k.Attributes["x"] = "new", "" },
			map[string]string{"plan": "pro", "team": "Lyon"}, prefixes("10.0.0.0/8"), 1},
		{"without a value", func(k *keystore.Key) { k.Attributes["plan"] = "" }, map[string]string{"team": "Lyon"},
			prefixes("10.0.0.0/8"), 1},
		{"other fields", func(k *keystore.Key) { k.RevokedAt, k.Environment = time.Now(), keystore.Production },
			map[string]string{"team": "Lyon"}, prefixes("10.0.0.0/8"), 0},
		{"none left", func(k *keystore.Key) { k.Attributes = map[string]string{"team": ""} }, nil, prefixes("10.0.0.0/8"), 1},
	} {
		got, err := edit(t, issuer, "acme", k.ID, c.change)
		stored, _ := memory.Find(t.Context(), "acme", k.ID)
		version += c.writes
		if err != nil || stored.Version != version || got.Version != version ||
			!maps.Equal(stored.Attributes, c.want) || !slices.Equal(stored.Networks, c.networks) ||
			!maps.Equal(got.Attributes, c.want) || !slices.Equal(got.Networks, c.networks) {
			t.Errorf("%s: Edit returned %+v, %v and stored %+v, want attributes %v, networks %v and version %d", c.name,
				got, err, stored, c.want, c.networks, version)
		}
	}
	stored, _ := memory.Find(t.Context(), "acme", k.ID)
	if stored.Name != "new" || !stored.RevokedAt.IsZero() || len(stored.Scopes) != len(k.Scopes) ||
		stored.Environment != k.Environment {
		t.Errorf("after the edits the key is %+v, want the new name and nothing else changed", stored)
	}
	if _, err := edit(t, issuer, "other", k.ID, renamed("x")); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Edit by another organization returned %v, want ErrNotFound", err)
	}
}

func TestEditProblems(t *testing.T) {
	memory, issuer := newIssuer()
	_, k := issue(t, issuer, grant())
	_, err := edit(t, issuer, "acme", k.ID, func(k *keystore.Key) {
		k.Name = "a\x00"
		k.Attributes = map[string]string{"a b": "c"}
		k.Networks = []netip.Prefix{{}}
	})
	var problems *keystore.FieldsError
	if !errors.As(err, &problems) || len(problems.Fields) != 3 || problems.Fields[0].Field != "name" ||
		problems.Fields[1].Field != "attributes" || problems.Fields[2].Field != "networks" {
		t.Errorf("got %v, want a problem with each field", err)
	}
	if stored, _ := memory.Find(t.Context(), "acme", k.ID); stored.Version != 1 {
		t.Errorf("an edit that was refused made version %d", stored.Version)
	}
}

// What another program stored outside the limits does not stand in the way of
// a change elsewhere, and a key keeps the scopes that nobody knows any more.
func TestEditOfAStrangeKey(t *testing.T) {
	memory, issuer := newIssuer()
	k := &keystore.Key{
		ID: "key_1", Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{"future:thing"},
		Name:       strings.Repeat("x", 200),
		Attributes: map[string]string{"a b": "", "c": strings.Repeat("x", 300)},
		Networks:   []netip.Prefix{netip.MustParsePrefix("::ffff:10.1.1.1/104"), {}},
	}
	must(t, memory.Insert(t.Context(), k, entry(), 0))
	got, err := edit(t, issuer, "acme", "key_1", renamed("new"))
	if err != nil || got.Name != "new" || !slices.Equal(got.Scopes, k.Scopes) ||
		!maps.Equal(got.Attributes, k.Attributes) || !slices.Equal(got.Networks, k.Networks) {
		t.Errorf("Edit returned %+v, %v, want the new name and the rest as it was", got, err)
	}
	narrow := func(k *keystore.Key) { k.Networks = prefixes("10.1.0.0/16") }
	if _, err := edit(t, issuer, "acme", "key_1", narrow); err != nil {
		t.Errorf("Edit of the networks returned %v", err)
	}
}

// A key can be made to do less. What would give it more rights is refused, and
// nothing of the edit takes place.
func TestEditGivesNoRights(t *testing.T) {
	memory := issuing.NewMemory()
	registry := scope.New(scope.Definition{Name: "cars:write", Implies: []scope.Name{"cars:read"}},
		scope.Definition{Name: "cars:read"}, scope.Definition{Name: "cars:drive"})
	issuer := issuing.New(memory, issuing.Options{Service: keystore.Service{Scopes: registry}})
	soon := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	limited := grant()
	limited.Scopes, limited.ExpiresAt = []scope.Name{"cars:write", "cars:drive"}, soon
	limited.Networks = prefixes("10.0.0.0/8", "2001:db8::/32")
	free := grant()
	free.Scopes = nil
	for name, c := range map[string]struct {
		grant  keystore.Key
		change func(k *keystore.Key)
		field  string // of the refusal
	}{
		"scopes taken away":   {limited, func(k *keystore.Key) { k.Scopes = []scope.Name{"cars:write"} }, ""},
		"all of them":         {limited, func(k *keystore.Key) { k.Scopes = nil }, ""},
		"an implied one":      {limited, func(k *keystore.Key) { k.Scopes = []scope.Name{"cars:read"} }, ""},
		"another scope":       {free, func(k *keystore.Key) { k.Scopes = []scope.Name{"cars:read"} }, "scopes"},
		"an unknown scope":    {limited, func(k *keystore.Key) { k.Scopes = []scope.Name{"cars:*"} }, "scopes"},
		"an earlier expiry":   {limited, func(k *keystore.Key) { k.ExpiresAt = soon.Add(-time.Minute) }, ""},
		"an expiry":           {free, func(k *keystore.Key) { k.ExpiresAt = soon }, ""},
		"a later expiry":      {limited, func(k *keystore.Key) { k.ExpiresAt = soon.Add(1000) }, "expires_at"},
		"no expiry":           {limited, func(k *keystore.Key) { k.ExpiresAt = time.Time{} }, "expires_at"},
		"an expiry before":    {limited, func(k *keystore.Key) { k.ExpiresAt = time.Now() }, "expires_at"},
		"not before 10000":    {free, func(k *keystore.Key) { k.ExpiresAt = soon.AddDate(8000, 0, 0) }, "expires_at"},
		"a smaller network":   {limited, func(k *keystore.Key) { k.Networks = prefixes("10.9.0.0/16") }, ""},
		"one of the networks": {limited, func(k *keystore.Key) { k.Networks = prefixes("2001:db8::/32") }, ""},
		"a network":           {free, func(k *keystore.Key) { k.Networks = prefixes("10.0.0.0/8") }, ""},
		"a larger network":    {limited, func(k *keystore.Key) { k.Networks = prefixes("10.0.0.0/7") }, "networks"},
		"another network": {limited,
			func(k *keystore.Key) { k.Networks = prefixes("10.0.0.0/8", "192.0.2.0/24") }, "networks"},
		"no network": {limited, func(k *keystore.Key) { k.Networks = nil }, "networks"},
	} {
		_, k := issue(t, issuer, c.grant)
		c.change(k)
		k.Name = "changed"
		got, err := issuer.Edit(t.Context(), *k)
		stored, _ := memory.Find(t.Context(), "acme", k.ID)
		if c.field == "" {
			if err != nil || stored.Version != 2 || joined(stored) != joined(k) || joined(got) != joined(k) {
				t.Errorf("%s: Edit returned %v, %v and stored %v, want %v", name, got, err, stored, k)
			}
			continue
		}
		wrong, _ := errors.AsType[*keystore.FieldsError](err)
		if wrong == nil || len(wrong.Fields) != 1 || wrong.Fields[0].Field != c.field || stored.Version != 1 ||
			strings.Contains(err.Error(), "issue a new key") != !strings.Contains(name, "before") {
			t.Errorf("%s: Edit returned %v and stored %v, want a problem with %s", name, err, stored, c.field)
		}
	}
}

// joined is what an edit can change, as a text.
func joined(k *keystore.Key) string {
	return fmt.Sprint(k.Name, k.Scopes, k.Attributes, k.Networks, k.ExpiresAt.UnixMicro(), k.Suspended)
}

// Of two operators who edit what both have read one is told to read again.
func TestEditAtTheSameMoment(t *testing.T) {
	memory, issuer := newIssuer()
	_, k := issue(t, issuer, grant())
	first, second := k.Clone(), k.Clone()
	first.Name, second.Suspended, second.Name = "first", true, "second"
	_, err := issuer.Edit(t.Context(), *first)
	must(t, err)
	if _, err := issuer.Edit(t.Context(), *second); !errors.Is(err, issuing.ErrConflict) {
		t.Errorf("the second edit returned %v, want ErrConflict", err)
	}
	if got, _ := memory.Find(t.Context(), "acme", k.ID); got.Name != "first" || got.Suspended || got.Version != 2 {
		t.Errorf("the key is %+v, want the first edit alone", got)
	}
}
