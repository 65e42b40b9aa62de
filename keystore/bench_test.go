package keystore_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func BenchmarkParse(b *testing.B) {
	present := keystore.Service{}.Generate(keystore.Production).Reveal()
	one := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_", Match: hex40}}}
	four := peppered("the 1st pepper", "the 2nd pepper", "the 3rd pepper", "the 4th pepper")
	for _, c := range []struct {
		name   string
		format keystore.Service
		token  string
	}{
		{"present", keystore.Service{}, present},
		{"checksum", keystore.Service{}, "svc_live_00000000000000000000000000000000000000"},
		{"present/beside legacy", four, present},
		{"legacy/SHA-256", one, acme("0")},
		{"legacy/4 HMACs", four, acme("0")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.format.Parse(c.token)
			}
		})
	}
}

// manyKeys returns a Cached that remembers n keys, and their digests, in random
// order.
func manyKeys(b *testing.B, n int) (*keystore.Cached, []keystore.Digest) {
	memory := issuing.NewMemory()
	cached := keystore.NewCached(memory, keystore.CacheOptions{TTL: time.Hour})
	issuer := issuing.New(memory, issuing.Options{})
	digests := make([]keystore.Digest, n)
	for i := range digests {
		secret, _ := issue(b, issuer, keystore.Key{Organization: fmt.Sprintf("org_%06d", i),
			Environment: keystore.Production, Scopes: []scope.Name{scope.TasksRead}})
		digests[i] = keystore.DigestOf(secret)
		_, err := cached.Lookup(b.Context(), digests[i])
		must(b, err)
	}
	rand.Shuffle(n, func(i, j int) { digests[i], digests[j] = digests[j], digests[i] })
	return cached, digests
}

// BenchmarkCachedHit looks a key up and reads what a request reads of it.
func BenchmarkCachedHit(b *testing.B) {
	need, _ := scope.Default().Parse([]scope.Name{scope.TasksRead})
	seed := maphash.MakeSeed()
	request := func(cached *keystore.Cached, d keystore.Digest) {
		c, err := cached.Caller(context.Background(), d)
		if err != nil || c.Environment() != keystore.Production || c.Refused() != nil || !c.Granted().HasAll(need) {
			b.Errorf("got %v, %v, want the caller", c, err)
		}
		maphash.String(seed, c.Tenant()) // as a limiter does
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

// TestCachedBytes: what a key takes in a Cached, of a store that makes a new Key
// for each answer as a database does.
func TestCachedBytes(t *testing.T) {
	const keys = 5000
	for _, row := range []struct {
		most int64
		of   keystore.Key
	}{{303, keystore.Key{}}, {440, keystore.Key{ExpiresAt: time.Now().Add(time.Hour)}}} {
		store := &fake{}
		store.lookup.set(func(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
			k, id := row.of, hex.EncodeToString(d[:12])
			k.ID, k.Digest, k.Organization, k.Environment = "key_"+id[:20], d, "org_"+id[:7], keystore.Production
			k.Name, k.CreatedBy, k.IssueToken = "Nightly import of "+id, "user_"+id, "token_"+id
			k.Scopes = []scope.Name{scope.TasksRead, scope.TasksWrite}
			return &k, nil
		})
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Hour})
		before := heapBytes()
		for i := range keys {
			cached.Lookup(t.Context(), unknown(i))
		}
		if got := (heapBytes() - before) / keys; got > row.most {
			t.Errorf("a key takes %d bytes, want at most %d", got, row.most)
		}
		runtime.KeepAlive(cached)
	}
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkRecordUse(b *testing.B) {
	uses := keystore.NewUses(issuing.NewMemory(), keystore.UsesOptions{})
	c := key(1)
	b.ReportAllocs()
	for b.Loop() {
		uses.Record(c, anywhere)
	}
}

// What runs for each request that is let in costs no memory, and neither does
// what runs for a flood of bad tokens.
func TestAllocations(t *testing.T) {
	ctx := t.Context()
	store, cached := newCached(keystore.CacheOptions{TTL: time.Hour, NegativeTTL: time.Hour})
	d := store.add(t)
	k, err := cached.Lookup(ctx, d)
	must(t, err)
	k.Networks = prefixes("2001:db8::/32", "192.0.2.0/24")
	k.ExpiresAt = time.Now().Add(time.Hour)
	caller := k.Bind(scope.Default())
	cached.Lookup(ctx, unknown(1))
	uses := keystore.NewUses(store, keystore.UsesOptions{})
	uses.Record(caller, anywhere)
	token, _ := issue(t, issuing.New(cached, issuing.Options{}), grant())
	longest, mistyped, quoted := strings.Repeat("a", 256), token[:len(token)-6]+"000000", token[:len(token)-1]+`"`
	format := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_", Match: hex40}}}
	whole, brief := acme("0"), acme("0")[:40]
	address := netip.MustParseAddr("::ffff:192.0.2.1")

	for name, f := range map[string]func(){
		"Parse with legacy shapes": func() { format.Parse(token) },
		"Parse of a legacy key":    func() { format.Parse(whole) },
		"Parse of half of one":     func() { format.Parse(brief) },
		"Parse and Caller":         func() { c, _ := format.Parse(token); c.Caller(ctx, cached, nil) },
		"Parse and Remembered":     func() { c, _ := format.Parse(token); c.Remembered(cached, nil) },
		"AllowsAddress":            func() { caller.AllowsAddress(address) },
		"Parse":                    func() { keystore.Service{}.Parse(token) },
		"Parse of a typing error":  func() { keystore.Service{}.Parse(mistyped) },
		"Parse of a quote":         func() { keystore.Service{}.Parse(quoted) },
		"Parse of a long token":    func() { keystore.Service{Prefix: "acme"}.Parse(longest) },
		"DigestOf":                 func() { keystore.DigestOf(token) },
		"DigestOf 256 bytes":       func() { keystore.DigestOf(longest) },
		"Caller":                   func() { cached.Caller(ctx, d) },
		"Lookup of a refusal":      func() { cached.Lookup(ctx, unknown(1)) },
		"Refused":                  func() { caller.Refused() },
		"Tenant":                   func() { caller.Tenant() },
		"Bind again":               func() { caller.Bind(scope.Default()) },
		"Granted":                  func() { caller.Granted().Has(scope.TasksRead) },
		"Record":                   func() { uses.Record(caller, anywhere) },
		"Refuse":                   func() { uses.Refuse(caller, "not_found", route("")) },
		"Use":                      func() { caller.Use(scope.TasksRead, scope.ChatRead) },
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s allocates %v times, want 0", name, got)
		}
	}
}
