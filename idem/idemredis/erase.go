package idemredis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/token"
)

// eraseScript removes a key whose claim has a token that begins so.
const eraseScript = "return redis.call('GETRANGE', KEYS[1], 33, 40) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"

// Erase implements [idem.Eraser]. It looks at all keys of the Redis, or of each
// primary of a Redis Cluster, some at a time. A key that moves to another
// primary meanwhile may be missed: erase again after a resharding. The client
// has to be a *redis.Client or a *redis.ClusterClient, which reach all keys.
func (s *Store) Erase(ctx context.Context, organization string) (int, error) {
	var removed atomic.Int64
	prefix := token.Prefix(organization)
	_, err := call(ctx, s, func() (struct{}, error) {
		erase := func(ctx context.Context, c *redis.Client) error { return s.eraseIn(ctx, c, prefix[:], &removed) }
		switch c := s.client.(type) {
		case *redis.ClusterClient:
			return struct{}{}, c.ForEachMaster(ctx, erase)
		case *redis.Client:
			return struct{}{}, erase(ctx, c)
		}
		return struct{}{}, fmt.Errorf("a %T may not reach all keys; erase by a Store with the client behind it", s.client)
	})
	return int(removed.Load()), err
}

// eraseIn erases in one server.
func (s *Store) eraseIn(ctx context.Context, c *redis.Client, prefix []byte, removed *atomic.Int64) error {
	match := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s.prefix) + "*"
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		keys, next, err := c.Scan(ctx, cursor, match, 1000).Result()
		if err != nil {
			return err
		}
		cursor = next
		// Another store's prefix may begin with this one.
		keys = slices.DeleteFunc(keys, func(key string) bool { return len(key) != len(s.name(idem.Key{})) })
		replies, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range keys {
				p.Eval(ctx, eraseScript, []string{key}, prefix)
			}
			return nil
		})
		for _, reply := range replies {
			n, _ := reply.(*redis.Cmd).Int64()
			removed.Add(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
