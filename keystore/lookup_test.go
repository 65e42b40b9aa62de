package keystore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestTokenLookup(t *testing.T) {
	peppers := []string{"the 1st pepper", "the 2nd pepper", "the 3rd pepper", "the 4th pepper"}
	format := peppered(peppers...)
	digests := func(digit string) (all []keystore.Digest) {
		for _, pepper := range peppers {
			all = append(all, hmacOf([]byte(pepper), acme(digit)))
		}
		return all
	}
	store, cached := newCached(keystore.CacheOptions{NegativeTTL: time.Nanosecond})
	issuer := issuing.New(store, issuing.Options{Service: format})
	imported(t, issuer, keystore.Key{Digest: digests("1")[2], Legacy: "v1", ID: "third"})
	for _, c := range []struct {
		name  string
		store keystore.Store
		digit string
		want  string // id; empty: not found
		calls int64
	}{
		{"an unknown token", store, "0", "", 4},
		{"an unknown token", cached, "0", "", 4},
		{"the third pepper", store, "1", "third", 3},
		{"the third pepper", cached, "1", "third", 3},
		{"the third pepper again", store, "1", "third", 3},
		{"the third pepper, remembered", cached, "1", "third", 0},
	} {
		candidates := parse(t, format, acme(c.digit))
		k, err := candidates.Lookup(t.Context(), c.store)
		if c.want == "" && !errors.Is(err, keystore.ErrNotFound) || c.want != "" && (err != nil || k.ID != c.want) {
			t.Errorf("%s: got %v, %v, want %q", c.name, k, err, c.want)
		}
		store.wantCalls(t, c.calls, c.name)
		if !slices.Equal(candidates.Digests(), digests(c.digit)) {
			t.Errorf("%s: Lookup changed the order of the digests", c.name)
		}
	}

	// What is remembered but too old is asked for first.
	cached.Invalidate(digests("1")[2])
	candidates := parse(t, format, acme("1"))
	if _, err := candidates.Lookup(t.Context(), cached); err != nil {
		t.Error(err)
	}
	store.wantCalls(t, 1, "a token that is remembered and too old")

	// The others follow in their order: the key may have got another digest.
	second, third := digests("2")[1], digests("2")[2]
	for id, d := range map[string]keystore.Digest{"second": second, "last": third} {
		imported(t, issuer, keystore.Key{Digest: d, Legacy: "v1", ID: id})
	}
	want(t, cached, third, nil, "the last key")
	cached.Invalidate(third)
	var asked []keystore.Digest
	store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
		asked = append(asked, d)
		if d == third {
			return nil, keystore.ErrNotFound
		}
		return store.Store.Lookup(ctx, d)
	})
	candidates = parse(t, format, acme("2"))
	if k, err := candidates.Lookup(t.Context(), cached); err != nil || k.ID != "second" {
		t.Errorf("got %v, %v, want the second key", k, err)
	}
	if want := []keystore.Digest{third, digests("2")[0], second}; !slices.Equal(asked, want) {
		t.Errorf("the store was asked for %x, want the remembered digest and then the others, %x", asked, want)
	}
	store.calls.Store(0)

	// The store has to answer for each digest before the token is unknown.
	store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
		if d == digests("0")[1] {
			return nil, errStoreDown
		}
		return store.Store.Lookup(ctx, d)
	})
	candidates = parse(t, format, acme("0"))
	if _, err := candidates.Lookup(t.Context(), store); !errors.Is(err, errStoreDown) {
		t.Errorf("got %v, want the error of the store", err)
	}
	store.wantCalls(t, 2, "an error of the store")
}

func TestRemembered(t *testing.T) {
	format := peppered("the new pepper", "the old pepper")
	store, cached := newCached(keystore.CacheOptions{Service: format})
	issuer := issuing.New(cached, issuing.Options{})
	c := parse(t, format, acme("1"))
	known := imported(t, issuer, keystore.Key{Digest: c.Digests()[1], Legacy: "v1"})
	want := func(ok bool, rule string) {
		t.Helper()
		store.wantCalls(t, 0, "before")
		if k, _ := c.Remembered(cached, nil); (k != nil) != ok || ok && k.KeyID() != known.ID {
			t.Errorf("%s: Remembered returned %v, want one: %t", rule, k, ok)
		}
		store.wantCalls(t, 0, rule)
	}
	want(false, "a key that was not looked up yet")
	_, err := c.Lookup(t.Context(), cached)
	must(t, err)
	store.wantCalls(t, 2, "the first look-up")
	want(true, "a key that is remembered under the second digest")
	_, err = issuer.Revoke(t.Context(), "acme", known.ID)
	must(t, err)
	want(false, "a key that was revoked")
}

// A liar is a store that has one key for whatever digest.
type liar struct{ key *keystore.Key }

func (l liar) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) { return l.key, nil }

// The digest that comes first decides also when its key is refused, and the
// zero Token leads nowhere.
func TestFirstDigestDecides(t *testing.T) {
	format := peppered("the new pepper", "the old pepper")
	memory := issuing.NewMemory()
	issuer := issuing.New(memory, issuing.Options{Service: format})
	for id, pepper := range map[string]string{"newer": "the new pepper", "older": "the old pepper"} {
		imported(t, issuer, keystore.Key{Digest: hmacOf([]byte(pepper), acme("1")), Legacy: "v1", ID: id})
	}
	_, err := issuer.Revoke(t.Context(), "acme", "newer")
	must(t, err)
	c := parse(t, format, acme("1"))
	if k, err := c.Lookup(t.Context(), memory); err != nil || k.ID != "newer" || k.Refused() != keystore.ErrRevoked {
		t.Errorf("got %v, %v, want the revoked key", k, err)
	}
	c = keystore.Token{}
	if k, err := c.Lookup(t.Context(), memory); !errors.Is(err, keystore.ErrNotFound) || k != nil ||
		len(c.Digests()) != 0 {
		t.Errorf("the zero Token: got %v, %v, want ErrNotFound", k, err)
	}
}

