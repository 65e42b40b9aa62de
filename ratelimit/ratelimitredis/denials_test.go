package ratelimitredis_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// A list that was denied is decided without a script; one that differs is not.
func TestDenialsAreRemembered(t *testing.T) {
	client := redistest.Start(t).Client()
	store := ratelimitredis.New(client, ratelimitredis.Options{Failover: patient})
	org, key, other, raised := named("p", 5), named("key", 100), named("other", 5), named("p", 50)
	raised.Limit.Burst = 100
	one := []ratelimit.Charge{{Policy: org, Bucket: "o", Cost: 1}, {Policy: key, Bucket: "k", Cost: 1}}
	with := func(edit func(charges []ratelimit.Charge)) []ratelimit.Charge {
		charges := slices.Clone(one)
		edit(charges)
		return charges
	}
	take(t, store, ratelimit.Charge{Policy: org, Bucket: "o", Cost: 5})
	ran := scriptCalls(t, client)
	for _, step := range []struct {
		name    string
		charges []ratelimit.Charge
		allowed bool
		scripts int
	}{
		{"denied", one, false, 1},
		{"denied again", one, false, 0},
		{"by an equal policy", with(func(l []ratelimit.Charge) { p := *org; l[0].Policy = &p }), false, 0},
		{"another cost", with(func(l []ratelimit.Charge) { l[0].Cost = 2 }), false, 1},
		{"another cost of the other take", with(func(l []ratelimit.Charge) { l[1].Cost = 2 }), false, 1},
		{"another bucket", with(func(l []ratelimit.Charge) { l[0].Bucket = "p" }), true, 1},
		{"another bucket of the other take", with(func(l []ratelimit.Charge) { l[1].Bucket = "m" }), false, 1},
		{"one take less", one[:1], false, 1},
		{"a look", with(func(l []ratelimit.Charge) { l[0].Cost = 0 }), true, 1},
		{"another policy", with(func(l []ratelimit.Charge) { l[0].Policy = other }), true, 1},
		{"a raised plan", with(func(l []ratelimit.Charge) { l[0].Policy = raised }), true, 1},
		{"denied all the while", one, false, 0},
	} {
		d := take(t, store, step.charges...)
		now := scriptCalls(t, client)
		if d.Allowed != step.allowed || now-ran != step.scripts {
			t.Errorf("%s: got Allowed %v by %d scripts, want %v by %d",
				step.name, d.Allowed, now-ran, step.allowed, step.scripts)
		}
		ran = now
	}
}

// The latest 8,192 denials are remembered, and no more.
func TestDenialsAreBounded(t *testing.T) {
	client := redistest.Start(t).Client()
	store := ratelimitredis.New(client, ratelimitredis.Options{Failover: patient})
	p := policy(10_000, time.Hour)
	deny := func(cost int64) (scripts int) {
		before := scriptCalls(t, client)
		if d := take(t, store, ratelimit.Charge{Policy: p, Bucket: "b", Cost: cost}); d.Allowed {
			t.Fatalf("cost %d was admitted", cost)
		}
		return scriptCalls(t, client) - before
	}
	take(t, store, ratelimit.Charge{Policy: p, Bucket: "b", Cost: 10_000})
	for cost := int64(1_001); cost <= 1_000+8_192; cost++ {
		take(t, store, ratelimit.Charge{Policy: p, Bucket: "b", Cost: cost})
	}
	if n := deny(1_001); n != 0 {
		t.Errorf("the first of 8,192 denials costs %d scripts, want none", n)
	}
	if n := deny(10_000); n != 1 {
		t.Errorf("a new denial costs %d scripts, want 1", n)
	}
	if n := deny(1_002); n != 1 {
		t.Errorf("the least recent of 8,193 denials costs %d scripts, want 1", n)
	}
}

// What is remembered ends to the nanosecond, and then Redis is asked again.
func TestRememberedDenialEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(0)
		store := ratelimitredis.New(server, ratelimitredis.Options{Failover: patient})
		long, short := policy(2, time.Minute), policy(2, time.Second)
		short.Name = "short"
		charges := []ratelimit.Charge{{Policy: long, Bucket: "b", Cost: 1}, {Policy: short, Bucket: "b", Cost: 1}}
		take(t, store, charges...)
		take(t, store, charges...)
		take(t, store, charges...) // denied: the first bucket takes 30 s for a unit, the second one 500 ms
		start := time.Now()
		for _, row := range []struct {
			after, wait time.Duration
			short       ratelimit.State
			trips       int
		}{
			{0, 30 * time.Second, ratelimit.State{Remaining: 0, Reset: time.Second, Wait: 500 * time.Millisecond}, 0},
			{time.Second / 2, 30*time.Second - time.Second/2, ratelimit.State{Remaining: 1, Reset: time.Second / 2}, 0},
			{time.Second - 1, 29*time.Second + 1, ratelimit.State{Remaining: 1, Reset: 1}, 0},
			{time.Second, 29 * time.Second, ratelimit.State{Remaining: 2}, 0},
			{30*time.Second - 1, 1, ratelimit.State{Remaining: 2}, 0},
			{30 * time.Second, 0, ratelimit.State{Remaining: 1, Reset: time.Second / 2}, 1},
		} {
			time.Sleep(time.Until(start.Add(row.after)))
			before := server.sent()
			d := take(t, store, charges...)
			if n := server.sent() - before; d.Wait != row.wait || d.States[1] != row.short || n != row.trips {
				t.Errorf("after %v: got a wait of %v, %+v by %d trips, want %v, %+v by %d", row.after, d.Wait, d.States[1], n,
					row.wait, row.short, row.trips)
			}
		}
	})
}
