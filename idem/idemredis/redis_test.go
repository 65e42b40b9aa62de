package idemredis_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

type (
	server = redistest.Server
	proxy  = redistest.Proxy
)

func ownStore(t testing.TB, client redis.UniversalClient) *idemredis.Store {
	return idemredis.New(client, idemredis.Options{Prefix: redistest.OwnPrefix(t, client)})
}

// newToken returns a token that no other claim has.
func newToken() (t idem.ClaimToken) {
	rand.Read(t[:])
	return t
}

// aClaim is a claim that does not lapse while a test runs.
func aClaim(key string) idem.Claim {
	return idem.Claim{
		Key: idem.NewKey("org_1", key), Token: newToken(), Fingerprint: [32]byte{1},
		Lease: time.Minute, Retention: time.Hour + 7*time.Millisecond, // no digit of a key is 0 by chance
	}
}

// again is c by another token.
func again(c idem.Claim) idem.Claim {
	c.Token = newToken()
	return c
}

func mustBegin(t testing.TB, s idem.Store, c idem.Claim, want idem.State) idem.Record {
	t.Helper()
	r, err := s.Begin(t.Context(), c)
	if err != nil || r.State != want {
		t.Fatalf("Begin: got %v, %v, want %v", r.State, err, want)
	}
	return r
}

// ttl returns how long the only key of a prefix is remembered.
func ttl(t *testing.T, client redis.UniversalClient, prefix string) time.Duration {
	return client.PTTL(t.Context(), redistest.KeysOf(t, client, prefix)[0]).Val()
}

var freed = idem.Settlement{Outcome: idem.OutcomeFree}

func finished(payload string) idem.Settlement {
	return idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte(payload), Retention: time.Hour}
}
