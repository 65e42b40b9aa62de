package keysql_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// servers returns the caches of two servers, each with a pool of its own. B
// reads the feed. Without it B would learn of what A writes after an hour.
func servers(t *testing.T, d database) (a, b *keystore.Cached) {
	t.Helper()
	cached := func() *keystore.Cached {
		return keystore.NewCached(d.store(t), keystore.CacheOptions{
			TTL: time.Hour, NegativeTTL: time.Hour, FeedInterval: 20 * time.Millisecond, Timeout: time.Minute,
		})
	}
	a, b = cached(), cached()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
	})
	eventually(t, "the feed of server B never answered", func() bool { return b.MaxStaleness() < time.Hour })
	return a, b
}

// What one server revokes dies on the other with its next question to the feed,
// and not only after its TTL. The tests of keystore hold the bound that the
// other states.
func TestRevokedOnAnotherServer(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		a, b := servers(t, d)
		issuer := keystore.NewIssuer(a, keystore.IssuerOptions{})
		for range 5 {
			secret, k, err := issuer.Issue(t.Context(), keystore.Grant{Organization: "acme", Environment: keystore.Production})
			if err != nil {
				t.Fatal(err)
			}
			token := keystore.DigestOf(secret.Reveal())
			if got, err := b.Lookup(t.Context(), token); err != nil || got.Refused() != nil {
				t.Fatalf("server B does not know a new key: %v", err)
			}
			if _, err := issuer.Revoke(t.Context(), "acme", k.ID); err != nil {
				t.Fatal(err)
			}
			revoked := time.Now()
			eventually(t, "server B never noticed the revocation", func() bool {
				got, err := b.Lookup(t.Context(), token)
				if err != nil {
					t.Fatal(err)
				}
				return errors.Is(got.Refused(), keystore.ErrRevoked)
			})
			t.Logf("refused after %v", time.Since(revoked))
		}
	})
}

// A key that one server makes is known to the other with its next question to
// the feed, also when that one was asked for it too early. It does not matter
// how the key is made.
func TestInsertedOnAnotherServer(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		a, b := servers(t, d)
		issuer := keystore.NewIssuer(askedBefore{a, t, b}, keystore.IssuerOptions{
			Service: keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}}},
		})
		grant := keystore.Grant{Organization: "acme", Environment: keystore.Production}
		_, issued, err := issuer.Issue(t.Context(), grant)
		if err != nil {
			t.Fatal(err)
		}
		_, rotated, err := issuer.Rotate(t.Context(), "acme", issued.ID, "user_1", 0, "")
		if err != nil {
			t.Fatal(err)
		}
		imported, err := issuer.Import(t.Context(), &keystore.Key{Organization: "acme", Environment: keystore.Production}, "acme_"+rand.Text())
		if err != nil {
			t.Fatal(err)
		}
		byDigest, err := issuer.Import(t.Context(), &keystore.Key{Organization: "acme", Environment: keystore.Production, Digest: keystore.DigestOf("acme_" + rand.Text()), Legacy: "v1"}, "")
		if err != nil {
			t.Fatal(err)
		}
		for name, k := range map[string]*keystore.Key{"issued": issued, "rotated": rotated, "imported": imported, "imported by digest": byDigest} {
			eventually(t, "server B never learned of a key that was "+name, func() bool {
				_, err := b.Lookup(t.Context(), k.Digest)
				if err != nil && !errors.Is(err, keystore.ErrNotFound) {
					t.Fatal(err)
				}
				return err == nil
			})
		}
	})
}

// askedBefore asks another server for each key before it is there.
type askedBefore struct {
	keystore.Manager
	t     *testing.T
	other *keystore.Cached
}

func (m askedBefore) Insert(ctx context.Context, k *keystore.Key) error {
	if _, err := m.other.Lookup(ctx, k.Digest); !errors.Is(err, keystore.ErrNotFound) {
		m.t.Errorf("Lookup of a key that is not there yet returned %v, want %v", err, keystore.ErrNotFound)
	}
	return m.Manager.Insert(ctx, k)
}
