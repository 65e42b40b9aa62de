package ratelimitredis_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// Each step says how many scripts Redis ran for it.
func TestDenialsAreRemembered(t *testing.T) {
	client := startServer(t).client()
	store := ratelimitredis.New(client, ratelimitredis.Options{Failover: patient})
	org, key := policy(5, time.Hour), policy(100, time.Hour)
	key.Name = "key"
	raised := policy(50, time.Hour)
	raised.Limit.Burst = 100
	one := []ratelimit.Take{{Policy: org, Bucket: "o", Cost: 1}, {Policy: key, Bucket: "k", Cost: 1}}
	with := func(edit func(takes []ratelimit.Take)) []ratelimit.Take {
		takes := slices.Clone(one)
		edit(takes)
		return takes
	}
	take(t, store, ratelimit.Take{Policy: org, Bucket: "o", Cost: 5})
	ran := scriptCalls(t, client)
	for _, step := range []struct {
		name    string
		takes   []ratelimit.Take
		allowed bool
		scripts int
	}{
		{"denied", one, false, 1},
		{"denied again", one, false, 0},
		{"by a policy of the same name and limit", with(func(l []ratelimit.Take) { p := *org; l[0].Policy = &p }), false, 0},
		{"another cost", with(func(l []ratelimit.Take) { l[0].Cost = 2 }), false, 1},
		{"another cost of the other take", with(func(l []ratelimit.Take) { l[1].Cost = 2 }), false, 1},
		{"another bucket", with(func(l []ratelimit.Take) { l[0].Bucket = "p" }), true, 1},
		{"another bucket of the other take", with(func(l []ratelimit.Take) { l[1].Bucket = "m" }), false, 1},
		{"one take less", one[:1], false, 1},
		{"a look", with(func(l []ratelimit.Take) { l[0].Cost = 0 }), true, 1},
		{"another policy", with(func(l []ratelimit.Take) { l[0].Policy = &ratelimit.Policy{Name: "other", Limit: org.Limit} }), true, 1},
		{"a raised plan", with(func(l []ratelimit.Take) { l[0].Policy = raised }), true, 1},
		{"denied all the while", one, false, 0},
	} {
		d := take(t, store, step.takes...)
		now := scriptCalls(t, client)
		if d.Allowed != step.allowed || now-ran != step.scripts {
			t.Errorf("%s: got Allowed %v by %d scripts, want %v by %d", step.name, d.Allowed, now-ran, step.allowed, step.scripts)
		}
		ran = now
	}
}

// What is remembered ages as what lies in Redis does.
func TestRememberedDenialAges(t *testing.T) {
	client := connect(t, options(t))
	store := patientStore(t, client)
	long, short := policy(2, time.Minute), policy(2, 100*time.Millisecond)
	short.Name = "short"
	takes := []ratelimit.Take{{Policy: long, Bucket: "b", Cost: 1}, {Policy: short, Bucket: "b", Cost: 1}}
	take(t, store, ratelimit.Take{Policy: long, Bucket: "b", Cost: 2})
	take(t, store, ratelimit.Take{Policy: short, Bucket: "b", Cost: 2})
	first := take(t, store, takes...)
	if first.Allowed || first.Index != 0 {
		t.Fatalf("got %+v, want to be denied by the first take", first)
	}
	<-time.After(first.States[1].Reset + 2*time.Millisecond)
	second := take(t, store, takes...)
	asked := take(t, store.Counters(), takes...)
	switch {
	case second.Allowed || second.Index != 0 || second.Wait() >= first.Wait() || second.Wait() < asked.Wait():
		t.Errorf("the wait was %v and is remembered as %v, when it is %v", first.Wait(), second.Wait(), asked.Wait())
	case second.States[0].Reset < asked.States[0].Reset || second.States[0].Reset >= first.States[0].Reset:
		t.Errorf("Reset was %v and is remembered as %v, when it is %v", first.States[0].Reset, second.States[0].Reset, asked.States[0].Reset)
	case second.States[1] != ratelimit.State{Remaining: 2}:
		t.Errorf("a bucket that is full again is remembered as %+v", second.States[1])
	}
}

// Who waits as long as it was told is admitted, by whichever process told it.
func TestRememberedWaitIsHonest(t *testing.T) {
	client := connect(t, options(t))
	store := patientStore(t, client)
	one := ratelimit.Take{Policy: policy(20, time.Second), Bucket: "b", Cost: 1}
	take(t, store, ratelimit.Take{Policy: one.Policy, Bucket: "b", Cost: 20})
	for range 10 {
		d := take(t, store, one)
		if d.Allowed {
			t.Fatal("admitted early")
		}
		<-time.After(d.Wait() / 2)
		if d = take(t, store, one); !d.Allowed {
			<-time.After(d.Wait())
			if d := take(t, store, one); !d.Allowed {
				t.Fatalf("denied for another %v after the wait", d.Wait())
			}
		}
		// On a machine that is late more than one unit came back.
		if left := take(t, store, ratelimit.Take{Policy: one.Policy, Bucket: "b"}).States[0].Remaining; left > 0 {
			take(t, store, ratelimit.Take{Policy: one.Policy, Bucket: "b", Cost: left})
		}
	}
}
