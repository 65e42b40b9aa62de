package keystore_test

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

func BenchmarkParse(b *testing.B) {
	for name, token := range map[string]string{
		"accepted": keystore.Service{}.Generate(keystore.Production).Reveal(),
		"checksum": "svc_live_00000000000000000000000000000000000000",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				keystore.Service{}.Parse(token)
			}
		})
	}
}

func BenchmarkParseLegacy(b *testing.B) {
	present := keystore.Service{}.Generate(keystore.Production).Reveal()
	one, four := []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_",
		Match: hex40}}, []keystore.LegacyFormat{
		legacyHMAC([]byte("the 1st pepper"), []byte("the 2nd pepper"), []byte("the 3rd pepper"),
			[]byte("the 4th pepper"))}
	for _, c := range []struct {
		name   string
		legacy []keystore.LegacyFormat
		token  string
	}{
		{"present", nil, present},
		{"present/beside legacy", four, present},
		{"legacy/SHA-256", one, acme("0")},
		{"legacy/4 HMACs", four, acme("0")},
	} {
		b.Run(c.name, func(b *testing.B) {
			format := keystore.Service{Legacy: c.legacy}
			b.ReportAllocs()
			for b.Loop() {
				format.Parse(c.token)
			}
		})
	}
	b.Run("Parse and DigestOf", func(b *testing.B) {
		for b.Loop() {
			keystore.Service{}.Parse(present)
			keystore.DigestOf(present)
		}
	})
}

func BenchmarkGenerate(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		keystore.Service{}.Generate(keystore.Production)
	}
}

func BenchmarkDigestOf(b *testing.B) {
	token := keystore.Service{}.Generate(keystore.Production).Reveal()
	b.ReportAllocs()
	for b.Loop() {
		keystore.DigestOf(token)
	}
}

// manyKeys returns a Cached that remembers n keys, and their digests, in random
// order.
func manyKeys(b *testing.B, n int) (*keystore.Cached, []keystore.Digest) {
	ctx := context.Background()
	memory := keystore.NewMemory()
	cached := keystore.NewCached(memory, keystore.CacheOptions{TTL: time.Hour})
	issuer := keystore.NewIssuer(memory, keystore.IssuerOptions{})
	digests := make([]keystore.Digest, n)
	for i := range digests {
		secret, _, err := issuer.Issue(ctx, keystore.Grant{
			Organization: fmt.Sprintf("org_%06d", i), Environment: keystore.Production,
			Scopes: []scope.Name{scope.TasksRead},
		})
		if err != nil {
			b.Fatal(err)
		}
		digests[i] = keystore.DigestOf(secret.Reveal())
		if _, err := cached.Lookup(ctx, digests[i]); err != nil {
			b.Fatal(err)
		}
	}
	rand.Shuffle(n, func(i, j int) { digests[i], digests[j] = digests[j], digests[i] })
	return cached, digests
}

// BenchmarkCachedHit looks a key up and reads what a request reads of it.
func BenchmarkCachedHit(b *testing.B) {
	need, _ := scope.Contract().Parse([]scope.Name{scope.TasksRead})
	seed := maphash.MakeSeed()
	request := func(cached *keystore.Cached, d keystore.Digest) {
		k, err := cached.Lookup(context.Background(), d)
		if err != nil || k.Digest != d || k.Environment != keystore.Production || k.Refused() != nil ||
			!k.Granted().HasAll(need) {
			b.Errorf("got %v, %v, want the key", k, err)
		}
		maphash.String(seed, k.Tenant()) // as a limiter does
	}
	for _, n := range []int{1, 10_000} {
		cached, digests := manyKeys(b, n)
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				request(cached, digests[i%n])
			}
		})
		b.Run(fmt.Sprintf("keys=%d/parallel", n), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(n); pb.Next(); i++ {
					request(cached, digests[i%n])
				}
			})
		})
	}
}

func BenchmarkCachedMiss(b *testing.B) {
	ctx := context.Background()
	cached := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
	var d keystore.Digest
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		d[0], d[1], d[2], d[3], d[4] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24), byte(i>>32)
		cached.Lookup(ctx, d)
	}
}

func BenchmarkMemoryLookup(b *testing.B) {
	ctx := context.Background()
	memory := keystore.NewMemory()
	secret, _, err := keystore.NewIssuer(memory, keystore.IssuerOptions{}).
		Issue(ctx, keystore.Grant{Organization: "acme", Environment: keystore.Production})
	if err != nil {
		b.Fatal(err)
	}
	d := keystore.DigestOf(secret.Reveal())
	b.ReportAllocs()
	for b.Loop() {
		memory.Lookup(ctx, d)
	}
}

func BenchmarkRecordUse(b *testing.B) {
	uses := keystore.NewLastUsed(keystore.NewMemory(), keystore.LastUsedOptions{})
	k := &keystore.Key{ID: "key_1", Organization: "acme"}
	b.ReportAllocs()
	for b.Loop() {
		uses.Record(k, anywhere)
	}
}

// What runs for each request that is let in costs no memory, and neither does
// what runs for a flood of bad tokens.
func TestAllocations(t *testing.T) {
	ctx := t.Context()
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Hour, NegativeTTL: time.Hour})
	d := store.add(t)
	k, err := cached.Lookup(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	k = k.Clone()
	k = k.Bind(scope.Contract())
	cached.Lookup(ctx, unknown(1))
	uses := keystore.NewLastUsed(store, keystore.LastUsedOptions{})
	uses.Record(k, anywhere)
	token := keystore.Service{}.Generate(keystore.Production).Reveal()
	longest := strings.Repeat("a", 256)
	contract := scope.Contract()

	mistyped := token[:len(token)-6] + "000000"
	quoted := token[:len(token)-1] + `"`

	format := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_", Match: hex40}}}
	whole, brief := acme("0"), acme("0")[:40]
	k.Networks = prefixes("2001:db8::/32", "192.0.2.0/24")
	address := netip.MustParseAddr("::ffff:192.0.2.1")

	for name, f := range map[string]func(){
		"Parse with legacy shapes": func() { format.Parse(token) },
		"Parse of a typo":          func() { format.Parse(mistyped) },
		"Parse of a legacy key":    func() { format.Parse(whole) },
		"Parse of half of one":     func() { format.Parse(brief) },
		"Parse and Lookup":         func() { c, _ := format.Parse(token); c.Lookup(ctx, cached) },
		"Parse and Remembered":     func() { c, _ := format.Parse(token); cached.Remembered(c) },
		"AllowsAddress":            func() { k.AllowsAddress(address) },
		"Parse":                    func() { keystore.Service{}.Parse(token) },
		"Parse of a typing error":  func() { keystore.Service{}.Parse(mistyped) },
		"Parse of a quote":         func() { keystore.Service{}.Parse(quoted) },
		"Parse of a long token":    func() { keystore.Service{Prefix: "acme"}.Parse(longest) },
		"DigestOf":                 func() { keystore.DigestOf(token) },
		"DigestOf 256 bytes":       func() { keystore.DigestOf(longest) },
		"Lookup of a key":          func() { cached.Lookup(ctx, d) },
		"Lookup of a refusal":      func() { cached.Lookup(ctx, unknown(1)) },
		"Lookup in Memory":         func() { store.Memory.Lookup(ctx, d) },
		"Refused":                  func() { k.Refused() },
		"Tenant":                   func() { k.Tenant() },
		"Bind again":               func() { k.Bind(contract) },
		"Granted":                  func() { k.Granted().Has(scope.TasksRead) },
		"Record":                   func() { uses.Record(k, anywhere) },
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s allocates %v times, want 0", name, got)
		}
	}
}
