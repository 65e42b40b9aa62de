// Package ratelimitredis keeps the counters of rate limits in Redis, where all
// servers of a fleet share them.
//
//	client := redis.NewUniversalClient(&redis.UniversalOptions{
//		Addrs:                 []string{"redis:6379"},
//		ContextTimeoutEnabled: true,
//	})
//	limits := middleware.PerOrganization(ratelimitredis.New(client, ratelimitredis.Options{}), ratelimit.MustParse("100-S"))
//
// A request costs one EVALSHA, whatever the number of its limits, and none while
// this process knows that it is denied. Redis needs nothing prepared: it has to be
// version 5 or newer, a script that it lost is sent again, and each counter expires
// when its bucket is full.
//
// Redis may be away at any time, from the start on. A [Store] decides within its
// budget all the same, each policy by its FailureMode, and finds by itself when
// Redis is back. Without ContextTimeoutEnabled a call that hangs is left behind, with
// its connection, until the client's own ReadTimeout, which is 3 seconds by default.
//
// What Redis loses it loses in favor of the clients: after a failover or a restart
// without persistence, buckets are as full as they were before the loss, or full. A
// new primary whose clock is behind denies nobody for longer than a bucket takes to
// fill, and any maxmemory-policy will do. So the counters need not live where
// idempotent replies do, which are not to be evicted. What the network loses is in
// favor of the limits: a command whose answer was lost may have been charged, and is
// charged twice when the client sends it again.
//
// Redis counts whole microseconds, and an interval is rounded up to them: beyond
// 100,000 a second a limit becomes noticeably stricter, 300,000 becoming 250,000.
package ratelimitredis

import (
	"context"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// Options adjust a Store. The zero value is ready to use.
type Options struct {
	// Prefix begins the name of every key; "" means "sallyport:rate". Stores with
	// one prefix share their counters. It holds no braces.
	Prefix string

	// Spread distributes the counters over the slots of a Redis Cluster, or the
	// shards of a Ring. All that one decision counts has to lie together: without
	// Spread everything of a prefix does, in one slot, which bounds a fleet to what
	// one Redis can do. With Spread it lies with the bucket of the decision's first
	// take.
	//
	// A bucket then has a counter for each first bucket that it comes with. That is
	// one where limits by key and by route stand behind the organization's. It is
	// not where a limit by client address does: that one would count each address
	// anew for every organization. Give it a stage and a Store without Spread, of
	// its own.
	Spread bool

	// Failover says how long Redis may take, and what becomes of a request when it
	// takes longer. The zero value means 50 ms, and to count in this process.
	Failover ratelimit.FailoverOptions
}

// Store is a ratelimit.Store in Redis. It has no goroutine and nothing to close;
// the client stays its owner's.
//
// What Redis denied is remembered here until the wait is over, for at most 8,192
// lists of takes. A counter that is deleted from Redis therefore pardons nobody
// before that; a policy that comes with another limit does.
type Store struct {
	denials  *denials
	failover *ratelimit.Failover
	counters *counters
}

var _ ratelimit.Store = (*Store)(nil)

// New returns a Store that asks client. It asks nothing yet, and panics when client
// is nil or an option makes no sense.
func New(client redis.UniversalClient, o Options) *Store {
	if client == nil {
		panic("ratelimitredis: New: nil client")
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		panic("ratelimitredis: New: braces in the prefix")
	}
	if o.Prefix == "" {
		o.Prefix = "sallyport:rate"
	}
	s := &Store{denials: newDenials()}
	s.counters = &counters{client: client, prefix: o.Prefix, spread: o.Spread, denials: s.denials}
	s.failover = ratelimit.NewFailover(s.counters, o.Failover)
	return s
}

// Take decides all takes in one step, as ratelimit.Store says.
func (s *Store) Take(ctx context.Context, takes []ratelimit.Take) (ratelimit.Decision, error) {
	if err := ratelimit.Check(takes); err != nil {
		return ratelimit.Decision{}, err
	}
	if d, ok := s.denials.known(takes); ok {
		return d, nil
	}
	return s.failover.Take(ctx, takes)
}

// Fallbacks counts the calls that were decided without Redis although it was to be
// asked.
func (s *Store) Fallbacks() int64 { return s.failover.Fallbacks() }

// Down reports whether Redis is left alone at present, after failures in a row.
func (s *Store) Down() bool { return s.failover.Down() }

// keys names the counters of takes. What stands in braces decides the slot, and no
// two pairs of policy and bucket make the same name, whatever bytes they hold.
func (c *counters) keys(takes []ratelimit.Take) []string {
	tag := "{" + c.prefix
	if c.spread {
		h := fnv.New32a()
		h.Write([]byte(takes[0].Bucket))
		tag += ":" + strconv.FormatUint(uint64(h.Sum32()), 36)
	}
	tag += "}"
	keys := make([]string, len(takes))
	for i, t := range takes {
		keys[i] = tag + strconv.Itoa(len(t.Policy.Name)) + ":" + t.Policy.Name + ":" + t.Bucket
	}
	return keys
}
