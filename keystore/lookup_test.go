package keystore_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestTokenLookup(t *testing.T) {
	peppers := [][]byte{[]byte("the 1st pepper"), []byte("the 2nd pepper"), []byte("the 3rd pepper"),
		[]byte("the 4th pepper")}
	format := keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC(peppers...)}}
	digests := func(digit string) (all []keystore.Digest) {
		for _, pepper := range peppers {
			all = append(all, hmacOf(pepper, acme(digit)))
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
	if _, err := cached.Lookup(t.Context(), third); err != nil {
		t.Fatal(err)
	}
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
		if k, _ := c.Remembered(cached, nil); (k != nil) != ok || ok && k.KeyID() != known.ID || !ok && k != nil {
			t.Errorf("%s: Remembered returned %v, want one: %t", rule, k, ok)
		}
		store.wantCalls(t, 0, rule)
	}
	want(false, "a key that was not looked up yet")
	if _, err := c.Lookup(t.Context(), cached); err != nil {
		t.Fatal(err)
	}
	store.wantCalls(t, 2, "the first look-up")
	want(true, "a key that is remembered under the second digest")
	if _, err := issuer.Revoke(t.Context(), "acme", known.ID); err != nil {
		t.Fatal(err)
	}
	store.wantCalls(t, 0, "a revocation")
	want(false, "a key that was revoked")

	// A store that lies lets nobody in.
	now := time.Now()
	for name, k := range map[string]*keystore.Key{
		"nothing":             nil,
		"another key":         {Environment: keystore.Sandbox, Legacy: "v1"},
		"a revoked key":       {Digest: c.Digests()[0], Environment: keystore.Sandbox, Legacy: "v1", RevokedAt: now},
		"a key without mark":  {Digest: c.Digests()[0], Environment: keystore.Sandbox},
		"a key of no tenancy": {Digest: c.Digests()[0], Legacy: "v1"},
	} {
		lying := keystore.NewCached(liar{k},
			keystore.CacheOptions{Service: format, Logger: slog.New(slog.DiscardHandler)})
		lying.Lookup(t.Context(), c.Digests()[0])
		if got, _ := c.Remembered(lying, nil); got != nil {
			t.Errorf("of a store that has %s Remembered returned %v", name, got)
		}
	}
}

// A liar is a store that has one key for whatever digest.
type liar struct{ key *keystore.Key }

func (l liar) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) { return l.key, nil }

// The digest that comes first decides also when its key is refused, and the
// zero Token leads nowhere.
func TestFirstDigestDecides(t *testing.T) {
	newer, older := []byte("the new pepper"), []byte("the old pepper")
	format := keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC(newer, older)}}
	memory := issuing.NewMemory()
	issuer := issuing.New(memory, issuing.Options{Service: format})
	for id, pepper := range map[string][]byte{"newer": newer, "older": older} {
		imported(t, issuer, keystore.Key{Digest: hmacOf(pepper, acme("1")), Legacy: "v1", ID: id})
	}
	if _, err := issuer.Revoke(t.Context(), "acme", "newer"); err != nil {
		t.Fatal(err)
	}
	c := parse(t, format, acme("1"))
	if k, err := c.Lookup(t.Context(), memory); err != nil || k.ID != "newer" ||
		!errors.Is(k.Refused(), keystore.ErrRevoked) {
		t.Errorf("got %v, %v, want the revoked key", k, err)
	}
	c = keystore.Token{}
	if k, err := c.Lookup(t.Context(), memory); !errors.Is(err, keystore.ErrNotFound) || k != nil ||
		len(c.Digests()) != 0 {
		t.Errorf("the zero Token: got %v, %v, want ErrNotFound", k, err)
	}
}

