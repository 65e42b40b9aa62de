package keystore_test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

func renamed(name string) func(*keystore.Key) { return func(k *keystore.Key) { k.Name = name } }

func TestEdit(t *testing.T) {
	memory := keystore.NewMemory()
	issuer := keystore.NewIssuer(memory, keystore.IssuerOptions{})
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
		{"other fields", func(k *keystore.Key) {
			k.Scopes, k.RevokedAt, k.Environment = nil, time.Now(),
				keystore.Production
		}, map[string]string{"team": "Lyon"}, prefixes("10.0.0.0/8"), 0},
		{"none left", func(k *keystore.Key) { k.Attributes, k.Networks = map[string]string{"team": ""}, nil }, nil, nil,
			1},
	} {
		got, err := issuer.Edit(t.Context(), "acme", k.ID, c.change)
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
	if _, err := issuer.Edit(t.Context(), "other", k.ID, renamed("x")); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Edit by another organization returned %v, want ErrNotFound", err)
	}
}

func TestEditProblems(t *testing.T) {
	memory := keystore.NewMemory()
	issuer := keystore.NewIssuer(memory, keystore.IssuerOptions{})
	_, k := issue(t, issuer, grant())
	_, err := issuer.Edit(t.Context(), "acme", k.ID, func(k *keystore.Key) {
		k.Name = "a\x00"
		k.Attributes = map[string]string{"a b": "c"}
		k.Networks = []netip.Prefix{{}}
	})
	var problems *keystore.GrantError
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
	memory := keystore.NewMemory()
	issuer := keystore.NewIssuer(memory, keystore.IssuerOptions{})
	k := &keystore.Key{
		ID: "key_1", Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{"future:thing"},
		Name:       strings.Repeat("x", 200),
		Attributes: map[string]string{"a b": "", "c": strings.Repeat("x", 300)},
		Networks:   []netip.Prefix{netip.MustParsePrefix("10.1.1.1/8"), {}},
	}
	if err := memory.Insert(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	got, err := issuer.Edit(t.Context(), "acme", "key_1", renamed("new"))
	if err != nil || got.Name != "new" || !slices.Equal(got.Scopes, k.Scopes) ||
		!maps.Equal(got.Attributes, k.Attributes) || !slices.Equal(got.Networks, k.Networks) {
		t.Errorf("Edit returned %+v, %v, want the new name and the rest as it was", got, err)
	}
	if _, err := issuer.Edit(t.Context(), "acme", "key_1", func(k *keystore.Key) { k.Networks = nil }); err != nil {
		t.Errorf("Edit of the networks returned %v", err)
	}
}

// Of two edits at once neither undoes the other.
func TestEditAgainstAnotherWriter(t *testing.T) {
	memory := keystore.NewMemory()
	_, k := issue(t, keystore.NewIssuer(memory, keystore.IssuerOptions{}), grant())
	calls := 0
	issuer := keystore.NewIssuer(memory, keystore.IssuerOptions{})
	got, err := issuer.Edit(t.Context(), "acme", k.ID, func(edited *keystore.Key) {
		if calls++; calls == 1 {
			other := k.Clone()
			other.Attributes = map[string]string{"team": "Lyon"}
			if err := memory.Update(t.Context(), other); err != nil {
				t.Error(err)
			}
		}
		edited.Attributes = maps.Clone(edited.Attributes)
		if edited.Attributes == nil {
			edited.Attributes = make(map[string]string)
		}
		edited.Attributes["plan"] = "pro"
	})
	if want := (map[string]string{"plan": "pro", "team": "Lyon"}); err != nil || calls != 2 ||
		!maps.Equal(got.Attributes, want) {
		t.Errorf("got %+v, %v after %d calls, want both attributes after 2", got, err, calls)
	}
}
