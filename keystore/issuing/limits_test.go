package issuing_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

const day = 24 * time.Hour

func TestLimitOfExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const within = "The key must expire within 90 days."
		for _, c := range []struct {
			options issuing.Options
			expires time.Duration // from now; 0: never
			want    string
		}{
			{issuing.Options{}, 0, ""},
			{issuing.Options{MaxLife: 90 * day}, 0, within},
			{issuing.Options{MaxLife: 90 * day}, 90*day + 1, within},
			{issuing.Options{MaxLife: 90 * day}, 90 * day, ""},
			{issuing.Options{MaxLife: day}, 0, "The key must expire within 24h0m0s."},
			{issuing.Options{MaxLife: 90 * time.Minute}, 0, "The key must expire within 1h30m0s."},
		} {
			issuer := issuing.New(issuing.NewMemory(), c.options)
			g := grant()
			if c.expires != 0 {
				g.ExpiresAt = time.Now().Add(c.expires)
			}
			_, _, err := issuer.Issue(t.Context(), g)
			if c.want != "" {
				wantProblem(t, err, "expires_at", c.want, fmt.Sprint("a key that expires in ", c.expires))
			} else if err != nil {
				t.Errorf("%+v: Issue of a key that expires in %v returned %v", c.options, c.expires, err)
			}
		}
	})
}

// A successor expires as its predecessor or as it is given, within the options and
// the limits of a new key, and nothing else changes.
func TestLimitOfRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asOld = -1
		free, limited := issuing.Options{}, issuing.Options{MaxLife: 90 * day}
		in := func(d time.Duration) (at time.Time) {
			if d != 0 {
				at = time.Now().Add(d)
			}
			return at
		}
		for _, c := range []struct {
			options              issuing.Options
			old, expires, wanted time.Duration // from now; zero: never
			problem              string
		}{
			{limited, 0, asOld, 90 * day, ""},
			{limited, 91 * day, asOld, 90 * day, ""},
			{limited, 5 * day, asOld, 5 * day, ""},
			{free, 5 * day, 365 * day, 365 * day, ""},
			{free, 5 * day, day, day, ""},
			{free, 5 * day, 0, 0, ""},
			{free, 5 * day, -time.Second, 0, "The expiry must lie in the future."},
			{limited, 5 * day, 90 * day, 90 * day, ""},
			{limited, 5 * day, 91 * day, 0, "The key must expire within 90 days."},
		} {
			store, g := issuing.NewMemory(), grant()
			g.ExpiresAt = in(c.old)
			_, old := issue(t, issuing.New(store, free), g)
			old.Scopes = append(old.Scopes, "gone:scope")
			must(t, store.Update(t.Context(), old, entry()))
			r := issuing.Rotation{ID: old.ID, Overlap: time.Hour}
			if c.expires != asOld {
				r.ExpiresAt, r.NeverExpires = in(c.expires), c.expires == 0
			}
			_, next, err := rotate(t, issuing.New(store, c.options), r)
			if c.problem == "" && (err != nil || !next.ExpiresAt.Equal(in(c.wanted)) || !slices.Equal(next.Scopes, old.Scopes)) {
				t.Errorf("%+v: Rotate of a key with %v to live returned %+v, %v", c, c.old, next, err)
			} else if c.problem != "" {
				wantProblem(t, err, "expires_at", c.problem, fmt.Sprint("Rotate until ", r.ExpiresAt))
				if k, err := store.Find(t.Context(), "acme", old.ID); err != nil || !k.RevokedAt.IsZero() {
					t.Errorf("%+v: the old key is %+v, %v, want it as it was", c, k, err)
				}
			}
		}
	})
}

// The limit holds, and says what to do, with an Auditor also under concurrent
// calls. A key that made room and a repeat are let in.
func TestLimitOfMaxKeys(t *testing.T) {
	for name, store := range map[string]keystore.Store{
		"an Auditor":    issuing.NewMemory(),
		"a Cached":      keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{}),
		"another store": failing{Store: issuing.NewMemory()},
	} {
		issuer := issuing.New(store, issuing.Options{MaxKeys: 2})
		g := grant()
		g.IssueToken = "form-1"
		_, first := issue(t, issuer, g)
		_, second := issue(t, issuer, grant())
		_, _, err := issuer.Issue(t.Context(), grant())
		wantProblem(t, err, "organization", "The limit of an organization, 2, is reached. Revoke a key first.", name)
		secret, again, err := issuer.By("ada", "").Issue(t.Context(), g)
		wantExisting(t, secret, again, err, first.ID, name+": a repeat")
		if _, _, err := rotate(t, issuer, issuing.Rotation{ID: second.ID, Overlap: time.Hour}); err != nil {
			t.Errorf("%s: Rotate returned %v, want a successor in place of a key", name, err)
		}
		revoke(t, issuer, first.ID)
		issue(t, issuer, grant())
		other := grant()
		other.Organization = "other"
		issue(t, issuer, other)
	}
	// A concurrent call with the same token took the last place.
	memory, g := issuing.NewMemory(), grant()
	g.IssueToken = "form-1"
	var first *keystore.Key
	issuer := issuing.New(failing{Store: memory, insert: func() error {
		_, first = issue(t, issuing.New(memory, issuing.Options{}), g)
		return nil
	}}, issuing.Options{MaxKeys: 1})
	secret, again, err := issuer.By("ada", "").Issue(t.Context(), g)
	wantExisting(t, secret, again, err, first.ID, "a repeat beside the first call")
	issuer = issuing.New(issuing.NewMemory(), issuing.Options{MaxKeys: 3})
	var made atomic.Int64
	var clicks sync.WaitGroup
	for range 50 {
		clicks.Go(func() {
			if _, _, err := issuer.Issue(t.Context(), grant()); err == nil {
				made.Add(1)
			}
		})
	}
	clicks.Wait()
	if made.Load() != 3 {
		t.Errorf("50 concurrent Issues made %d keys, want 3", made.Load())
	}
}

// Of old keys that work on there are no more than of others. One that ends at
// once is no such key, and a repeat is let in.
func TestLimitOfOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := issuing.NewMemory()
		issuer := issuing.New(store, issuing.Options{MaxKeys: 2})
		_, k := issue(t, issuer, grant())
		try := func(overlap time.Duration, want bool) {
			t.Helper()
			_, next, err := rotate(t, issuer, issuing.Rotation{ID: k.ID, Overlap: overlap, IssueToken: "form-" + k.ID})
			if !want {
				wantProblem(t, err, "overlap", "The limit of rotated keys that still work, 2, is reached. "+
					"Revoke one, or end this one at once.", "an overlap")
			} else if k = next; err != nil {
				t.Fatalf("Rotate with an overlap of %v returned %v, want a new key", overlap, err)
			}
		}
		try(time.Hour, true)
		old := k
		try(100*365*day, true)
		_, _, err := rotate(t, issuer, issuing.Rotation{ID: old.ID, Overlap: time.Hour, IssueToken: "form-" + old.ID})
		if !errors.Is(err, issuing.ErrExists) {
			t.Errorf("a repeat returned %v, want ErrExists", err)
		}
		try(time.Minute, false)
		try(0, true)
		try(time.Minute, false)
		time.Sleep(time.Hour)
		try(time.Minute, true)
	})
}