// A store that gives what cannot be the key of the token lets nobody in.
func TestTokenCorrupt(t *testing.T) {
	format := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"},
		{Name: "v2", Prefix: "two_"}}}
	present, child := withChecksum("svc_test_"+strings.Repeat("aB", 16)), asChild("svc_test_"+strings.Repeat("aB", 16))
	parent := []*keystore.Key{{ID: "parent", Organization: "acme", Environment: keystore.Sandbox, Digest: unknown(1)}}
	for _, c := range []struct {
		name, token string
		key         *keystore.Key // nil: none; a Digest is filled in
		ok          bool
	}{
		{"the key", present, &keystore.Key{Environment: keystore.Sandbox}, true},
		{"a legacy key", acme("0"), &keystore.Key{Environment: keystore.Sandbox, Legacy: "v1"}, true},
		{"a legacy key of a format with another name", acme("0"),
			&keystore.Key{Environment: keystore.Production, Legacy: "v0"}, true},
		{"a child", child, &keystore.Key{Environment: keystore.Sandbox, Parent: "parent", Ancestors: parent}, true},
		{"a parent", present, &keystore.Key{Environment: keystore.Sandbox, Parent: "parent", Ancestors: parent}, false},
		{"no parent", child, &keystore.Key{Environment: keystore.Sandbox}, false},
		{"none", present, nil, false},
		{"another digest", present, &keystore.Key{Environment: keystore.Sandbox, Digest: keystore.DigestOf("x")},
			false},
		{"another digest", acme("0"), &keystore.Key{Environment: keystore.Sandbox, Legacy: "v1",
			Digest: keystore.DigestOf("x")}, false},
		{"another environment", present, &keystore.Key{Environment: keystore.Production}, false},
		{"an unknown environment", acme("0"), &keystore.Key{Environment: "staging", Legacy: "v1"}, false},
		{"no environment", acme("0"), &keystore.Key{Legacy: "v1"}, false},
		{"a mark", present, &keystore.Key{Environment: keystore.Sandbox, Legacy: "v1"}, false},
		{"no mark", acme("0"), &keystore.Key{Environment: keystore.Sandbox}, false},
	} {
		store := newFake()
		store.lookup.set(func(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
			if c.key != nil {
				c.key.ID, c.key.Organization = "key_1", "acme"
			}
			if c.key != nil && c.key.Digest == (keystore.Digest{}) {
				c.key.Digest = d
			}
			return c.key, nil
		})
		candidates := parse(t, format, c.token)
		k, err := candidates.Lookup(t.Context(), store)
		if c.ok && (err != nil || k.ID != "key_1") || !c.ok &&
			(!errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrNotFound) || k != nil) {
			t.Errorf("%s for %s: got %v, %v, want it let in: %t", c.name, c.token, k, err, c.ok)
		}
		cached := keystore.NewCached(store, keystore.CacheOptions{})
		for range 2 {
			if _, err := candidates.Caller(t.Context(), cached, nil); (err == nil) != c.ok ||
				!c.ok && !errors.Is(err, keystore.ErrCorrupt) {
				t.Errorf("%s for %s in a Cached: got %v, want it let in: %t", c.name, c.token, err, c.ok)
			}
		}
		if remembered, _ := candidates.Remembered(cached, nil); (remembered != nil) != c.ok {
			t.Errorf("%s for %s: remembered %v, want it let in: %t", c.name, c.token, remembered, c.ok)
		}
	}
}

// No flood of made-up legacy tokens stops a key in use that is stored under an
// older pepper: its question has a place of its own.
func TestTokenInAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		format := peppered("the new pepper", "the old pepper")
		store, cached := newCached(keystore.CacheOptions{TTL: time.Minute})
		live := keystore.Key{Digest: hmacOf([]byte("the old pepper"), acme("1")), Legacy: "v1"}
		imported(t, issuing.New(store, issuing.Options{Service: format}), live)
		c := parse(t, format, acme("1"))
		if _, err := c.Lookup(t.Context(), cached); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // all answers are too old

		blocked := make(chan struct{})
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			if d != live.Digest {
				<-blocked
			}
			return store.Store.Lookup(ctx, d)
		})
		var flood sync.WaitGroup
		for n := range 64 {
			flood.Go(func() { cached.Lookup(t.Context(), unknown(n)) })
		}
		synctest.Wait()
		if _, err := cached.Lookup(t.Context(), unknown(64)); !errors.Is(err, keystore.ErrOverloaded) {
			t.Errorf("an unknown token in the flood: got %v, want ErrOverloaded", err)
		}
		if k, err := c.Lookup(t.Context(), cached); err != nil || k.Legacy != "v1" {
			t.Errorf("the live key in the flood: got %v, %v, want it", k, err)
		}
		close(blocked)
		flood.Wait()
	})
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
