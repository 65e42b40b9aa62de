package keystore_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// descendant returns the last of keys as a look-up does, with the others as its
// ancestors, the furthest first.
func descendant(keys ...*keystore.Key) *keystore.Key {
	for i, k := range keys {
		k.ID, k.Organization, k.Environment = fmt.Sprint("key_", i), "acme", keystore.Sandbox
		k.Digest[0] = byte(i + 1)
		if i > 0 {
			k.Parent = keys[i-1].ID
		}
	}
	child := keys[len(keys)-1].Clone()
	for i := len(keys) - 2; i >= 0; i-- {
		child.Ancestors = append(child.Ancestors, keys[i])
	}
	return child
}

// No child may what one of its ancestors may not, and one may all that it and
// they may: with each of the scopes, which imply others, networks and ends of
// two keys, and however the caller came about.
func TestChildMayNoMore(t *testing.T) {
	names := []scope.Name{"a:read", "a:write", "a:all", "b:read"}
	registry := scope.New(scope.Definition{Name: "a:read"}, scope.Definition{Name: "a:write", Implies: names[:1]},
		scope.Definition{Name: "a:all", Implies: names[1:2]}, scope.Definition{Name: "b:read"})
	subsets := func(n int) (subset []scope.Name) {
		for i, name := range names {
			if n>>i&1 != 0 {
				subset = append(subset, name)
			}
		}
		return subset
	}
	networks := [][]netip.Prefix{nil, prefixes("192.0.2.0/24"), prefixes("192.0.0.0/16"), prefixes("10.0.0.0/8")}
	addresses := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.3.1"),
		netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("2001:db8::1")}
	hour := time.Now().Add(time.Hour)
	ends := []keystore.Key{{}, {ExpiresAt: hour}, {ExpiresAt: hour.Add(-2 * time.Hour)}, {RevokedAt: hour},
		{RevokedAt: hour.Add(-2 * time.Hour)}, {Suspended: true}}
	for n := range 16 * 16 * 16 {
		keys := []*keystore.Key{{}, {}, {}}
		parent, child := ends[n%36%6], ends[n%36/6] // each pair of them too
		parent.Scopes, child.Scopes = append(subsets(n&15), "future:thing"), append(subsets(n>>4&15), "future:thing")
		parent.Networks, child.Networks = networks[n>>8&3], networks[n>>10&3]
		keys[0].Scopes = names
		keys[n&1], keys[2] = &parent, &child // or its parent's parent
		keys[1-n&1].Scopes = names
		k := descendant(keys...)
		alone, above := child, parent
		alone.Parent, above.Parent = "", ""
		a, b, c := alone.Bind(registry), above.Bind(registry), k.Bind(registry)
		other := c.Bind(scope.Default()).Bind(registry)
		for _, name := range names {
			if may := a.Has(name) && b.Has(name); c.Has(name) != may || other.Has(name) != may {
				t.Fatalf("%v under %v: Has(%s) is %v, bound again %v, want %v", child.Scopes, parent.Scopes, name,
					c.Has(name), other.Has(name), may)
			}
		}
		for _, from := range addresses {
			if may := a.AllowsAddress(from) && b.AllowsAddress(from); c.AllowsAddress(from) != may ||
				!c.AllowsAddress(netip.Addr{}) != (!a.AllowsAddress(netip.Addr{}) || !b.AllowsAddress(netip.Addr{})) {
				t.Fatalf("%v under %v: AllowsAddress(%v) = %v, want %v", child.Networks, parent.Networks, from,
					c.AllowsAddress(from), may)
			}
		}
		live := a.Refused() == nil && b.Refused() == nil
		if (c.Refused() == nil) != live || (k.Refused() == nil) != live || (other.Refused() == nil) != live {
			t.Fatalf("%+v under %+v: refused with %v, as a key with %v", child, parent, c.Refused(), k.Refused())
		}
	}
}

