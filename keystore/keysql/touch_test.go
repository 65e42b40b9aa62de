package keysql_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

func uses(keys []*keystore.Key, at time.Time) []keystore.Use {
	all := make([]keystore.Use, len(keys))
	for i, k := range keys {
		all[i] = keystore.Use{Organization: k.Organization, ID: k.ID, At: at}
	}
	return all
}

// Servers that write the same uses in different orders must not wait for each
// other in a circle.
func TestTouchFromSeveralServers(t *testing.T) {
	d := postgres(t)
	reader := d.store(t)
	seed(t, d, "acme", 1000)
	keys := make([]*keystore.Key, 1000)
	for i := range keys {
		keys[i] = lookup(t, reader, &keystore.Key{Digest: seeded("acme", i+1)})
	}
	now := time.Now()
	var running sync.WaitGroup
	// Of different sizes, since what sorts by hash sorts these differently.
	for _, n := range []int{len(keys), len(keys) / 4, len(keys) / 16} {
		slices.Reverse(keys)
		store, mine := d.store(t), slices.Clone(keys[len(keys)/2-n/2:][:n])
		running.Go(func() {
			for round := range 20 {
				if err := store.Touch(t.Context(), uses(mine, now.Add(time.Duration(round)*time.Second))); err != nil {
					t.Errorf("Touch, beside that of another server, returned %v, want nil", err)
				}
			}
		})
	}
	running.Wait()
	last := now.Add(19 * time.Second).Truncate(time.Microsecond)
	for _, k := range keys {
		if got := lookup(t, reader, k).LastUsedAt; !got.Equal(last) {
			t.Fatalf("LastUsedAt is %v, want the latest use, %v", got, last)
		}
	}
}

// A batch has no limit that a database's limit of parameters would set.
func TestTouchMany(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.store(t)
		k := inserted(t, store, "acme", 1)[0]
		all := make([]keystore.Use, 22_000)
		for i := range all {
			all[i] = keystore.Use{Organization: "acme", ID: "none", At: k.CreatedAt}
		}
		all[len(all)-1].ID = k.ID
		if err := store.Touch(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if got := lookup(t, store, k).LastUsedAt; !got.Equal(k.CreatedAt) {
			t.Errorf("LastUsedAt is %v, want %v", got, k.CreatedAt)
		}
	})
}

// A use is written whatever else its batch holds.
func TestTouchOddUses(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.store(t)
		k := inserted(t, store, "acme", 1)[0]
		odd := newKey("acme")
		odd.ID = "replacement \uFFFD"
		if err := store.Insert(t.Context(), odd); err != nil {
			t.Fatal(err)
		}
		at := time.Date(1969, 7, 20, 20, 17, 40, 123456789, time.UTC)
		err := store.Touch(t.Context(), []keystore.Use{
			{Organization: "acme", ID: "nul \x00", At: at},
			{Organization: "acme", ID: "replacement \xff", At: at},
			{Organization: "\xff", ID: k.ID, At: at},
			{Organization: "acme", ID: k.ID, At: at},
		})
		if err != nil {
			t.Fatalf("Touch returned %v, want nil and what no key can have ignored", err)
		}
		if got := lookup(t, store, k).LastUsedAt; !got.Equal(at.Truncate(time.Microsecond)) {
			t.Errorf("LastUsedAt is %v, want %v", got, at)
		}
		if got := lookup(t, store, odd).LastUsedAt; !got.IsZero() {
			t.Errorf("a key was touched under an id that is not its own, at %v", got)
		}
	})
}
