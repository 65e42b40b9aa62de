package idemredis_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// fill runs a request of each of two tenants n times.
func fill(t *testing.T, s idem.Store, n int) {
	t.Helper()
	runner := idem.NewRunner(s, idem.Options{})
	for i := range n {
		for _, tenant := range []string{"acme", "other"} {
			_, e, err := runner.Begin(t.Context(), idem.Claim{Key: idem.NewKey(tenant, fmt.Sprint(i)), Tenant: tenant}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Settle(t.Context(), finished("answer")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func mustErase(t *testing.T, s *idemredis.Store, want ...int) {
	t.Helper()
	for _, want := range want {
		if n, err := s.Erase(t.Context(), "acme"); n != want || err != nil {
			t.Errorf("Erase: got %d, %v, want %d", n, err, want)
		}
	}
}

// Erase takes what a Runner has stored, of its own prefix alone, whatever
// characters that has, and no key of another form.
func TestErase(t *testing.T) {
	t.Parallel()
	client := redistest.Connect(t, redistest.Options(t))
	own := redistest.OwnPrefix(t, client)
	for _, prefix := range []string{own + "plain", own + `a*[b]?\`} {
		store := idemredis.New(client, idemredis.Options{Prefix: prefix})
		fill(t, store, 20)
		if err := client.RPush(t.Context(), prefix+"list", "text").Err(); err != nil {
			t.Fatal(err)
		}
		mustErase(t, idemredis.New(client, idemredis.Options{Prefix: own + "a"}), 0)
		mustErase(t, store, 20, 0)
		if n := len(redistest.KeysOf(t, client, own)); n != 21 {
			t.Errorf("%s: %d keys are left, want 20 of the other tenant and the list", prefix, n)
		}
		client.Del(t.Context(), redistest.KeysOf(t, client, own)...)
	}
}

// What cannot be done, or not wholly, is an error.
func TestEraseErrors(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": client.Options().Addr}})
	t.Cleanup(func() { ring.Close() })
	for _, c := range []idemredis.Client{ring, &old{Client: client}} {
		if _, err := idemredis.New(c, idemredis.Options{}).Erase(t.Context(), "acme"); err == nil {
			t.Errorf("Erase by a %T: got no error", c)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ownStore(t, client).Erase(ended, "acme"); err == nil {
		t.Error("Erase with a context that has ended: got no error")
	}
}
