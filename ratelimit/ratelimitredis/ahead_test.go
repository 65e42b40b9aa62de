package ratelimitredis_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// horizon is what the documentation recommends.
const horizon = 100 * time.Millisecond

func aheadOn(client redis.Scripter) *ratelimitredis.Store {
	return ratelimitredis.New(client, ratelimitredis.Options{Ahead: horizon, Failover: patient})
}

// ahead calls f in a bubble, with a Store on a server that is no way off and a
// charge of a bucket in which no unit comes back.
func ahead(t *testing.T, f func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := newFake(0)
		f(t, server, aheadOn(server), ratelimit.Charge{Policy: slow("p"), Bucket: "b", Cost: 1})
	})
}

// left reads a bucket.
func left(t *testing.T, store ratelimit.Store, c ratelimit.Charge) int64 {
	t.Helper()
	c.Cost = 0
	return take(t, store, c).States[0].Remaining
}

// warmUp takes a decision a millisecond.
func warmUp(t *testing.T, decisions int, store ratelimit.Store, charges ...ratelimit.Charge) {
	t.Helper()
	for range decisions {
		take(t, store, charges...)
		time.Sleep(time.Millisecond)
	}
}

// 1,000 requests a second of one organization under 5,000 a second cost at most
// one trip for twenty of them.
func TestAheadSavesTrips(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	even := func(int) time.Duration { return time.Millisecond }
	atRandom := func(int) time.Duration { return time.Duration(random.ExpFloat64() * 1e6) }
	inTens := func(i int) time.Duration { return time.Duration(i%10/9) * 10 * time.Millisecond }
	for _, tt := range []struct {
		name     string
		gap      func(i int) time.Duration
		distance time.Duration
	}{
		{"evenly", even, 200 * time.Microsecond},
		{"evenly, 1 ms away", even, time.Millisecond},
		{"at random", atRandom, 200 * time.Microsecond},
		{"at random, 1 ms away", atRandom, time.Millisecond},
		{"in tens", inTens, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newFake(tt.distance)
			store := aheadOn(server)
			one := []ratelimit.Charge{{Policy: policy(5000, time.Second), Bucket: "org_1", Cost: 1}}
			const requests = 10_000
			for i := range requests {
				time.Sleep(tt.gap(i))
				go func() {
					if d, err := store.Take(context.Background(), one); err != nil || !d.Allowed {
						t.Errorf("%s: got %+v, %v, want to be admitted", tt.name, d, err)
					}
				}()
			}
			synctest.Wait()
			time.Sleep(time.Second)
			t.Logf("%s: %d trips for %d requests", tt.name, server.sent(), requests)
			if n := server.sent(); n > requests/20 {
				t.Errorf("%s: %d trips for %d requests, want at most one for 20", tt.name, n, requests)
			}
		})
	}
}

// slow has a thousand units, of which none comes back while a test runs.
func slow(name string) *ratelimit.Policy {
	return &ratelimit.Policy{Name: name, Limit: ratelimit.Limit{Count: 1, Period: time.Hour, Burst: 1000}}
}

// How many units stock leaves in hand, and how many of them are spent before
// the next trip.
const inHand, untilLow = 49, 24

// stock takes one decision a millisecond until the last one has brought units
// for the next. These lapse a horizon later.
func stock(t *testing.T, server *fake, store ratelimit.Store, charges ...ratelimit.Charge) {
	t.Helper()
	for i := range 51 {
		if i > 0 {
			time.Sleep(time.Millisecond)
		}
		take(t, store, charges...)
	}
	if n := server.sent(); n != 51 {
		t.Fatalf("the first 51 decisions took %d trips", n)
	}
}

// trips returns how many trips n decisions take.
func trips(t *testing.T, server *fake, n int, store ratelimit.Store, charges ...ratelimit.Charge) int {
	t.Helper()
	before := server.sent()
	for range n {
		take(t, store, charges...)
	}
	return server.sent() - before
}

