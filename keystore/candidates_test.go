package keystore_test

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

const incomplete = "The key is mistyped or was not copied whole."

func TestCandidates(t *testing.T) {
	present := withChecksum("svc_live_" + strings.Repeat("aB", 16))
	uuid := "3f0c8f0e-7d1c-4c8e-9b1f-0a2b3c4d5e6f"
	twoPeppers := []keystore.Digest{hmacOf([]byte("the new pepper"), acme("0")), hmacOf([]byte("the old pepper"), acme("0"))}
	format := keystore.Service{Legacy: []keystore.LegacyFormat{
		legacyHMAC([]byte("the new pepper"), []byte("the old pepper")),
		{Name: "uuid", Match: regexp.MustCompile("^[0-9a-f-]{36}$").MatchString},
		{Name: "same-prefix", Prefix: "acme_", Match: func(token string) bool { return strings.HasSuffix(token, "=") || strings.HasSuffix(token, "0") }},
		{Name: "ours", Prefix: "svc_live_", Match: func(token string) bool { return len(token) == 33 }},
		{Name: "checked", Prefix: "chk_", Digests: func(token string) []keystore.Digest {
			if strings.HasSuffix(token, "!") {
				return nil
			}
			return []keystore.Digest{keystore.DigestOf(token[4:])}
		}},
	}}
	for _, c := range []struct {
		token       string
		environment keystore.Environment
		legacy      string
		digests     []keystore.Digest
		refused     string
	}{
		{present, keystore.Production, "", []keystore.Digest{keystore.DigestOf(present)}, ""},
		{acme("0"), "", "v1", twoPeppers, ""}, // the third one matches as well
		{uuid, "", "uuid", []keystore.Digest{keystore.DigestOf(uuid)}, ""},
		{"acme_abc.def~ghi/jkl+mno=", "", "same-prefix", []keystore.Digest{keystore.DigestOf("acme_abc.def~ghi/jkl+mno=")}, ""},
		{"chk_0123456789ab", "", "checked", []keystore.Digest{keystore.DigestOf("0123456789ab")}, ""},
		{"svc_live_" + strings.Repeat("a", 24), "", "ours", []keystore.Digest{keystore.DigestOf("svc_live_" + strings.Repeat("a", 24))}, ""},
		{"chk_" + strings.Repeat("a", 252), "", "checked", []keystore.Digest{keystore.DigestOf(strings.Repeat("a", 252))}, ""},
		{"chk_" + strings.Repeat("a", 253), "", "", nil, tooLong},
		{"chk_0123456789a", "", "", nil, incomplete}, // 15 bytes
		{"chk_", "", "", nil, incomplete},
		{"chk_0123456789a!", "", "", nil, incomplete},
		{acme("g"), "", "", nil, incomplete},
		{acme("A"), "", "", nil, incomplete},
		{"ACME_" + strings.Repeat("0", 40), "", "", nil, otherPrefix},
		{acme("1")[:44], "", "", nil, incomplete},
		{acme("1") + "\n", "", "", nil, incomplete},
		{`"` + acme("1"), "", "", nil, badCharacter},
		{uuid[:35], "", "", nil, otherPrefix},
		{present[:46], "", "", nil, badLength},
		{present[:46] + "0", "", "", nil, badChecksum},
		{strings.Replace(present, "live", "pub", 1), "", "", nil, publishable},
		{"", "", "", nil, otherPrefix},
	} {
		got, err := format.Parse(c.token)
		var refused keystore.TokenError
		reason := ""
		if errors.As(err, &refused) {
			reason = string(refused)
		}
		if reason != c.refused || (err == nil) != (c.refused == "") || got.Environment != c.environment || got.Legacy() != c.legacy || !slices.Equal(got.Digests(), c.digests) {
			t.Errorf("Candidates(%.60q) = %+v, %v, want environment %q, legacy %q, digests %x, refused because %q",
				c.token, got, err, c.environment, c.legacy, c.digests, c.refused)
		}
	}
}