// A store that gives what cannot be the key of the token lets nobody in. A Cached
// does not remember what cannot be the key of the digest.
func TestCorruptRecords(t *testing.T) {
	format := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}}}
	present, child, old := withChecksum("svc_test_"+strings.Repeat("aB", 16)),
		asChild("svc_test_"+strings.Repeat("aB", 16)), acme("0")
	later := time.Now().Add(time.Hour)
	parent := []*keystore.Key{{ID: "parent", Organization: "acme", Environment: keystore.Sandbox, Digest: unknown(1)}}
	for _, c := range []struct {
		name, token string
		spoil       func(k *keystore.Key) // nil: there is no key
		ok          bool
		calls       int64 // for two lookups by a Cached
	}{
		{"the key", present, func(*keystore.Key) {}, true, 1},
		{"a legacy key", old, func(k *keystore.Key) { k.Legacy = "v1" }, true, 1},
		{"a legacy key of another format", old, func(k *keystore.Key) { k.Legacy = "v0" }, true, 1},
		{"a child", child, func(k *keystore.Key) { k.Parent, k.Ancestors = "parent", parent }, true, 1},
		{"a parent", present, func(k *keystore.Key) { k.Parent, k.Ancestors = "parent", parent }, false, 1},
		{"no parent", child, func(*keystore.Key) {}, false, 1},
		{"another environment", present, func(k *keystore.Key) { k.Environment = keystore.Production }, false, 1},
		{"a mark", present, func(k *keystore.Key) { k.Legacy = "v1" }, false, 1},
		{"no mark", old, func(*keystore.Key) {}, false, 1},
		{"neither a key nor an error", present, nil, false, 2},
		{"another digest", present, func(k *keystore.Key) { k.Digest = unknown(2) }, false, 2},
		{"another digest, legacy", old, func(k *keystore.Key) { k.Digest, k.Legacy = unknown(2), "v1" }, false, 2},
		{"the word in a token", present, func(k *keystore.Key) { k.Environment = "test" }, false, 2},
		{"an unknown environment", old, func(k *keystore.Key) { k.Environment, k.Legacy = "staging", "v1" }, false, 2},
		{"no environment", old, func(k *keystore.Key) { k.Environment, k.Legacy = "", "v1" }, false, 2},
		{"no ID", present, func(k *keystore.Key) { k.ID = "" }, false, 2},
		{"no organization", present, func(k *keystore.Key) { k.Organization = "" }, false, 2},
		{"no ID, and replaced", present, func(k *keystore.Key) { k.ID, k.RevokedAt = "", later }, false, 2},
	} {
		token := parse(t, format, c.token)
		var stored *keystore.Key
		if c.spoil != nil {
			stored = &keystore.Key{ID: "key_1", Organization: "acme", Environment: keystore.Sandbox, Digest: token.Digests()[0]}
			c.spoil(stored)
		}
		store, cached := newCached(keystore.CacheOptions{TTL: time.Hour})
		store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return stored, nil })
		for _, s := range []keystore.Store{store, cached, cached} {
			got, err := token.Caller(t.Context(), s, nil)
			if (err == nil) != c.ok || (got != nil) != c.ok ||
				!c.ok && (!errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrNotFound)) {
				t.Errorf("%s: with a %T got %v, %v, want it let in: %t", c.name, s, got, err, c.ok)
			}
		}
		store.wantCalls(t, 1+c.calls, c.name)
		if got, _ := token.Remembered(cached, nil); (got != nil) != c.ok {
			t.Errorf("%s: remembered %v, want it let in: %t", c.name, got, c.ok)
		}
	}
}

// overruling embeds a Cached and looks keys up by its own means.
type overruling struct{ *keystore.Cached }

func (overruling) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, keystore.ErrNotFound
}

// The caller of a token is the same with and without a Cached. A type that
// embeds one is asked by its own Lookup.
func TestTokenCaller(t *testing.T) {
	store, cached := newCached(keystore.CacheOptions{})
	known, k := issue(t, issuing.New(cached, issuing.Options{}), grant())
	unknown := keystore.Service{}.Generate(keystore.Sandbox).Reveal()
	for _, c := range []struct {
		name, token string
		s           keystore.Store
		want        error
	}{
		{"a store", known, store, nil},
		{"a Cached", known, cached, nil},
		{"what embeds a Cached", known, overruling{cached}, keystore.ErrNotFound},
		{"a store, unknown", unknown, store, keystore.ErrNotFound},
		{"a Cached, unknown", unknown, cached, keystore.ErrNotFound},
	} {
		token := parse(t, keystore.Service{}, c.token)
		caller, err := token.Caller(t.Context(), c.s, nil)
		if !errors.Is(err, c.want) || (err == nil) != (caller != nil) || err == nil && caller.KeyID() != k.ID {
			t.Errorf("%s: got %v, %v, want %v", c.name, caller, err, c.want)
		}
	}
}
