package keystore_test

import (
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
	cached.Lookup(ctx, unknown(1))
	uses := keystore.NewLastUsed(store, keystore.LastUsedOptions{})
	uses.Record(k)
	token := keystore.Format{}.Generate(keystore.Production).Reveal()
	longest := strings.Repeat("a", 256)
	contract := scope.Contract()
	now := time.Now()

	mistyped := token[:len(token)-6] + "000000"
	quoted := token[:len(token)-1] + `"`

	for name, f := range map[string]func(){
		"Parse":                   func() { keystore.Format{}.Parse(token) },
		"Parse of a typing error": func() { keystore.Format{}.Parse(mistyped) },
		"Parse of a quote":        func() { keystore.Format{}.Parse(quoted) },
		"Parse of a long token":   func() { keystore.Format{Prefix: "acme"}.Parse(longest) },
		"DigestOf":                func() { keystore.DigestOf(token) },
		"DigestOf 256 bytes":      func() { keystore.DigestOf(longest) },
		"Lookup of a key":         func() { cached.Lookup(ctx, d) },
		"Lookup of a refusal":     func() { cached.Lookup(ctx, unknown(1)) },
		"Peek":                    func() { cached.Peek(d) },
		"Lookup in Memory":        func() { store.Memory.Lookup(ctx, d) },
		"Refused":                 func() { k.Refused(now) },
		"Tenant":                  func() { k.Tenant() },
		"Bind again":              func() { k.Bind(contract) },
		"Granted":                 func() { k.Granted().Has(scope.TasksRead) },
		"Record":                  func() { uses.Record(k) },
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s allocates %v times, want 0", name, got)
		}
	}
}