// When a LegacyFormat does not keep its contract, no token is called wrong.
func TestCandidatesOfABrokenFormat(t *testing.T) {
	for n, ok := range map[int]bool{4: true, 5: false} {
		format := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_", Digests: func(string) []keystore.Digest { return make([]keystore.Digest, n) }}}}
		c, err := format.Parse(acme("0"))
		var refused keystore.TokenError
		if (err == nil) != ok || errors.As(err, &refused) || ok && len(c.Digests()) != n || !ok && !strings.Contains(err.Error(), `"v1" gave 5 digests, want at most 4`) {
			t.Errorf("with %d digests got %d and %v", n, len(c.Digests()), err)
		}
	}
}

// A token of the present shape costs no more than it does without legacy
// formats.
func TestCandidatesOfThePresentShape(t *testing.T) {
	format := keystore.Service{Legacy: []keystore.LegacyFormat{{
		Name:    "any",
		Match:   func(string) bool { t.Error("a token of the present shape was matched"); return true },
		Digests: func(string) []keystore.Digest { t.Error("a token of the present shape was hashed"); return nil },
	}}}
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{})
	for _, s := range []keystore.Store{store, cached} {
		token, _ := issue(t, keystore.NewIssuer(store, keystore.IssuerOptions{Service: format}), grant())
		for _, text := range []string{token, keystore.Service{}.Generate(keystore.Sandbox).Reveal()} {
			c, err := format.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			store.wantCalls(t, 0, "before the look-up")
			if _, err := c.Lookup(t.Context(), s); (err == nil) != (text == token) {
				t.Errorf("Lookup returned %v", err)
			}
			store.wantCalls(t, 1, "a token of the present shape")
		}
	}
}

func TestCandidatesLookup(t *testing.T) {
	peppers := [][]byte{[]byte("the 1st pepper"), []byte("the 2nd pepper"), []byte("the 3rd pepper"), []byte("the 4th pepper")}
	format := keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC(peppers...)}}
	digests := func(digit string) (all []keystore.Digest) {
		for _, pepper := range peppers {
			all = append(all, hmacOf(pepper, acme(digit)))
		}
		return all
	}
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{NegativeTTL: time.Nanosecond})
	issuer := keystore.NewIssuer(store, keystore.IssuerOptions{Service: format})
	if _, err := issuer.Import(t.Context(), record(grant(), keystore.Key{Digest: digests("1")[2], Legacy: "v1", ID: "third"}), ""); err != nil {
		t.Fatal(err)
	}
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
		candidates, err := format.Parse(acme(c.digit))
		if err != nil {
			t.Fatal(err)
		}
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
	candidates, _ := format.Parse(acme("1"))
	if _, err := candidates.Lookup(t.Context(), cached); err != nil {
		t.Error(err)
	}
	store.wantCalls(t, 1, "a token that is remembered and too old")

	// The others follow in their order: the key may have got another digest.
	second, third := digests("2")[1], digests("2")[2]
	for id, d := range map[string]keystore.Digest{"second": second, "last": third} {
		if _, err := issuer.Import(t.Context(), record(grant(), keystore.Key{Digest: d, Legacy: "v1", ID: id}), ""); err != nil {
			t.Fatal(err)
		}
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
		return store.Memory.Lookup(ctx, d)
	})
	candidates, _ = format.Parse(acme("2"))
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
		return store.Memory.Lookup(ctx, d)
	})
	candidates, _ = format.Parse(acme("0"))
	if _, err := candidates.Lookup(t.Context(), store); !errors.Is(err, errStoreDown) {
		t.Errorf("got %v, want the error of the store", err)
	}
	store.wantCalls(t, 2, "an error of the store")
}

