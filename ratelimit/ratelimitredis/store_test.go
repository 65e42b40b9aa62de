package ratelimitredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

// A client may need longer than the timeout to connect, for the first time and
// after a failure. The first time that is no failure. The connection is kept,
// and Redis decides as soon as it is there.
func TestSlowConnection(t *testing.T) {
	o := redistest.Options(t)
	var reachable atomic.Pointer[chan struct{}]
	unreachable := func() (reach func()) {
		c := make(chan struct{})
		reachable.Store(&c)
		return func() { close(c) }
	}
	var refuses atomic.Bool
	var givenUp atomic.Int64
	conns := make(chan net.Conn, 1000)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if refuses.Load() {
			return nil, syscall.ECONNREFUSED
		}
		select {
		case <-*reachable.Load():
		case <-ctx.Done():
			givenUp.Add(1)
			return nil, ctx.Err()
		}
		conn, err := net.Dial(network, addr)
		if err == nil {
			conns <- conn
		}
		return conn, err
	}
	client := redistest.Connect(t, o)
	store := ratelimitredis.New(client, ratelimitredis.Options{
		Prefix:   redistest.OwnPrefix(t, redistest.Connect(t, redistest.Options(t))),
		Failover: ratelimit.FailoverOptions{Logger: patient.Logger},
	})
	look := ratelimit.Charge{Policy: policy(5, time.Hour), Bucket: "b"}
	decides := func() bool { return byRedis(store, func() { take(t, store, look) }) }

	reach := unreachable()
	began := time.Now()
	for range 10 {
		take(t, store, look)
	}
	// The first answer may take a second, which a slow machine spends here.
	if n := fallbacks(store); n != 10 || isDown(store) && time.Since(began) < time.Second {
		t.Errorf("%d of 10 decisions without Redis, down %v; want all, and to be up", n, isDown(store))
	}
	reach()
	redistest.Eventually(t, "Redis decides", decides)
	if n := givenUp.Load(); n != 0 {
		t.Errorf("%d connections were given up at first", n)
	}

	refuses.Store(true) // a call that waits for a connection may have no deadline
	// Until no connection is left: some may have been dialed just now.
	redistest.Eventually(t, "a call without a connection fails", func() bool {
		for range len(conns) {
			(<-conns).Close()
		}
		_, err := store.Counters().Take(t.Context(), []ratelimit.Charge{look})
		return err != nil
	})
	reach = unreachable()
	refuses.Store(false)
	before := givenUp.Load() // a call may have had a deadline before that
	for range 3 {
		take(t, store, look)
	}
	if n := givenUp.Load() - before; n != 0 {
		t.Errorf("%d connections were given up after a failure", n)
	}
	reach()
	redistest.Eventually(t, "Redis decides again", decides)
}

// While Redis answers, a call that hangs ends with the timeout, if the client
// heeds deadlines, and its connection goes with it.
func TestHungCallEnds(t *testing.T) {
	server := redistest.Start(t)
	o := server.Options()
	o.ContextTimeoutEnabled, o.ReadTimeout, o.MaxRetries = true, time.Hour, -1
	client := redistest.Connect(t, o)
	store := ratelimitredis.New(client,
		ratelimitredis.Options{Failover: ratelimit.FailoverOptions{Logger: patient.Logger}})
	if err := store.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Hang()
	take(t, store, ratelimit.Charge{Policy: policy(5, time.Hour), Bucket: "b", Cost: 1})
	if n := fallbacks(store); n != 1 {
		t.Errorf("%d decisions without Redis, want 1", n)
	}
	redistest.Eventually(t, "the connection is closed", func() bool { return client.PoolStats().TotalConns == 0 })
}

// After Ready the first decision finds a connection.
func TestReady(t *testing.T) {
	server := redistest.New(t)
	o := server.Options()
	var dials atomic.Int64
	o.MaxRetries = -1
	o.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return net.Dial(network, addr)
	}
	client := redistest.Connect(t, o)
	store := patientStore(t, client)
	if err := store.Ready(t.Context()); err == nil {
		t.Error("Ready without a server: no error")
	}
	server.Start()
	redistest.Eventually(t, "Ready returns no error", func() bool { return store.Ready(t.Context()) == nil })
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("Ready wrote %d keys", n)
	}
	before := dials.Load()
	take(t, store, ratelimit.Charge{Policy: policy(5, time.Hour), Bucket: "b", Cost: 1})
	if n := dials.Load() - before; n != 0 {
		t.Errorf("the first decision after Ready made %d connections", n)
	}
}

// Each trip is told, with whether Redis answered, and no decision in memory is.
func TestObserveCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(10 * time.Millisecond)
		store := ratelimitredis.New(server, ratelimitredis.Options{Failover: patient})
		var told []string
		store.ObserveCalls(func(_ context.Context, call string, took time.Duration, answered bool) {
			told = append(told, fmt.Sprint(call, " ", took, " ", answered))
		})
		one := ratelimit.Charge{Policy: policy(1, time.Hour), Bucket: "b", Cost: 1}
		for range 3 { // admitted, denied, and known to be denied
			take(t, store, one)
		}
		server.set(true)
		one.Bucket = "another"
		take(t, store, one)
		if want := []string{"take 10ms true", "take 10ms true", "take 10ms false"}; !slices.Equal(told, want) {
			t.Errorf("got %q, want %q", told, want)
		}
	})
}

