package keystore_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

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
	uses.Record(k)
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
		"Candidates":                 func() { format.Parse(token) },
		"Candidates of a typo":       func() { format.Parse(mistyped) },
		"Candidates of a legacy key": func() { format.Parse(whole) },
		"Candidates of half of one":  func() { format.Parse(brief) },
		"Parse and Lookup":           func() { c, _ := format.Parse(token); c.Lookup(ctx, cached) },
		"Parse and Remembered":       func() { c, _ := format.Parse(token); cached.Remembered(c) },
		"AllowsAddress":              func() { k.AllowsAddress(address) },
		"Parse":                      func() { keystore.Service{}.Parse(token) },
		"Parse of a typing error":    func() { keystore.Service{}.Parse(mistyped) },
		"Parse of a quote":           func() { keystore.Service{}.Parse(quoted) },
		"Parse of a long token":      func() { keystore.Service{Prefix: "acme"}.Parse(longest) },
		"DigestOf":                   func() { keystore.DigestOf(token) },
		"DigestOf 256 bytes":         func() { keystore.DigestOf(longest) },
		"Lookup of a key":            func() { cached.Lookup(ctx, d) },
		"Lookup of a refusal":        func() { cached.Lookup(ctx, unknown(1)) },
		"Lookup in Memory":           func() { store.Memory.Lookup(ctx, d) },
		"Refused":                    func() { k.Refused() },
		"Tenant":                     func() { k.Tenant() },
		"Bind again":                 func() { k.Bind(contract) },
		"Granted":                    func() { k.Granted().Has(scope.TasksRead) },
		"Record":                     func() { uses.Record(k) },
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s allocates %v times, want 0", name, got)
		}
	}
}
