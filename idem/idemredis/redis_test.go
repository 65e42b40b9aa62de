package idemredis_test

import (
	"context"
	"crypto/rand"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// options are those of the Redis that the tests may use.
func options(t testing.TB) *redis.Options {
	t.Helper()
	url := os.Getenv("SALLYPORT_REDIS")
	if url == "" {
		t.Skip("left out: idemredis on Redis; SALLYPORT_REDIS=redis://127.0.0.1:6379/0 go test ./idem/idemredis/ runs it")
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func connect(t testing.TB, o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

// ownPrefix is that of keys which nobody else has, and which go with the test.
func ownPrefix(t testing.TB, client redis.UniversalClient) string {
	prefix := "sallyport-test-" + rand.Text() + ":"
	t.Cleanup(func() {
		for _, key := range keysOf(t, client, prefix) {
			client.Del(context.Background(), key)
		}
	})
	return prefix
}

func keysOf(t testing.TB, client redis.UniversalClient, prefix string) []string {
	t.Helper()
	var keys []string
	all := client.Scan(context.Background(), 0, prefix+"*", 1000).Iterator()
	for all.Next(context.Background()) {
		keys = append(keys, all.Val())
	}
	if err := all.Err(); err != nil {
		t.Error(err)
	}
	return keys
}
