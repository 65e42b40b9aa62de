package adapters_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// network is a wire of which some connections become half-open.
type network struct{ sqltest.Wire }

const (
	connections = 4
	dead        = 2
)

// kill makes so many of the connections half-open.
func (n *network) kill(t *testing.T, which []int) {
	conns := n.Conns()
	if len(conns) != connections {
		t.Fatalf("the pool has %d connections, want %d", len(conns), connections)
	}
	for _, i := range which {
		c := conns[i]
		c.Deafen()
		t.Cleanup(func() { c.Close() }) // a pool waits for it when it is closed
	}
}

func (n *network) redis(t *testing.T) (client *redis.Client, prefix string) {
	o := redistest.Options(t)
	o.PoolSize, o.Dialer, o.ContextTimeoutEnabled = connections, n.Dial, true
	client = redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	for range connections {
		c := client.Conn()
		defer c.Close()
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return client, redistest.OwnPrefix(t, redistest.Connect(t, redistest.Options(t)))
}

func (n *network) postgres(t *testing.T) *pgxpool.Pool {
	conf, err := pgxpool.ParseConfig("")
	if err != nil {
		t.Fatal(err)
	}
	conf.ConnConfig = pgtest.Schema(t)
	conf.MaxConns, conf.ConnConfig.DialFunc = connections, n.Dial
	pool, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var open []*pgxpool.Conn
	for range connections {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	for _, c := range open {
		c.Release()
	}
	return pool
}

// keys returns a cache in front of a database with so many keys.
func (n *network) keys(t *testing.T, many int, budget time.Duration) (*keystore.Cached, []keystore.Digest) {
	db := stdlib.OpenDBFromPool(n.postgres(t))
	t.Cleanup(func() { db.Close() })
	store := keysql.Postgres(db, keysql.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var digests []keystore.Digest
	for range many {
		_, k, err := issuing.New(store, issuing.Options{}).Issue(t.Context(),
			keystore.Key{Organization: "org", Environment: keystore.Sandbox, Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, k.Digest)
	}
	return keystore.NewCached(store, keystore.CacheOptions{Timeout: budget}), digests
}

// budgets are what each call of a store has. A machine that is busy elsewhere
// starves a shorter one.
var budgets = []time.Duration{2 * time.Second, 8 * time.Second, 32 * time.Second}

// Half of the connections are half-open, and many call at one moment and shortly
// after. Callers who share something fail no more often than each would by
// itself: once for each of those connections. None waits longer than it may.
func TestHalfOpenConnections(t *testing.T) {
	for name, path := range map[string]struct {
		wait time.Duration // for a turn, beside the budget
		open func(t *testing.T, n *network, budget time.Duration) call
	}{
		"groups of idemredis": {0, func(t *testing.T, n *network, _ time.Duration) call {
			client, prefix := n.redis(t)
			store := idemredis.New(client, idemredis.Options{Prefix: prefix})
			return func(ctx context.Context, i int) error {
				_, err := store.Begin(ctx, aClaim(i))
				return err
			}
		}},
		"units ahead": {0, func(t *testing.T, n *network, budget time.Duration) call {
			client, prefix := n.redis(t)
			store := ratelimitredis.New(client, ratelimitredis.Options{
				Prefix: prefix, Ahead: 100 * time.Millisecond, Failover: ratelimit.FailoverOptions{Timeout: budget},
			})
			charges := []ratelimit.Charge{{Bucket: "one", Cost: 1, Policy: &ratelimit.Policy{
				Name: "one", Limit: ratelimit.MustParse("100000-S"), Fallback: ratelimit.Closed}}}
			return func(ctx context.Context, _ int) error {
				_, err := store.Take(ctx, charges)
				return err
			}
		}},
		"loads of one key": {0, func(t *testing.T, n *network, budget time.Duration) call {
			cached, digests := n.keys(t, 1, budget)
			return func(ctx context.Context, i int) error {
				_, err := cached.Lookup(ctx, digests[0])
				return err
			}
		}},
		"loads of many keys": {0, func(t *testing.T, n *network, budget time.Duration) call {
			cached, digests := n.keys(t, 64, budget)
			return func(ctx context.Context, i int) error {
				_, err := cached.Lookup(ctx, digests[i%len(digests)])
				return err
			}
		}},
		"batches of idempgx": {10 * time.Second, func(t *testing.T, n *network, budget time.Duration) call {
			store := idempgx.New(n.postgres(t), idempgx.Options{})
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context, i int) error {
				_, transaction, err := store.Join(ctx, aClaim(i), budget)
				if err != nil {
					return err
				}
				settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget)
				defer cancel()
				return transaction.Settle(settling, idem.Settlement{Outcome: idem.OutcomeDone, Retention: time.Hour})
			}
		}},
	} {
		for _, which := range [][]int{{0, 1}, {2, 3}} {
			t.Run(name+", dead are "+strconv.Itoa(which[0])+" and "+strconv.Itoa(which[1]), func(t *testing.T) {
				t.Parallel()
				for i, budget := range budgets {
					var n network
					call := path.open(t, &n, budget)
					n.kill(t, which)
					wrong := callTogether(t, call, budget, path.wait)
					if wrong == "" {
						return
					}
					if i == len(budgets)-1 {
						t.Error(wrong)
					}
				}
			})
		}
	}
}

// call calls a store, for the i-th time.
type call func(ctx context.Context, i int) error

// callTogether says what was wrong with calls of which most come at one moment, or
// "".
func callTogether(t *testing.T, call call, budget, wait time.Duration) string {
	var calls sync.WaitGroup
	var failed, last atomic.Int64
	var longest [100]time.Duration
	begun := time.Now()
	for _, at := range []time.Duration{0, 5 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond} {
		<-time.After(at - time.Since(begun))
		for range []int{30, 10}[min(at, 1)] {
			calls.Go(func() {
				i := last.Add(1)
				ctx, cancel := context.WithTimeout(t.Context(), budget+wait)
				defer cancel()
				called := time.Now()
				if call(ctx, int(i)) != nil {
					failed.Add(1)
				}
				longest[i] = time.Since(called)
			})
		}
	}
	calls.Wait()
	if got := failed.Load(); got > dead {
		return fmt.Sprintf("with %v, %d of %d calls failed, want at most %d", budget, got, last.Load(), dead)
	}
	// A call that is left may take a moment to return on a busy machine.
	if got := slices.Max(longest[:]); got > budget+wait+budget/2 {
		return fmt.Sprintf("a call took %v, want at most %v", got, budget+wait)
	}
	return ""
}

func aClaim(i int) (c idem.Claim) {
	rand.Read(c.Token[:])
	c.Key, c.Fingerprint = idem.NewKey("org", strconv.Itoa(i)), [32]byte{1}
	c.Lease, c.Retention = time.Minute, time.Hour
	return c
}
