package idemredis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Check asks Redis, and each primary of a Redis Cluster, whether it may lose
// claims, and returns an error that says so, or that it could not be asked.
// With any maxmemory-policy but noeviction it may evict them, also where
// maxmemory is not set yet; a replica keeps none of its own. Call Check when
// the program starts, and not with each request.
//
// A redis.Ring is always an error: it gives the keys of a shard that does not
// answer to another, which knows nothing of them. So is a redis.AutoPipeliner
// in front of a Redis Cluster, which can ask only one of its servers: check a
// Store with the redis.ClusterClient behind it.
func (s *Store) Check(ctx context.Context) error {
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return checkServer(ctx, c, true) })
	case *redis.Ring:
		return errors.New("idemredis: a redis.Ring forgets the claims of a shard that does not answer, " +
			"after which a request runs twice")
	case informer:
		return checkServer(ctx, c, false)
	}
	return fmt.Errorf("idemredis: a %T cannot ask for the maxmemory-policy; "+
		"check a Store with the client behind it", s.client)
}

// informer is a client that can ask a server about itself.
type informer interface {
	Info(ctx context.Context, sections ...string) *redis.StringCmd
}

func checkServer(ctx context.Context, c informer, inCluster bool) error {
	info, err := c.Info(ctx).Result()
	if err != nil {
		return fmt.Errorf("idemredis: asking for the maxmemory-policy: %w", err)
	}
	said := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			said[name] = value
		}
	}
	policy := said["maxmemory_policy"]
	switch {
	case said["cluster_enabled"] == "1" && !inCluster:
		return errors.New("idemredis: this is one server of a Redis Cluster, and the others were not asked; " +
			"check a Store with a redis.ClusterClient")
	case said["role"] == "slave":
		return errors.New("idemredis: this is a replica, which keeps no claims; give the Store the primary")
	case policy == "":
		return errors.New("idemredis: Redis does not say which maxmemory-policy it has; it has to be noeviction")
	case policy != "noeviction":
		return fmt.Errorf("idemredis: Redis has maxmemory-policy %s and may evict a claim, "+
			"after which a request runs twice; it has to be noeviction", policy)
	}
	return nil
}
