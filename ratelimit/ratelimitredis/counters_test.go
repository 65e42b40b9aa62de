package ratelimitredis_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// The script decides as ratelimit.GCRA does.
func TestCountersFollowGCRA(t *testing.T) {
	client := connect(t, options(t))
	store := patientStore(t, client)
	perMinute := ratelimit.Limit{Count: 10, Period: time.Minute}
	for _, tt := range []struct {
		name  string
		ahead time.Duration // of the tat that lies there
		limit ratelimit.Limit
		cost  int64
	}{
		{"nothing there", -time.Hour, perMinute, 1},
		{"all of it", -time.Hour, perMinute, 10},
		{"half spent", 30 * time.Second, perMinute, 3},
		{"too little for the cost", 30 * time.Second, perMinute, 10},
		{"a look", 30 * time.Second, perMinute, 0},
		{"a look at nothing left", time.Minute, perMinute, 0},
		{"exhausted", time.Minute, perMinute, 1},
		{"nearly back", 55 * time.Second, perMinute, 1},
		{"the clock of a new primary is ten minutes behind", 11 * time.Minute, perMinute, 1},
		{"a small burst", 0, ratelimit.Limit{Count: 10, Period: time.Minute, Burst: 2}, 2},
		{"a raised plan", time.Minute, ratelimit.Limit{Count: 100, Period: time.Minute}, 1},
		{"a cut plan", time.Hour, perMinute, 10},
		{"the slowest", -time.Hour, ratelimit.Limit{Count: 1, Period: time.Hour, Burst: 1_000_000}, 999_999},
		{"the slowest, nearly spent", 999_999 * time.Hour, ratelimit.Limit{Count: 1, Period: time.Hour, Burst: 1_000_000}, 2},
		{"the fastest", 1_000_000 * time.Hour, ratelimit.Limit{Count: 1e6, Period: time.Second, Burst: 4_611_686_018_427_387}, 1e15},
	} {
		p := &ratelimit.Policy{Name: "p", Limit: tt.limit}
		takes := ratelimit.Take{Policy: p, Bucket: tt.name, Cost: tt.cost}
		before := serverTime(t, client)
		tat := before.Add(tt.ahead)
		take(t, store, ratelimit.Take{Policy: policy(1, time.Hour), Bucket: tt.name, Cost: 1}) // to see what the key is called
		if err := client.Set(t.Context(), keyOf(t, client, tt.name), tat.UnixMicro(), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		d := take(t, store, takes)
		after := serverTime(t, client)
		_, most := ratelimit.GCRA(before.UnixNano(), tat.UnixNano(), tt.limit, tt.cost)
		_, least := ratelimit.GCRA(after.UnixNano(), tat.UnixNano(), tt.limit, tt.cost)
		got := d.States[0]
		if got.Reset > most.Reset || got.Reset < least.Reset || got.Wait > most.Wait || got.Wait < least.Wait ||
			got.Remaining < most.Remaining || got.Remaining > least.Remaining {
			t.Errorf("%s: got %+v, want between %+v and %+v", tt.name, got, least, most)
		}
	}
}

func serverTime(t *testing.T, client *redis.Client) time.Time {
	t.Helper()
	now, err := client.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// keyOf finds the only key whose name ends so.
func keyOf(t *testing.T, client redis.UniversalClient, end string) string {
	t.Helper()
	keys, _, err := client.Scan(t.Context(), 0, "{test-*:"+end, 1<<20).Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys that end in %q: got %q, %v", end, keys, err)
	}
	return keys[0]
}

func TestDenialWritesNothing(t *testing.T) {
	client := connect(t, options(t))
	prefix := ownPrefix(t, client)
	store := ratelimitredis.New(client, ratelimitredis.Options{Prefix: prefix, Failover: patient})
	spent, free, fresh := policy(5, time.Hour), policy(5, time.Hour), policy(5, time.Hour)
	free.Name, fresh.Name = "free", "fresh"
	take(t, store, ratelimit.Take{Policy: spent, Bucket: "b", Cost: 5}, ratelimit.Take{Policy: free, Bucket: "b", Cost: 2})
	look := func() (all string) {
		for _, key := range keysOf(t, client, prefix) {
			value, expiry := client.Get(t.Context(), key).Val(), client.PExpireTime(t.Context(), key).Val()
			all += key + "=" + value + " until " + expiry.String() + "\n"
		}
		return all
	}
	before := look()
	for cost := int64(1); cost <= 5; cost++ {
		d := take(t, store,
			ratelimit.Take{Policy: free, Bucket: "b", Cost: 1},
			ratelimit.Take{Policy: fresh, Bucket: "b", Cost: 1},
			ratelimit.Take{Policy: spent, Bucket: "b", Cost: cost})
		if d.Allowed {
			t.Fatalf("cost %d was admitted", cost)
		}
	}
	take(t, store, ratelimit.Take{Policy: fresh, Bucket: "look", Cost: 0})
	if after := look(); after != before || strings.Count(before, "\n") != 2 {
		t.Errorf("denials and a look made\n%sinto\n%s", before, after)
	}
}

// Left behind by a clock that was ahead, or by a larger plan, a tat does not keep
// anybody out for longer than the bucket takes to fill.
func TestLockOutIsBounded(t *testing.T) {
	client := connect(t, options(t))
	store := patientStore(t, client)
	p := policy(4, 400*time.Millisecond)
	one := ratelimit.Take{Policy: p, Bucket: t.Name(), Cost: 1}
	take(t, store, one)
	tat := serverTime(t, client).Add(10 * time.Minute).UnixMicro()
	if err := client.Set(t.Context(), keyOf(t, client, t.Name()), tat, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	d := take(t, store, one)
	if d.Allowed || d.Wait() > 100*time.Millisecond {
		t.Fatalf("got Allowed %v and a wait of %v, want to be denied for an interval of 100ms", d.Allowed, d.Wait())
	}
	<-time.After(d.Wait())
	if d := take(t, store, one); !d.Allowed {
		t.Errorf("after the wait: denied for another %v", d.Wait())
	}
}

// A counter goes when its bucket is full again, and not before.
func TestCountersExpire(t *testing.T) {
	client := connect(t, options(t))
	prefix := ownPrefix(t, client)
	store := ratelimitredis.New(client, ratelimitredis.Options{Prefix: prefix, Failover: patient})
	for i, l := range []ratelimit.Limit{
		{Count: 1, Period: time.Hour},
		{Count: 7, Period: time.Minute},
		{Count: 7, Period: time.Minute, Burst: 1},
		{Count: 1, Period: time.Hour, Burst: 1_000_000},
	} {
		bucket := "expires" + strconv.Itoa(i)
		before := serverTime(t, client)
		full := take(t, store, ratelimit.Take{Policy: &ratelimit.Policy{Name: "p", Limit: l}, Bucket: bucket, Cost: 1}).States[0].Reset
		key := keyOf(t, client, bucket)
		if _, err := client.Get(t.Context(), key).Int64(); err != nil {
			t.Errorf("%+v: what is kept has lost digits: %v", l, err)
		}
		left := client.PTTL(t.Context(), key).Val()
		passed := serverTime(t, client).Sub(before)
		if left < full-passed || left > full+3*time.Millisecond {
			t.Errorf("%+v: %v after the take, the key expires in %v and the bucket is full in %v", l, passed, left, full)
		}
	}
	take(t, store, ratelimit.Take{Policy: policy(5, 50*time.Millisecond), Bucket: "soon", Cost: 5})
	eventually(t, "the bucket that is full has no key", func() bool {
		for _, key := range keysOf(t, client, prefix) {
			if strings.HasSuffix(key, "soon") {
				return false
			}
		}
		return true
	})
}

// Intervals are rounded up to microseconds, so that a limit is never looser than it
// was asked to be, and what then exceeds the range of Lua's numbers is cut off.
func TestMicroseconds(t *testing.T) {
	store := patientStore(t, connect(t, options(t)))
	for _, tt := range []struct {
		limit ratelimit.Limit
		cost  int64
		least time.Duration // of Reset
		most  time.Duration
	}{
		{ratelimit.Limit{Count: 300_000, Period: time.Second}, 300_000, 1200 * time.Millisecond, 1200 * time.Millisecond},
		{ratelimit.Limit{Count: 1_000_000, Period: time.Second}, 1_000_000, time.Second, time.Second},
		{ratelimit.Limit{Count: 7, Period: time.Second}, 7, 7 * 142_858 * time.Microsecond, 7 * 142_858 * time.Microsecond},
		{ratelimit.Limit{Count: 999_999, Period: time.Second, Burst: 4_600_000_000_000_000}, 4_600_000_000_000_000, 146 * 365 * 24 * time.Hour, 222 * 366 * 24 * time.Hour},
	} {
		p := &ratelimit.Policy{Name: "p", Limit: tt.limit}
		bucket := tt.limit.Interval().String()
		d := take(t, store, ratelimit.Take{Policy: p, Bucket: bucket, Cost: tt.cost})
		if reset := d.States[0].Reset; !d.Allowed || d.States[0].Remaining != 0 || reset < tt.least || reset > tt.most {
			t.Errorf("%+v: got Allowed %v and %+v after all of a fresh bucket, want a Reset of %v to %v", tt.limit, d.Allowed, d.States[0], tt.least, tt.most)
		}
		d = take(t, store, ratelimit.Take{Policy: p, Bucket: bucket, Cost: tt.cost})
		if d.Allowed || d.Wait() > tt.most || d.Wait() < tt.least/2 {
			t.Errorf("%+v: got Allowed %v and a wait of %v for as much again, want up to %v", tt.limit, d.Allowed, d.Wait(), tt.most)
		}
	}
}

// Somebody else's value under a key is a bucket that was never used.
func TestForeignValue(t *testing.T) {
	client := connect(t, options(t))
	store := patientStore(t, client)
	one := ratelimit.Take{Policy: policy(5, time.Hour), Bucket: t.Name(), Cost: 1}
	take(t, store, one)
	if err := client.Set(t.Context(), keyOf(t, client, t.Name()), "not a number", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if d := take(t, store, one); !d.Allowed || d.States[0].Remaining != 4 {
		t.Errorf("got %+v, want 4 of 5 left", d.States[0])
	}
}

// What no wait admits, or makes no sense, is answered before Redis is asked, and New
// asks it nothing.
func TestAskedNothing(t *testing.T) {
	client := connect(t, &redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		t.Error("the client was used")
		return nil, errors.New("not to be used")
	}})
	store := ratelimitredis.New(client, ratelimitredis.Options{})
	if _, err := store.Take(t.Context(), []ratelimit.Take{{Policy: policy(10, time.Minute), Bucket: "b", Cost: 11}}); !errors.Is(err, ratelimit.ErrCost) {
		t.Errorf("cost 11 of a burst of 10: got %v, want ErrCost", err)
	}
	if _, err := store.Take(t.Context(), make([]ratelimit.Take, 5)); err == nil {
		t.Error("five takes: got no error")
	}
	if d, err := store.Take(t.Context(), nil); err != nil || !d.Allowed {
		t.Errorf("no takes: got %+v, %v", d, err)
	}
}

func TestNewPanics(t *testing.T) {
	client := connect(t, &redis.Options{})
	for name, f := range map[string]func(){
		"nil client": func() { ratelimitredis.New(nil, ratelimitredis.Options{}) },
		"braces":     func() { ratelimitredis.New(client, ratelimitredis.Options{Prefix: "a{b}"}) },
		"a negative option": func() {
			ratelimitredis.New(client, ratelimitredis.Options{Failover: ratelimit.FailoverOptions{Budget: -1}})
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
