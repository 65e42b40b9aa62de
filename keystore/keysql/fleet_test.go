package keysql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// Two servers with a pool and a cache each. What one revokes dies on the other
// with its next question to the feed, and not only after its TTL. The tests of
// keystore hold the bound that the other states.
func TestRevokedOnAnotherServer(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		cached := func() *keystore.Cached {
			return keystore.NewCached(d.store(t), keystore.CacheOptions{
				TTL: time.Hour, FeedInterval: 20 * time.Millisecond, Timeout: time.Minute,
			})
		}
		a, b := cached(), cached()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Errorf("Run returned %v, want nil", err)
			}
		}()
		eventually(t, "the feed of server B never answered", func() bool { return b.MaxStaleness() < time.Hour })

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