// Units in hand are spent until a horizon after their trip began. Then they
// lapse, and are not given back.
func TestAheadLapses(t *testing.T) {
	const distance = 10 * time.Millisecond
	for _, tt := range []struct {
		distance time.Duration
		after    time.Duration // the beginning of the trip
		trips    int
	}{
		{distance, distance, 0},
		{distance, horizon - 1, 0},
		{distance, horizon, 1},
		{distance, time.Hour, 1},
		{horizon, horizon, 1}, // brings units that nobody spends
	} {
		ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
			warmUp(t, 50, store, one)
			server.distance = tt.distance
			take(t, store, one)
			server.distance = 0
			time.Sleep(tt.after - tt.distance)
			if n := trips(t, server, 1, store, one); n != tt.trips {
				t.Errorf("%v after the trip began: %d trips for the next decision, want %d", tt.after, n, tt.trips)
			}
			time.Sleep(horizon)
			// An hour later one unit has come back.
			want := int64(1000 - 51 - inHand - tt.trips + int(tt.after/time.Hour))
			if got := left(t, store, one); got != want {
				t.Errorf("%v after the trip began: %d units are left, want %d", tt.after, got, want)
			}
		})
	}
}

// What lapses is at most an eighth of what is spent and a lot, although the
// requests come in rushes that end when units were taken ahead.
func TestAheadWastesLittle(t *testing.T) {
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		one.Policy.Limit.Burst = 100_000
		const rushes, each = 300, 51
		for range rushes {
			warmUp(t, each, store, one)
			time.Sleep(2 * horizon)
		}
		lapsed := 100_000 - rushes*each - left(t, store, one)
		if lapsed < inHand || lapsed > rushes*each/8+inHand {
			t.Errorf("%d units lapsed of %d decisions, want at most an eighth", lapsed, rushes*each)
		}
	})
}

// Of nine units one may lapse. After more no units are taken until others were
// admitted in exchange, 10,000 at most, and for no more than 10,000 in advance.
func TestAheadCredit(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		decisions int
		gap       time.Duration
	}{
		{50, time.Millisecond},
		{2_000, 25 * time.Microsecond},  // of which 1,999 units lapse: far more than 10,000
		{30_000, 25 * time.Microsecond}, // which are worth 10,000
	} {
		ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
			one.Policy.Limit.Burst = 1_000_000
			admitted, remain := 0, int64(0)
			admit := func() (byTrip bool) {
				before := server.sent()
				remain = take(t, store, one).States[0].Remaining
				admitted++
				return server.sent() > before
			}
			for admitted < row.decisions {
				admit()
				time.Sleep(row.gap)
			}
			for !admit() { // until units are in hand
				time.Sleep(row.gap)
			}
			lapse := remain - left(t, store, one)
			time.Sleep(2 * horizon)
			want := min(8*lapse-min(int64(admitted), 10_000), 10_000) + 1 // the last one brings units
			var got int64
			for admit() {
				got++
				time.Sleep(row.gap)
			}
			if got != want {
				t.Errorf("after %d decisions %d units lapsed: then %d had a trip of their own, want %d", admitted-int(got)-1, lapse,
					got, want)
			}
		})
	}
}

// Denials are no decisions for which units are taken later.
func TestAheadCountsNoDenial(t *testing.T) {
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		p := policy(20_000, time.Second)
		p.Limit.Burst = 1000
		one.Policy = p
		rest := one
		rest.Cost = 1000
		take(t, store, rest)
		for range 10 {
			if d := take(t, store.Counters(), one); d.Allowed {
				t.Fatalf("got %+v from a bucket that is spent", d)
			}
		}
		time.Sleep(horizon/2 + 1) // until it is full again
		take(t, store, one)
		if got := left(t, store, one); got != 999 {
			t.Errorf("after ten denials and a decision %d of 1000 units are left, want 999", got)
		}
	})
}

