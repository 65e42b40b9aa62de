package idemredis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Check asks Redis, and each primary of a Redis Cluster, whether it may evict claims, and returns an error that says so, or
// that it could not be asked. Anything but noeviction may, also where maxmemory is not set yet. A redis.Ring is always an
// error: it gives the keys of a shard that does not answer to another, which knows nothing of them. Call Check when the
// program starts, and not with each request.
func (s *Store) Check(ctx context.Context) error {
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return checkServer(ctx, c) })
	case *redis.Ring:
		return errors.New("idemredis: a redis.Ring forgets the claims of a shard that does not answer, after which a request runs twice")
	}
	return checkServer(ctx, s.client)
}

func checkServer(ctx context.Context, c redis.Cmdable) error {
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return fmt.Errorf("idemredis: asking for the maxmemory-policy: %w", err)
	}
	for line := range strings.Lines(info) {
		policy, found := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:")
		switch {
		case !found:
		case policy == "noeviction":
			return nil
		default:
			return fmt.Errorf("idemredis: Redis has maxmemory-policy %s and may evict a claim, after which a request runs twice; it has to be noeviction", policy)
		}
	}
	return errors.New("idemredis: Redis does not say which maxmemory-policy it has; it has to be noeviction")
}
