package keystore_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

// Keys are looked up, driven out by others and revoked at the same time. From the
// moment at which Revoke has returned nobody finds the key usable.
func TestRevokeAmongEvictions(t *testing.T) {
	for _, size := range []int{1, 2, 5, 100} {
		cached := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{Size: size, NegativeSize: size, Loads: 1000})
		issuer := keystore.NewIssuer(cached, keystore.Format{})
		type issued struct {
			id      string
			digest  keystore.Digest
			revoked atomic.Bool
		}
		issue := func() *issued {
			secret, k, err := issuer.Issue(t.Context(), keystore.Grant{Organization: "acme", Environment: keystore.Production})
			if err != nil {
				t.Fatal(err)
			}
			return &issued{id: k.ID, digest: keystore.DigestOf(secret.Reveal())}
		}
		var live [8]atomic.Pointer[issued]
		for i := range live {
			live[i].Store(issue())
		}
		var revoking atomic.Bool
		revoking.Store(true)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for revoking.Load() {
					k := live[rand.IntN(len(live))].Load()
					revoked := k.revoked.Load()
					found, err := cached.Lookup(t.Context(), k.digest)
					if err != nil || revoked && found.RefusedNow() == nil {
						t.Errorf("size %d: Lookup gave %v, error %v, revoked before: %t", size, found, err, revoked)
						return
					}
					if _, usable := cached.Peek(k.digest); revoked && usable {
						t.Errorf("size %d: Peek gave a revoked key", size)
						return
					}
				}
			})
		}
		for i := range 1000 {
			k := live[i%len(live)].Load()
			if _, err := issuer.Revoke(t.Context(), "acme", k.id); err != nil {
				t.Fatal(err)
			}
			k.revoked.Store(true)
			live[i%len(live)].Store(issue())
		}
		revoking.Store(false)
		wg.Wait()
	}
}