// While a trip for units is under way no other one begins, whatever other trips
// end. It is known a half horizon later how many decisions there were, when
// they were admitted, and then units are taken.
func TestAheadOfSlowTrips(t *testing.T) {
	const ms = time.Millisecond
	charged := func(t *testing.T, server *fake, one ratelimit.Charge) int64 {
		return 1000 - left(t, ratelimitredis.New(server, ratelimitredis.Options{Failover: patient}), one)
	}
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		warmUp(t, 50, store, one)
		server.distance = 40 * ms
		go store.Take(context.Background(), []ratelimit.Charge{one})
		synctest.Wait()
		server.distance = 0
		warmUp(t, 5, store, one)
		time.Sleep(40 * ms)
		if got := charged(t, server, one); got != 50+1+inHand+5 {
			t.Errorf("%d units are charged, want those of 56 decisions and of one trip", got)
		}
	})
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		take(t, store, one)
		time.Sleep(10 * ms)
		server.distance = 60 * ms
		for range 10 { // admitted 70 ms after the first one
			go store.Take(context.Background(), []ratelimit.Charge{one})
		}
		synctest.Wait()
		server.distance = 0
		time.Sleep(91 * ms)
		take(t, store, one)
		if got := charged(t, server, one); got != 11+10 {
			t.Errorf("%d units are charged, want those of 12 decisions and nine ahead", got)
		}
	})
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		warmUp(t, 50, store, one)
		server.distance = time.Second // this trip hangs
		go store.Take(context.Background(), []ratelimit.Charge{one})
		synctest.Wait()
		server.distance = 0
		for range 99 {
			time.Sleep(ms)
			take(t, store, one)
		}
		before := charged(t, server, one)
		time.Sleep(ms) // a horizon after it began
		take(t, store, one)
		if after := charged(t, server, one); before != 50+99 || after != before+50 {
			t.Errorf("%d units are charged, and a horizon after a trip that hangs %d, want %d and 50 more", before, after, 50+99)
		}
		time.Sleep(time.Second)
	})
	for pause, want := range map[time.Duration]int64{horizon - 1: 30, horizon: 21} { // long ago is no rate
		ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
			for i := range 20 {
				if i == 10 {
					time.Sleep(horizon / 2)
				}
				take(t, store.Counters(), one) // whose trips are for no others
			}
			time.Sleep(pause)
			take(t, store, one)
			if got := charged(t, server, one); got != want {
				t.Errorf("%v after the last of 20 decisions: %d units are charged with the next one, want %d", pause, got, want)
			}
		})
	}
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		take(t, store, one) // one in half a horizon: no units for that
		time.Sleep(55 * ms)
		warmUp(t, 45, store, one)
		take(t, store, one)
		if got := charged(t, server, one); got != 1+45+45 {
			t.Errorf("%d units are charged, want those of 47 decisions and 44 ahead", got)
		}
	})
}

// Clients see units in hand as left, and never more than the burst.
func TestAheadShowsWhatIsLeft(t *testing.T) {
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		charges := []ratelimit.Charge{
			{Policy: slow("org"), Bucket: "o", Cost: 3}, {Policy: slow("key"), Bucket: "k", Cost: 1},
		}
		charges[1].Policy.Limit.Burst = 500
		for i := range int64(60) {
			d := take(t, store, charges...)
			a, b := d.States[0].Remaining, d.States[1].Remaining
			if a != 1000-3*(i+1) || b != 500-(i+1) || d.Limiting != 0 {
				t.Errorf("decision %d: %d and %d are left, limiting %d", i+1, a, b, d.Limiting)
			}
			time.Sleep(time.Millisecond)
		}
		if n := server.sent(); n != 51 {
			t.Errorf("60 decisions took %d trips, want 51", n)
		}
		charges[0].Cost, charges[1].Cost = 0, 0
		d := take(t, store, charges...)
		if a, b := d.States[0].Remaining, d.States[1].Remaining; a != 1000-3*100 || b != 500-100 {
			t.Errorf("in the server %d and %d are left, want 700 and 400", a, b)
		}
	})
	// two at a time are few enough to take ahead
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		for i := range int64(40) {
			if left := take(t, store, one).States[0].Remaining; left != 1000-(i+1) {
				t.Errorf("decision %d of 40 a second: %d are left", i+1, left)
			}
			time.Sleep(25 * time.Millisecond)
		}
		if n := server.sent(); n < 20 || n > 30 {
			t.Errorf("40 decisions, two in half a horizon, took %d trips, want one for two when that is known", n)
		}
	})
	// units that lapse during a trip are not left
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		stock(t, server, store, one)
		server.distance = horizon
		var left int64
		for server.sent() == 51 {
			left = take(t, store, one).States[0].Remaining
		}
		if left != 1000-51-inHand-1 {
			t.Errorf("got %d left, want %d", left, 1000-51-inHand-1)
		}
	})
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		one.Policy = policy(1000, time.Second)
		stock(t, server, store, one)
		time.Sleep(horizon - 1)
		if s := take(t, store, one).States[0]; s.Remaining != 1000 || s.Reset != 0 || server.sent() != 51 {
			t.Errorf("got %+v after %d trips from a bucket that is full again, want 1000 after 51", s, server.sent())
		}
	})
}

