package ratelimitredis_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// The script decides as ratelimit.GCRA does, and stores the same: so a tat that
// a clock ahead left behind denies nobody for longer than the bucket takes to
// fill.
func TestCountersFollowGCRA(t *testing.T) {
	client, prefix, store := connected(t)
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
		{"exhausted, of a hundred", time.Minute, ratelimit.Limit{Count: 100, Period: time.Minute}, 1},
		{"an hour beyond a full burst, all of it", time.Hour, perMinute, 10},
		{"the slowest", -time.Hour, ratelimit.Limit{Count: 1, Period: time.Hour, Burst: 1_000_000}, 999_999},
		{"the slowest, nearly spent", 999_999 * time.Hour, ratelimit.Limit{Count: 1, Period: time.Hour, Burst: 1_000_000}, 2},
		{"the fastest", 1_000_000 * time.Hour, ratelimit.Limit{Count: 1e6, Period: time.Second, Burst: 4e15}, 1e15},
	} {
		p := &ratelimit.Policy{Name: "p", Limit: tt.limit}
		charges := ratelimit.Charge{Policy: p, Bucket: tt.name, Cost: tt.cost}
		before := serverTime(t, client)
		tat := before.Add(tt.ahead)
		if err := client.Set(t.Context(), keyAt(prefix, charges), tat.UnixMicro(), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		d := take(t, store, charges)
		after := serverTime(t, client)
		first, most := ratelimit.GCRA(before.UnixNano(), tat.UnixNano(), tt.limit, tt.cost)
		last, least := ratelimit.GCRA(after.UnixNano(), tat.UnixNano(), tt.limit, tt.cost)
		got := d.States[0]
		if got.Reset > most.Reset || got.Reset < least.Reset || got.Wait > most.Wait || got.Wait < least.Wait ||
			got.Remaining < most.Remaining || got.Remaining > least.Remaining {
			t.Errorf("%s: got %+v, want between %+v and %+v", tt.name, got, least, most)
		}
		stored, err := client.Get(t.Context(), keyAt(prefix, charges)).Int64()
		if err != nil || stored < first/1000 || stored > last/1000 {
			t.Errorf("%s: stored %d, %v, want %d to %d", tt.name, stored, err, first/1000, last/1000)
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

// keyAt is where a Store keeps a counter.
func keyAt(prefix string, c ratelimit.Charge) string {
	return string(c.AppendKey([]byte("{" + prefix + "}")))
}

func TestDenialWritesNothing(t *testing.T) {
	client, prefix, store := connected(t)
	spent, free, fresh := named("spent", 5), named("free", 5), named("fresh", 5)
	take(t, store, ratelimit.Charge{Policy: spent, Bucket: "b", Cost: 5},
		ratelimit.Charge{Policy: free, Bucket: "b", Cost: 2})
	// A clock that stepped back left it beyond a full burst.
	far := ratelimit.Charge{Policy: fresh, Bucket: "far"}
	tat := serverTime(t, client).Add(2 * time.Hour).UnixMicro()
	if err := client.Set(t.Context(), keyAt(prefix, far), tat, 3*time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	look := func() (all string) {
		for _, key := range redistest.KeysOf(t, client, prefix) {
			value, expiry := client.Get(t.Context(), key).Val(), client.PExpireTime(t.Context(), key).Val()
			all += key + "=" + value + " until " + expiry.String() + "\n"
		}
		return all
	}
	before := look()
	for cost := int64(1); cost <= 5; cost++ {
		d := take(t, store,
			ratelimit.Charge{Policy: free, Bucket: "b", Cost: 1},
			ratelimit.Charge{Policy: fresh, Bucket: "b", Cost: 1}, far,
			ratelimit.Charge{Policy: spent, Bucket: "b", Cost: cost})
		if d.Allowed {
			t.Fatalf("cost %d was admitted", cost)
		}
	}
	take(t, store, ratelimit.Charge{Policy: fresh, Bucket: "look", Cost: 0}, far)
	if after := look(); after != before || strings.Count(before, "\n") != 3 {
		t.Errorf("denials and a look made\n%sinto\n%s", before, after)
	}
}

// A counter expires when its bucket is full again, and not before.
func TestCountersExpire(t *testing.T) {
	client, prefix, store := connected(t)
	for i, l := range []ratelimit.Limit{
		{Count: 1, Period: time.Hour},
		{Count: 7, Period: time.Hour},
		{Count: 7, Period: time.Hour, Burst: 1},
		{Count: 1, Period: time.Hour, Burst: 1_000_000},
	} {
		one := ratelimit.Charge{Policy: &ratelimit.Policy{Name: "p", Limit: l}, Bucket: strconv.Itoa(i), Cost: 1}
		take(t, store, one)
		key := keyAt(prefix, one)
		full, err := client.Get(t.Context(), key).Int64()
		if err != nil {
			t.Errorf("%+v: what is kept has lost digits: %v", l, err)
		}
		late := client.PExpireTime(t.Context(), key).Val() - time.Duration(full)*time.Microsecond
		if late < 0 || late >= 2*time.Millisecond {
			t.Errorf("%+v: the key expires %v after the bucket is full", l, late)
		}
	}
	soon := ratelimit.Charge{Policy: policy(5, 50*time.Millisecond), Bucket: "soon", Cost: 5}
	take(t, store, soon)
	redistest.Eventually(t, "the bucket that is full has no key",
		func() bool { return client.Exists(t.Context(), keyAt(prefix, soon)).Val() == 0 })
}

// Intervals are rounded up to microseconds, so a limit is never looser than
// asked. A burst beyond the range of Lua's numbers is cut.
func TestMicroseconds(t *testing.T) {
	client, _, store := connected(t)
	for _, tt := range []struct {
		limit ratelimit.Limit
		cost  int64
		least time.Duration // of Reset
		most  time.Duration
	}{
		{ratelimit.Limit{Count: 300_000, Period: time.Second}, 300_000, 1200 * time.Millisecond, 1200 * time.Millisecond},
		{ratelimit.Limit{Count: 1_000_000, Period: time.Second}, 1_000_000, time.Second, time.Second},
		{ratelimit.Limit{Count: 1, Period: time.Hour + 1, Burst: 2}, 2, 2*time.Hour + 2*time.Microsecond,
			2*time.Hour + 2*time.Microsecond},
		{ratelimit.Limit{Count: 7, Period: time.Second}, 7, 7 * 142_858 * time.Microsecond, 7 * 142_858 * time.Microsecond},
		{ratelimit.Limit{Count: 999_999, Period: time.Second, Burst: 4_600_000_000_000_000}, 4_600_000_000_000_000,
			146 * 365 * 24 * time.Hour, 222 * 366 * 24 * time.Hour},
	} {
		p := &ratelimit.Policy{Name: "p", Limit: tt.limit}
		bucket := tt.limit.Interval().String()
		before := serverTime(t, client)
		d := take(t, store, ratelimit.Charge{Policy: p, Bucket: bucket, Cost: tt.cost})
		if reset := d.States[0].Reset; !d.Allowed || d.States[0].Remaining != 0 || reset < tt.least || reset > tt.most {
			t.Errorf("%+v: got Allowed %v and %+v after all of a fresh bucket, want a Reset of %v to %v",
				tt.limit, d.Allowed, d.States[0], tt.least, tt.most)
		}
		d = take(t, store, ratelimit.Charge{Policy: p, Bucket: bucket, Cost: tt.cost})
		passed := serverTime(t, client).Sub(before)
		if d.Wait > tt.most || d.Wait < tt.least-passed {
			t.Errorf("%+v: got Allowed %v and a wait of %v for as much again %v later, want up to %v",
				tt.limit, d.Allowed, d.Wait, passed, tt.most)
		}
	}
}

// A value that is not a number counts as a full bucket.
func TestForeignValue(t *testing.T) {
	client, prefix, store := connected(t)
	one := ratelimit.Charge{Policy: policy(5, time.Hour), Bucket: t.Name(), Cost: 1}
	take(t, store, one)
	if err := client.Set(t.Context(), keyAt(prefix, one), "not a number", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if d := take(t, store, one); !d.Allowed || d.States[0].Remaining != 4 {
		t.Errorf("got %+v, want 4 of 5 left", d.States[0])
	}
}

// The script charges for all decisions that are asked for while every bucket
// has twice the units, and else for one.
func TestAmount(t *testing.T) {
	_, _, store := connected(t)
	a, b := named("a", 100), named("b", 10)
	lowered := named("a", 100)
	lowered.Limit.Burst = 30
	for _, tt := range []struct {
		name            string
		spent           int64 // of a
		second          *ratelimit.Policy
		costs           [2]int64 // of a and of second
		amount, charged int64
		left            [2]int64 // of a and b
	}{
		{"one", 0, b, [2]int64{1, 0}, 1, 1, [2]int64{99, 10}},
		{"half of it", 0, b, [2]int64{1, 0}, 50, 50, [2]int64{50, 10}},
		{"more than half of it", 0, b, [2]int64{1, 0}, 51, 1, [2]int64{99, 10}},
		{"half of what is left", 80, b, [2]int64{1, 0}, 10, 10, [2]int64{10, 10}},
		{"more than half of what is left", 80, b, [2]int64{1, 0}, 11, 1, [2]int64{19, 10}},
		{"by a cost of 5", 0, b, [2]int64{5, 0}, 10, 10, [2]int64{50, 10}},
		{"more, by a cost of 5", 0, b, [2]int64{5, 0}, 11, 1, [2]int64{95, 10}},
		{"the other bucket has enough", 0, b, [2]int64{1, 1}, 5, 5, [2]int64{95, 5}},
		{"the other bucket has too little", 0, b, [2]int64{1, 1}, 6, 1, [2]int64{99, 9}},
		{"the last one", 99, b, [2]int64{1, 1}, 4, 1, [2]int64{0, 9}},
		{"none is left", 100, b, [2]int64{1, 1}, 4, 0, [2]int64{0, 10}},
		{"an amount beyond all numbers", 0, b, [2]int64{1, 1}, 1 << 60, 1, [2]int64{99, 9}},
		// Several charges of one bucket count together. Under another limit it is
		// another bucket.
		{"twice the same", 0, a, [2]int64{1, 1}, 25, 25, [2]int64{50, 10}},
		{"more of it", 0, a, [2]int64{1, 1}, 26, 1, [2]int64{98, 10}},
		{"a lower limit", 0, lowered, [2]int64{1, 1}, 15, 15, [2]int64{85, 10}},
		{"more under a lower limit", 0, lowered, [2]int64{1, 1}, 16, 1, [2]int64{99, 10}},
	} {
		bucket := t.Name() + tt.name
		take(t, store, ratelimit.Charge{Policy: a, Bucket: bucket, Cost: tt.spent})
		charged, err := store.Charge(t.Context(), []ratelimit.Charge{
			{Policy: a, Bucket: bucket, Cost: tt.costs[0]}, {Policy: tt.second, Bucket: bucket, Cost: tt.costs[1]},
		}, tt.amount)
		d := take(t, store, ratelimit.Charge{Policy: a, Bucket: bucket}, ratelimit.Charge{Policy: b, Bucket: bucket})
		left := [2]int64{d.States[0].Remaining, d.States[1].Remaining}
		if err != nil || charged != tt.charged || left != tt.left {
			t.Errorf("%s: got %d, %v and %d left, want %d and %d", tt.name, charged, err, left, tt.charged, tt.left)
		}
	}
}

// An oracle answers the script with a reply of the test's.
type oracle struct {
	redis.Scripter
	reply []any
}

func (o oracle) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(o.reply)
	return cmd
}

// A reply that the script cannot have given is an error.
func TestReplies(t *testing.T) {
	const us = int64(time.Microsecond)
	for _, row := range []struct {
		reply   []any
		charged int64
		good    bool
	}{
		{[]any{int64(3), 5 * us, int64(0), int64(0), int64(0)}, 3, true},
		{[]any{int64(2), int64(0), int64(0), int64(0), int64(0)}, 2, true},
		{[]any{int64(1), int64(0), int64(0), int64(0), int64(0)}, 1, true},
		{[]any{int64(1), int64(0), int64(0), int64(0), int64(1)}, 0, true}, // a denial, for a microsecond
		{[]any{int64(1), int64(0), int64(1), int64(0), int64(0)}, 0, true},
		{[]any{int64(4), int64(0), int64(0), int64(0), int64(0)}, 0, false}, // more than was asked for
		{[]any{int64(0), int64(2), int64(0), int64(0), int64(0)}, 0, false},
		{[]any{int64(-1), int64(2), int64(0), int64(0), int64(0)}, 0, false},
		{[]any{int64(1), int64(0), int64(0)}, 0, false},
		{[]any{int64(1), int64(0), int64(0), int64(0), int64(0), int64(0)}, 0, false},
		{[]any{}, 0, false},
		{[]any{"OK"}, 0, false},
	} {
		store := ratelimitredis.New(oracle{reply: row.reply}, ratelimitredis.Options{Failover: patient})
		p := policy(9, time.Hour)
		two := []ratelimit.Charge{{Policy: p, Bucket: "a", Cost: 1}, {Policy: p, Bucket: "b"}}
		charged, err := store.Charge(t.Context(), two, 3)
		if charged != row.charged || (err == nil) != row.good {
			t.Errorf("%v: got %d, %v, want %d", row.reply, charged, err, row.charged)
		}
	}
}
