// Package redistest has what the tests of the Redis stores share: clients, and
// servers that a test kills, hangs and cuts off.
package redistest

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// Options are those of the Redis that the tests may use.
func Options(t testing.TB) *redis.Options {
	t.Helper()
	o, err := redis.ParseURL(servers.Redis.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	return Unhurried(o)
}

// Unhurried gives a client more time than a slow machine needs.
func Unhurried(o *redis.Options) *redis.Options {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = Patience, Patience, Patience, Patience
	return o
}

// Connect returns a client that is closed after the test.
func Connect(t testing.TB, o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

// OwnPrefix is that of keys which nobody else has, and which go with the test.
func OwnPrefix(t testing.TB, client redis.UniversalClient) string {
	prefix := "test-" + rand.Text() + ":"
	t.Cleanup(func() {
		for _, key := range KeysOf(t, client, prefix) {
			client.Del(context.Background(), key)
		}
	})
	return prefix
}

// KeysOf lists what a Store with the prefix has in Redis.
func KeysOf(t testing.TB, client redis.UniversalClient, prefix string) []string {
	t.Helper()
	var keys []string
	all := client.Scan(context.Background(), 0, "*"+prefix+"*", 1000).Iterator()
	for all.Next(context.Background()) {
		keys = append(keys, all.Val())
	}
	if err := all.Err(); err != nil {
		t.Error(err)
	}
	slices.Sort(keys)
	return slices.Compact(keys) // SCAN may return a key twice
}

// Patience bounds what a test waits for. Only what hangs takes that long.
const Patience = 5 * time.Minute

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.After(Patience)
	for !holds() {
		select {
		case <-end:
			t.Fatalf("after %v it is not so that %s", Patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