// Charges that no store accepts are refused without a command, and New sends
// none.
func TestAskedNothing(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		t.Error("the client was used")
		return nil, errors.New("not to be used")
	}
	client := redistest.Connect(t, &redis.Options{MaxRetries: -1, Dialer: dial})
	store := ratelimitredis.New(client, ratelimitredis.Options{})
	dear := ratelimit.Charge{Policy: policy(10, time.Minute), Bucket: "b", Cost: 11}
	if _, err := store.Take(t.Context(), []ratelimit.Charge{dear}); !errors.Is(err, ratelimit.ErrCost) {
		t.Errorf("cost 11 of a burst of 10: got %v, want ErrCost", err)
	}
	if _, err := store.Take(t.Context(), make([]ratelimit.Charge, 5)); err == nil {
		t.Error("five charges: got no error")
	}
	if d, err := store.Take(t.Context(), nil); err != nil || !d.Allowed {
		t.Errorf("no charges: got %+v, %v", d, err)
	}
}

// TestRights: the operator's guide names the rights that a Store needs.
func TestRights(t *testing.T) {
	server := redistest.Start(t)
	cluster, _ := startCluster(t)
	client, user := redistest.Connect(t, server.Rights("counters")), cluster.Rights("counters")
	ofCluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{user.Addr}, Username: user.Username, Password: user.Password,
	})
	t.Cleanup(func() { ofCluster.Close() })
	for i, o := range []ratelimitredis.Options{{}, {Ahead: time.Minute}, {}} {
		o.Failover = patient
		scripter := []redis.Scripter{client, client, ofCluster}[i]
		store := ratelimitredis.New(scripter, o)
		charge := ratelimit.Charge{Policy: policy(2, time.Hour), Bucket: strconv.Itoa(i), Cost: 1}
		if err := store.Ready(t.Context()); err != nil {
			t.Errorf("%+v: Ready: %v", o, err)
		}
		for _, want := range []bool{true, true, false} {
			if d := take(t, store, charge); d.Allowed != want {
				t.Errorf("%+v: got Allowed %v, want %v", o, d.Allowed, want)
			}
		}
		if n := fallbacks(store); n > 0 {
			t.Errorf("%+v: %d decisions were made without Redis", o, n)
		}
	}
	if refused := slices.Concat(server.Refusals(), cluster.Refusals()); len(refused) > 0 {
		t.Errorf("Redis refused %q", refused)
	}
}

func TestNewPanics(t *testing.T) {
	client := redistest.Connect(t, &redis.Options{})
	for name, f := range map[string]func(){
		"nil client":       func() { ratelimitredis.New(nil, ratelimitredis.Options{}) },
		"braces":           func() { ratelimitredis.New(client, ratelimitredis.Options{Prefix: "a{b}"}) },
		"a negative Ahead": func() { ratelimitredis.New(client, ratelimitredis.Options{Ahead: -1}) },
		"a negative option": func() {
			ratelimitredis.New(client, ratelimitredis.Options{Failover: ratelimit.FailoverOptions{Timeout: -1}})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New with %s does not panic", name)
				}
			}()
			f()
		}()
	}
}

// isDown and fallbacks are the two figures of Stats.
func isDown(s *ratelimitredis.Store) bool { return s.Stats().Down }

func fallbacks(s *ratelimitredis.Store) int64 { return s.Stats().Fallbacks }

// byRedis reports whether a decision that f asks for is made by Redis, or by units
// that are from there.
func byRedis(s *ratelimitredis.Store, f func()) bool {
	before := fallbacks(s)
	f()
	return fallbacks(s) == before
}

// refused is a client without a server.
func refused(t testing.TB) redis.UniversalClient {
	return redistest.Connect(t, &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
}

func TestSuite(t *testing.T) {
	t.Parallel()
	_, _, store := connected(t)
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store { return store },
		Unavailable: func(t *testing.T) ratelimit.Store {
			return ratelimitredis.New(refused(t), ratelimitredis.Options{}).Counters()
		},
		Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// The Redis store of ulule/limiter, which a team may have already.
func TestSuiteOfUlule(t *testing.T) {
	t.Parallel()
	client := redistest.Connect(t, redistest.Options(t))
	prefix := "{" + redistest.OwnPrefix(t, client) + "}"
	store, err := ulule.NewStoreWithOptions(client, limiter.StoreOptions{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store { return ratelimit.FromLimiter(store) },
		Unavailable: func(t *testing.T) ratelimit.Store {
			server := redistest.Start(t)
			store, err := ulule.NewStore(server.Client())
			if err != nil {
				t.Fatal(err)
			}
			server.Kill()
			return ratelimit.FromLimiter(store)
		},
	}.Run(t)
}

// With units ahead the Store decides as without. In a bubble, since units in
// hand lapse while a slow machine does something else, and are then missing.
func TestSuiteAhead(t *testing.T) {
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return aheadOn(newFake(0)) },
		Atomic: true, Smooth: true, DenialWritesNothing: true, Bubble: true,
	}.Run(t)
}