func TestCandidatesPeek(t *testing.T) {
	format := keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC([]byte("the new pepper"), []byte("the old pepper"))}}
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{Service: format})
	issuer := keystore.NewIssuer(cached, keystore.IssuerOptions{})
	c, _ := format.Parse(acme("1"))
	imported, err := issuer.Import(t.Context(), record(grant(), keystore.Key{Digest: c.Digests()[1], Legacy: "v1"}), "")
	if err != nil {
		t.Fatal(err)
	}
	want := func(ok bool, rule string) {
		t.Helper()
		store.wantCalls(t, 0, "before")
		if k, _ := cached.Remembered(c); (k != nil) != ok || ok && k.ID != imported.ID || !ok && k != nil {
			t.Errorf("%s: Peek returned %v, want one: %t", rule, k, ok)
		}
		store.wantCalls(t, 0, rule)
	}
	want(false, "a key that was not looked up yet")
	if _, err := c.Lookup(t.Context(), cached); err != nil {
		t.Fatal(err)
	}
	store.wantCalls(t, 2, "the first look-up")
	want(true, "a key that is remembered under the second digest")
	if _, err := issuer.Revoke(t.Context(), "acme", imported.ID); err != nil {
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
		lying := keystore.NewCached(liar{k}, keystore.CacheOptions{Service: format, Logger: slog.New(slog.DiscardHandler)})
		lying.Lookup(t.Context(), c.Digests()[0])
		if got, _ := lying.Remembered(c); got != nil {
			t.Errorf("of a store that has %s Remembered returned %v", name, got)
		}
	}
}

// A liar is a store that has one key for whatever digest.
type liar struct{ key *keystore.Key }

func (l liar) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) { return l.key, nil }

// The digest that comes first decides also when its key is refused, and the
// zero Candidates lead nowhere.
func TestCandidatesFirstDecides(t *testing.T) {
	newer, older := []byte("the new pepper"), []byte("the old pepper")
	format := keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC(newer, older)}}
	memory := keystore.NewMemory()
	issuer := keystore.NewIssuer(memory, keystore.IssuerOptions{Service: format})
	for id, pepper := range map[string][]byte{"newer": newer, "older": older} {
		if _, err := issuer.Import(t.Context(), record(grant(), keystore.Key{Digest: hmacOf(pepper, acme("1")), Legacy: "v1", ID: id}), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := issuer.Revoke(t.Context(), "acme", "newer"); err != nil {
		t.Fatal(err)
	}
	c, _ := format.Parse(acme("1"))
	if k, err := c.Lookup(t.Context(), memory); err != nil || k.ID != "newer" || !errors.Is(k.Refused(), keystore.ErrRevoked) {
		t.Errorf("got %v, %v, want the revoked key", k, err)
	}
	c = keystore.Token{}
	if k, err := c.Lookup(t.Context(), memory); !errors.Is(err, keystore.ErrNotFound) || k != nil || len(c.Digests()) != 0 {
		t.Errorf("the zero Candidates: got %v, %v, want ErrNotFound", k, err)
	}
}

// A store that gives what cannot be the key of the token lets nobody in.
func TestCandidatesCorrupt(t *testing.T) {
	format := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}, {Name: "v2", Prefix: "two_"}}}
	present := withChecksum("svc_test_" + strings.Repeat("aB", 16))
	for _, c := range []struct {
		name, token string
		key         *keystore.Key // nil: none; a Digest is filled in
		ok          bool
	}{
		{"the key", present, &keystore.Key{Environment: keystore.Sandbox}, true},
		{"a legacy key", acme("0"), &keystore.Key{Environment: keystore.Sandbox, Legacy: "v1"}, true},
		{"a legacy key of a format with another name", acme("0"), &keystore.Key{Environment: keystore.Production, Legacy: "v0"}, true},
		{"none", present, nil, false},
		{"another digest", present, &keystore.Key{Environment: keystore.Sandbox, Digest: keystore.DigestOf("x")}, false},
		{"another digest", acme("0"), &keystore.Key{Environment: keystore.Sandbox, Legacy: "v1", Digest: keystore.DigestOf("x")}, false},
		{"another environment", present, &keystore.Key{Environment: keystore.Production}, false},
		{"an unknown environment", acme("0"), &keystore.Key{Environment: "staging", Legacy: "v1"}, false},
		{"no environment", acme("0"), &keystore.Key{Legacy: "v1"}, false},
		{"a mark", present, &keystore.Key{Environment: keystore.Sandbox, Legacy: "v1"}, false},
		{"no mark", acme("0"), &keystore.Key{Environment: keystore.Sandbox}, false},
	} {
		store := newFake()
		store.lookup.set(func(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
			if c.key != nil && c.key.Digest == (keystore.Digest{}) {
				c.key.Digest = d
			}
			return c.key, nil
		})
		candidates, err := format.Parse(c.token)
		if err != nil {
			t.Fatal(err)
		}
		k, err := candidates.Lookup(t.Context(), store)
		if c.ok && (err != nil || k != c.key) || !c.ok && (!errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrNotFound) || k != nil) {
			t.Errorf("%s for %s: got %v, %v, want it let in: %t", c.name, c.token, k, err, c.ok)
		}
	}
}