// A child has an id of its own, the limits of the furthest ancestor, and the
// attributes that are its own and not those of an ancestor.
func TestChildAttributes(t *testing.T) {
	k := descendant(&keystore.Key{Attributes: map[string]string{"plan": "free"}},
		&keystore.Key{Attributes: map[string]string{"plan": "gold", "team": "x"}},
		&keystore.Key{Attributes: map[string]string{"plan": "gold", "team": "y", "run": "7"}})
	c := k.Bind(scope.Default())
	for _, c := range []*keystore.Caller{c, c.Bind(scope.New(scope.Definition{Name: "a:read"}))} {
		if c.KeyID() != "key_2" || c.RootID() != "key_0" {
			t.Errorf("got the key %q of %q, want key_2 of key_0", c.KeyID(), c.RootID())
		}
		if c.Attribute("plan") != "free" || c.Attribute("team") != "x" || c.Attribute("run") != "7" {
			t.Errorf("got plan %q, team %q, run %q, want free, x, 7", c.Attribute("plan"), c.Attribute("team"),
				c.Attribute("run"))
		}
	}
	cached, err := keystore.NewCached(liar{k}, keystore.CacheOptions{}).Lookup(t.Context(), k.Digest)
	if err != nil || cached.Attributes["plan"] != "free" || cached.Ancestors[0].Attributes != nil ||
		cached.Ancestors[1].Attributes != nil {
		t.Errorf("a Cached holds %+v, %v, want the attributes once", cached, err)
	}
}

// A key whose ancestors are not all there is refused, and may nothing.
func TestOrphans(t *testing.T) {
	granted := []scope.Name{scope.TasksRead}
	for name, spoil := range map[string]func(k *keystore.Key){
		"no ancestors":            func(k *keystore.Key) { k.Ancestors = nil },
		"one is missing":          func(k *keystore.Key) { k.Ancestors = k.Ancestors[:1] },
		"the first is missing":    func(k *keystore.Key) { k.Ancestors = k.Ancestors[1:] },
		"nil":                     func(k *keystore.Key) { k.Ancestors[1] = nil },
		"one without its digest":  func(k *keystore.Key) { k.Ancestors[1].Digest = keystore.Digest{} },
		"of another organization": func(k *keystore.Key) { k.Ancestors[1].Organization = "other" },
		"of another environment":  func(k *keystore.Key) { k.Ancestors[0].Environment = keystore.Production },
		"its own parent":          func(k *keystore.Key) { k.Ancestors[1].Parent = k.Ancestors[1].ID },
		"ancestors of no child":   func(k *keystore.Key) { k.Parent = "" },
	} {
		k := descendant(&keystore.Key{Scopes: granted}, &keystore.Key{Scopes: granted}, &keystore.Key{Scopes: granted})
		if err := k.Refused(); err != nil || !k.Bind(scope.Default()).Has(scope.TasksRead) {
			t.Fatalf("a child: %v", err)
		}
		spoil(k)
		c := k.Bind(scope.Default())
		for _, c := range []*keystore.Caller{c, c.Bind(scope.New(scope.Definition{Name: scope.TasksRead}))} {
			if k.Refused() != keystore.ErrRevoked || c.Refused() != keystore.ErrRevoked || len(c.Granted().Names()) > 0 {
				t.Errorf("%s: %v, bound %v and granted %v, want both revoked", name, k.Refused(), c.Refused(), c.Granted())
			}
		}
		secret := keystore.Service{}.Generate(keystore.Sandbox).Reveal()
		k.Digest = keystore.DigestOf(secret)
		token, _ := keystore.Service{}.Parse(secret)
		store := liar{k}
		if _, err := token.Lookup(t.Context(), store); !errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("%s: a look-up returned %v, want that there is no key", name, err)
		}
		if _, err := keystore.NewCached(store, keystore.CacheOptions{}).Lookup(t.Context(), k.Digest); !errors.Is(err,
			keystore.ErrNotFound) {
			t.Errorf("%s: a Cached returned %v, want that there is no key", name, err)
		}
	}
}