// No units are thrown away when the requests become more.
func TestAheadLosesNothing(t *testing.T) {
	t.Parallel()
	for slower := range 40 {
		synctest.Test(t, func(t *testing.T) {
			store := aheadOn(newFake(0))
			one := ratelimit.Charge{Policy: slow("p"), Bucket: "b", Cost: 1}
			one.Policy.Limit.Burst = 100_000
			for i := range 5000 {
				if d := take(t, store, one); d.States[0].Remaining != int64(100_000-i-1) {
					t.Fatalf("%d requests at the lower rate, decision %d: %d units are left", 200+slower, i+1, d.States[0].Remaining)
				}
				if i < 200+slower {
					time.Sleep(time.Millisecond)
				} else {
					time.Sleep(50 * time.Microsecond)
				}
			}
		})
	}
}

// Units belong to the list of charges, limits and costs for which they were
// taken. A look goes to the server.
func TestAheadIsForOneList(t *testing.T) {
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		org := ratelimit.Charge{Policy: slow("org"), Bucket: "o", Cost: 1}
		key := ratelimit.Charge{Policy: slow("key"), Bucket: "k", Cost: 1}
		stock(t, server, store, org, key)
		with := func(edit func(*ratelimit.Policy)) ratelimit.Charge {
			p := slow("org")
			edit(p)
			return ratelimit.Charge{Policy: p, Bucket: "o", Cost: 1}
		}
		other, dearer, look := key, org, key
		other.Bucket = "other"
		dearer.Cost = 2
		look.Cost = 0
		for _, tt := range []struct {
			name    string
			charges []ratelimit.Charge
			trips   int
		}{
			{"the same", []ratelimit.Charge{org, key}, 0},
			{"an equal policy", []ratelimit.Charge{with(func(*ratelimit.Policy) {}), key}, 0},
			{"another burst", []ratelimit.Charge{with(func(p *ratelimit.Policy) { p.Limit.Burst++ }), key}, 1},
			{"another count", []ratelimit.Charge{with(func(p *ratelimit.Policy) { p.Limit.Count++ }), key}, 1},
			{"another period", []ratelimit.Charge{with(func(p *ratelimit.Policy) { p.Limit.Period++ }), key}, 1},
			{"another policy", []ratelimit.Charge{with(func(p *ratelimit.Policy) { p.Name = "other" }), key}, 1},
			{"another key", []ratelimit.Charge{org, other}, 1},
			{"another cost", []ratelimit.Charge{dearer, key}, 1},
			{"another order", []ratelimit.Charge{key, org}, 1},
			{"one charge less", []ratelimit.Charge{org}, 1},
			{"one charge more", []ratelimit.Charge{org, key, key}, 1},
			{"one of them is a look", []ratelimit.Charge{org, look}, 1},
			{"the same again", []ratelimit.Charge{org, key}, 0},
		} {
			if n := trips(t, server, 1, store, tt.charges...); n != tt.trips {
				t.Errorf("%s: %d trips, want %d", tt.name, n, tt.trips)
			}
		}
		org.Cost, key.Cost = 0, 0
		for range 3 {
			time.Sleep(horizon / 2)
			if n := trips(t, server, 100, store, org, key); n != 100 {
				t.Errorf("100 looks took %d trips", n)
			}
		}
	})
}