// No flood of made-up legacy tokens stops a key in use that is stored under an
// older pepper: its question has a place of its own.
func TestCandidatesInAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		format := keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC([]byte("the new pepper"), []byte("the old pepper"))}}
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Minute})
		live := keystore.Key{Digest: hmacOf([]byte("the old pepper"), acme("1")), Legacy: "v1"}
		if _, err := keystore.NewIssuer(store, keystore.IssuerOptions{Service: format}).Import(t.Context(), record(grant(), live), ""); err != nil {
			t.Fatal(err)
		}
		c, _ := format.Parse(acme("1"))
		if _, err := c.Lookup(t.Context(), cached); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // all answers are too old

		blocked := make(chan struct{})
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			if d != live.Digest {
				<-blocked
			}
			return store.Memory.Lookup(ctx, d)
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

// Legacy keys under several peppers are looked up, driven out and revoked at
// the same time. From the moment at which Revoke has returned nobody finds one
// usable.
func TestCandidatesRevokeAmongEvictions(t *testing.T) {
	peppers := [][]byte{[]byte("the 1st pepper"), []byte("the 2nd pepper"), []byte("the 3rd pepper")}
	format := keystore.Service{Legacy: []keystore.LegacyFormat{legacyHMAC(peppers...)}}
	for _, size := range []int{1, 3, 100} {
		cached := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{Service: format, Size: size, TTL: time.Hour, Timeout: time.Hour})
		issuer := keystore.NewIssuer(cached, keystore.IssuerOptions{})
		const keys = 16
		var candidates [keys]keystore.Token
		var revoked [keys]atomic.Bool
		var ids [keys]string
		for i := range keys {
			var err error
			candidates[i], err = format.Parse(acme("0123456789abcdef"[i : i+1]))
			if err != nil {
				t.Fatal(err)
			}
			k, err := issuer.Import(t.Context(), record(grant(), keystore.Key{Digest: candidates[i].Digests()[i%3], Legacy: "v1"}), "")
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = k.ID
		}
		var revoking atomic.Bool
		revoking.Store(true)
		var lookups sync.WaitGroup
		for n := range 4 {
			lookups.Go(func() {
				for i := n; revoking.Load(); i = (i + 1) % keys {
					before := revoked[i].Load()
					c := candidates[i]
					k, err := c.Lookup(t.Context(), cached)
					if err != nil || k.ID != ids[i] || before && k.Refused() == nil {
						t.Errorf("size %d: Lookup gave %v, error %v, revoked before: %t", size, k, err, before)
						return
					}
				}
			})
		}
		for i := range keys {
			for range 50 {
				if k, err := candidates[i].Lookup(t.Context(), cached); err != nil || k.Refused() != nil {
					t.Errorf("size %d: before the revocation got %v, %v", size, k, err)
				}
			}
			if _, err := issuer.Revoke(t.Context(), "acme", ids[i]); err != nil {
				t.Fatal(err)
			}
			revoked[i].Store(true)
			if k, err := candidates[i].Lookup(t.Context(), cached); err != nil || !errors.Is(k.Refused(), keystore.ErrRevoked) {
				t.Errorf("size %d: after the revocation got %v, %v, want it revoked", size, k, err)
			}
		}
		revoking.Store(false)
		lookups.Wait()
	}
}
