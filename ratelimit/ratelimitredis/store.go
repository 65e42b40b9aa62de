// Package ratelimitredis keeps the counters of rate limits in Redis, where all
// servers of a fleet share them.
//
//	client := redis.NewUniversalClient(&redis.UniversalOptions{
//		Addrs:                 []string{"redis:6379"},
//		ContextTimeoutEnabled: true,
//	})
//	limits := middleware.PerOrganization("100-S")
//	limits.Store = ratelimitredis.New(client, ratelimitredis.Options{})
//
// A request costs one EVALSHA, whatever the number of its limits, and no
// command while this process knows that it is denied. Redis must be version 5
// or newer and needs no preparation: a script that it lost is sent again, and
// each counter expires when its bucket is full. With access control it needs the
// rights of the user counters in .github/OPERATING.md of the module.
//
// Options.Ahead lets each process take units for its next decisions in one
// trip, and spend them in memory. It takes what half of that time needs at the
// recent rate of the same policies, buckets and costs; if a bucket has less
// than twice that left, it takes one unit at a time. With 100 ms, 1,000
// requests a second of one caller cost about 25 trips. In exchange:
//
//   - A window of time W admits up to burst + floor((W+Ahead)/interval), for
//     any number of processes, instead of burst + floor(W/interval). The
//     interval is Limit.Interval in whole microseconds, rounded up.
//   - Units that are not spent within Ahead are lost to the client: in the long
//     run at most one for eight that it spends, and those that were in hand
//     when a process ended.
//   - Units in hand elsewhere are spent already for this process. It may deny
//     earlier, by as long as the others take to spend them, which is less than
//     Ahead. Redis denies, never a lack of units in hand.
//   - What clients see as left does not know what other processes took since
//     the latest trip.
//
// When a caller sends far more than its limit, processes near Redis get most of
// it, with Ahead and without.
//
// Redis may be unreachable at any time, from the start on. A [Store] decides
// within its timeout all the same, each policy by its Fallback, and notices
// when Redis is back. A call that hangs is left behind, with its connection,
// until the client's own ReadTimeout, 3 seconds by default: without
// ContextTimeoutEnabled each call that hangs; with it only those after a
// failure.
//
// The timeout is 50 ms. If Redis usually needs longer, because it is in another
// region, no decision waits for it: each process counts by itself, and one
// warning in the log says so. Raise Options.Failover.Timeout then. Connecting
// can take longer than a decision: call [Store.Ready] before serving, so that
// the first requests are not decided without Redis, and set the client's
// MinIdleConns, so that the next ones need not wait for connections either.
//
// What Redis loses is in favor of the clients: after a failover, or a restart
// without persistence, a bucket is as full as it was at some time before, or
// full. If the clock of a new primary is behind, nobody is denied for longer
// than a bucket takes to fill. Any maxmemory-policy will do, so the counters
// need not be in the same Redis as idempotent replies, which must not be
// evicted. What the network loses is in favor of the limits: a command whose
// answer was lost may have been charged, and is charged again when the client
// repeats it.
//
// While a Redis Cluster moves a slot, it cannot decide about counters of which
// one server has some and another the rest. It charges none of them then, and
// the decision is made as if Redis was unreachable.
//
// Redis counts whole microseconds, and intervals are rounded up to them. Beyond
// 100,000 a second a limit becomes noticeably stricter: 300,000 becomes
// 250,000.
package ratelimitredis

import (
	"cmp"
	"context"
	"hash/maphash"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// Options adjust a Store. The zero value is ready to use.
type Options struct {
	// Prefix begins the name of every key; "" means "sallyport:rate". Stores
	// with the same prefix share their counters, which are in one slot of a Redis
	// Cluster. It must not hold braces.
	Prefix string

	// Ahead is how long this process may keep units that it takes from Redis
	// for requests to come, as the package comment says. 0 means that it takes
	// none; 100 ms is a good value. All processes should have the same. It
	// costs 1 MB of memory.
	Ahead time.Duration

	// Failover says how long Redis may take, and how to decide if it takes
	// longer. The zero value means 50 ms and counting in this process.
	Failover ratelimit.FailoverOptions
}

// Store is a ratelimit.Store in Redis. It has no goroutine and nothing to
// close. The client belongs to the caller.
//
// Denials by Redis are remembered here until their wait is over, for at most
// 8,192 lists of charges. Until then, deleting a counter from Redis has no
// effect for a list that was denied; giving the policy another limit has.
type Store struct {
	*failover // the calls "take": trips to Redis
	counters  *counters
}

// failover has methods for metrics and traces, which are no part of the surface.
type failover = ratelimit.Failover

var _ ratelimit.Store = (*Store)(nil)

// New returns a Store that uses client: a *redis.Client, a
// *redis.ClusterClient, one that sends the commands of concurrent requests in
// pipelines, such as a redis.AutoPipeliner, or anything else that runs scripts.
// New calls nothing yet. It panics if client is nil or an option is not valid.
func New(client redis.Scripter, o Options) *Store {
	if client == nil {
		panic("ratelimitredis: New: nil client")
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		panic("ratelimitredis: New: braces in the prefix")
	}
	if o.Ahead < 0 {
		panic("ratelimitredis: New: negative Ahead")
	}
	c := &counters{client: client, prefix: cmp.Or(o.Prefix, "sallyport:rate"), seed: maphash.MakeSeed(),
		denials: newDenials()}
	if o.Ahead > 0 {
		c.ahead = newAhead(o.Ahead)
	}
	return &Store{ratelimit.NewFailover(c, o.Failover), c}
}

// Ready connects to Redis and runs the script once, until ctx ends and without
// changing a counter. It returns an error if that did not work. Call it before
// serving; the Store works without it too, and after an error.
func (s *Store) Ready(ctx context.Context) error {
	policy := &ratelimit.Policy{Name: "ready", Limit: ratelimit.Limit{Count: 1, Period: time.Second}}
	_, err := s.counters.take(ctx, []ratelimit.Charge{{Policy: policy}})
	if err == nil {
		s.counters.answered.Store(true)
	}
	return err
}

// Take decides all charges in one step, as ratelimit.Store says.
func (s *Store) Take(ctx context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	if err := ratelimit.Check(charges); err != nil {
		return ratelimit.Decision{}, err
	}
	c := s.counters
	key := listKey(c.seed, charges)
	if d, ok := c.ahead.spend(key, charges); ok {
		return d, nil
	}
	if d, ok := c.denials.known(key, charges); ok {
		// The trip that spend wanted would be in vain, and there may be units
		// from one before the denial.
		if admitted, ok := c.ahead.spend(key, charges); ok {
			return admitted, nil
		}
		return d, nil
	}
	return s.failover.Take(ctx, charges)
}

// Stats returns the figures of the Failover in front of Redis. Fallbacks does
// not count the decisions that need no trip to Redis.
func (s *Store) Stats() ratelimit.FailoverStats { return s.failover.Stats() }