// While units are in hand nobody is denied. Then the server denies, and says
// how long.
func TestAheadDenialIsOfTheServer(t *testing.T) {
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		stock(t, server, store, one)
		rest := one
		rest.Cost = 1000 - 51 - inHand
		if d := take(t, aheadOn(server), rest); !d.Allowed {
			t.Fatalf("another process got %+v for what is left", d)
		}
		for i := range inHand {
			// The one that asks for more hears of the other process.
			left := int64(inHand - i - 1)
			if i < untilLow {
				left += rest.Cost
			}
			if d := take(t, store, one); !d.Allowed || d.States[0].Remaining != left {
				t.Errorf("got %+v for unit %d of %d in hand, want %d left", d, i+1, inHand, left)
			}
		}
		for _, trips := range []int{1, 0} {
			before := server.sent()
			d := take(t, store, one)
			if d.Allowed || d.Wait > time.Hour || d.Wait < 59*time.Minute || server.sent()-before > trips {
				t.Errorf("got %+v by %d trips, want a denial for an hour by %d at most", d, server.sent()-before, trips)
			}
		}
		time.Sleep(time.Hour)
		if d := take(t, store, one); !d.Allowed {
			t.Errorf("got %+v after the wait", d)
		}
	})
}

// A denial while a trip is under way does not spoil the units that it brings.
func TestAheadDeniedMeanwhile(t *testing.T) {
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		warmUp(t, 50, store, one)
		server.distance = 20 * time.Millisecond
		go store.Take(context.Background(), []ratelimit.Charge{one})
		synctest.Wait()
		server.distance = 0
		time.Sleep(12 * time.Millisecond)
		rest := one
		rest.Cost = 1000 - 51 - inHand
		take(t, store, rest)
		if d := take(t, store, one); d.Allowed {
			t.Fatalf("got %+v from a bucket that is spent", d)
		}
		time.Sleep(12 * time.Millisecond)
		for i := range inHand + 1 {
			if d := take(t, store, one); d.Allowed != (i < inHand) {
				t.Errorf("got %+v for unit %d of %d in hand", d, i+1, inHand)
			}
		}
	})
}

// Lists that come once take no units from those that come often, and memory is
// bounded.
func TestAheadUnderAFlood(t *testing.T) {
	t.Parallel()
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		time.Sleep(time.Hour)
		stock(t, server, store, one)
		// All at one time.
		for i := range 50_000 {
			d := take(t, store, ratelimit.Charge{Policy: one.Policy, Bucket: strconv.Itoa(i), Cost: 1})
			if d.States[0].Remaining != 999 {
				t.Fatalf("list %d: got %+v, want 999 left", i, d.States[0])
			}
		}
		if n := trips(t, server, untilLow, store, one); n != 0 {
			t.Errorf("after a flood of other lists %d decisions took %d trips", untilLow, n)
		}
		// A horizon later their places are free.
		time.Sleep(horizon)
		server.trips = 0
		stock(t, server, store, ratelimit.Charge{Policy: one.Policy, Bucket: "new", Cost: 1})
		if n := trips(t, server, untilLow, store, ratelimit.Charge{Policy: one.Policy, Bucket: "new", Cost: 1}); n != 0 {
			t.Errorf("a list after the flood took %d trips for %d decisions", n, untilLow)
		}
	})
}

// Lists that share a set have a place each.
func TestAheadOfManyLists(t *testing.T) {
	t.Parallel()
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		p := slow("p")
		const lists, each = 2000, 20
		for range each {
			for i := range lists {
				take(t, store, ratelimit.Charge{Policy: p, Bucket: strconv.Itoa(i), Cost: 1})
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := server.sent(); n > lists*each*2/3 {
			t.Errorf("%d lists of %d decisions took %d trips", lists, each, n)
		}
	})
}

// Units in hand cost 1 MB of memory, and nothing where none are taken.
func TestMemoryOfUnitsInHand(t *testing.T) {
	cost := func(ahead time.Duration) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ratelimitredis.New(newFake(0), ratelimitredis.Options{Ahead: ahead, Failover: patient})
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20)
	}
	without := cost(0)
	for _, ahead := range []time.Duration{1, horizon} {
		if got := cost(ahead) - without; got < 1.1 || got > 1.25 {
			t.Errorf("an Ahead of %v costs %.2f MB, want 1.2", ahead, got)
		}
	}
}

// A decision from units in hand allocates nothing, like one of
// ratelimit.Memory.
func TestAllocationsOfUnitsInHand(t *testing.T) {
	ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
		charges := []ratelimit.Charge{
			{Policy: slow("organization"), Bucket: "o", Cost: 1},
			{Policy: slow("key"), Bucket: "k", Cost: 1},
			{Policy: slow("route"), Bucket: "r", Cost: 1},
		}
		stock(t, server, store, charges...)
		before := server.sent()
		// AllocsPerRun calls once more than it is told.
		if got := testing.AllocsPerRun(untilLow-1, func() { store.Take(context.Background(), charges) }); got != 0 {
			t.Errorf("a decision of three charges allocates %v times", got)
		}
		if n := server.sent() - before; n != 0 {
			t.Errorf("%d decisions took %d trips", untilLow, n)
		}
	})
}

// event is a decision that was admitted, at some time between these two.
type event struct{ began, ended time.Duration }

// mustHold checks that no window admits more than
// burst + floor((window+ahead)/interval).
func mustHold(t *testing.T, l ratelimit.Limit, ahead time.Duration, events []event) {
	t.Helper()
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.ended, b.ended) })
	for _, first := range events {
		n := int64(0)
		from, _ := slices.BinarySearchFunc(events, first.began,
			func(e event, began time.Duration) int { return cmp.Compare(e.ended, began) })
		for _, e := range events[from:] {
			// Both times are within the window, so the decision is.
			if e.began < first.began {
				continue
			}
			n++
			window := e.ended - first.began
			if most := l.Capacity() + int64((window+ahead+time.Microsecond)/l.Interval()); n > most {
				t.Fatalf("%d units were spent within %v, want at most %d", n, window, most)
			}
		}
	}
}

// attack takes from three Stores as from three processes, in rushes and with
// pauses, and returns what was admitted.
func attack(stores []ratelimit.Store, seed uint64, l ratelimit.Limit) (events []event) {
	const gap = 100 * time.Microsecond
	fills := l.Interval() * time.Duration(l.Burst)
	p := &ratelimit.Policy{Name: "p", Limit: l}
	start := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range stores {
		for j := range 4 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(4*i+j)))
				for time.Since(start) < 10*fills {
					for range random.IntN(150) {
						began := time.Since(start)
						d, err := stores[i].Take(context.Background(), []ratelimit.Charge{{Policy: p, Bucket: "b", Cost: 1}})
						if err == nil && d.Allowed {
							mu.Lock()
							events = append(events, event{began, time.Since(start)})
							mu.Unlock()
						}
						time.Sleep(time.Duration(random.Int64N(int64(gap))))
					}
					time.Sleep(time.Duration(random.Int64N(int64(3 * fills))))
				}
			})
		}
	}
	wg.Wait()
	return events
}

func TestAheadKeepsTheBound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			// Far more is asked for than comes back within the horizon, so a
			// unit that outlives it is one too many.
			l := ratelimit.Limit{Count: 100 + random.Int64N(400), Period: time.Second, Burst: 1 + random.Int64N(300)}
			ahead := time.Duration(2+random.IntN(20)) * time.Millisecond
			server := newFake(time.Duration(random.IntN(2000)) * time.Microsecond)
			var stores []ratelimit.Store
			for range 3 {
				stores = append(stores, ratelimitredis.New(server, ratelimitredis.Options{Ahead: ahead, Failover: patient}))
			}
			events := attack(stores, seed, l)
			for i, s := range stores {
				if n := fallbacks(s.(*ratelimitredis.Store)); n > 0 {
					t.Errorf("seed %d: process %d made %d decisions without the server", seed, i, n)
				}
			}
			mustHold(t, l, ahead, events)
		})
	}
}
