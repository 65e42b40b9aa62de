package idemredis_test

import (
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// Out of memory, Redis takes no claim and serves what it has. A claim that it has
// stands until its outcome is saved.
func TestOutOfMemory(t *testing.T) {
	server := startServer(t)
	client := server.client()
	store := ownStore(t, client)
	done, held, unknown, lapsed := aClaim("done"), aClaim("held"), aClaim("unknown"), aClaim("lapsed")
	lapsed.Lease = time.Millisecond
	for _, c := range []idem.Claim{done, held, unknown, lapsed} {
		mustBegin(t, store, c, idem.Claimed)
	}
	if err := store.Settle(t.Context(), done.Key, done.Token, finished("answer")); err != nil {
		t.Fatal(err)
	}
	if err := store.Settle(t.Context(), unknown.Key, unknown.Token, idem.Settlement{Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease is over", func() bool {
		r, err := store.Begin(t.Context(), again(lapsed))
		return err != nil || r.State == idem.Unknown
	})
	server.fill()

	full := func(what string, c idem.Claim) {
		t.Helper()
		if r, err := store.Begin(t.Context(), c); !errors.Is(err, idem.ErrFull) {
			t.Errorf("Begin of %s: got %v, %v, want ErrFull", what, r.State, err)
		}
	}
	takeOver := func(c idem.Claim) idem.Claim { c = again(c); c.Reexecute = true; return c }
	noRefusal := func(what string, err error) {
		t.Helper()
		if err == nil || isRefusal(err) {
			t.Errorf("%s: got %v, want an error that is no refusal", what, err)
		}
	}
	full("a new key", aClaim("new"))
	full("an unknown outcome, to take it over", takeOver(unknown))
	full("a lapsed claim, to take it over", takeOver(lapsed))
	if r := mustBegin(t, store, again(done), idem.Done); string(r.Payload) != "answer" {
		t.Errorf("got the payload %q, want the answer", r.Payload)
	}
	mustBegin(t, store, again(held), idem.InFlight)
	mustBegin(t, store, again(unknown), idem.Unknown)
	mustBegin(t, store, again(lapsed), idem.Unknown)
	heldKey := keysOf(t, client, "*"+hex.EncodeToString(held.Key.Digest[:]))[0]
	look := func() string {
		return client.Dump(t.Context(), heldKey).Val() + client.PExpireTime(t.Context(), heldKey).Val().String()
	}
	before := look()
	// ErrFull would mean that there is no claim to take back.
	_, err := store.Begin(t.Context(), held)
	noRefusal("Begin by the token that holds the claim", err)
	noRefusal("Extend", store.Extend(t.Context(), held.Key, held.Token, held.Lease))
	noRefusal("Settle", store.Settle(t.Context(), held.Key, held.Token, finished("answer")))
	noRefusal("Settle as unknown", store.Settle(t.Context(), held.Key, held.Token, idem.Settlement{Retention: time.Hour}))
	if look() != before {
		t.Error("a call that was refused changed the claim")
	}
	mustBegin(t, store, again(held), idem.InFlight)
	if err := store.Settle(t.Context(), lapsed.Key, lapsed.Token, idem.Settlement{Outcome: idem.NotStarted}); err != nil {
		t.Errorf("freeing a claim: %v", err)
	}
	nothing := aClaim("nothing")
	if err := store.Settle(t.Context(), nothing.Key, nothing.Token, idem.Settlement{Outcome: idem.NotStarted}); !errors.Is(err, idem.ErrLost) {
		t.Errorf("freeing what is not there: got %v, want ErrLost", err)
	}

	server.empty()
	if err := store.Settle(t.Context(), held.Key, held.Token, finished("late")); err != nil {
		t.Errorf("Settle when there is room again: %v", err)
	}
	mustBegin(t, store, again(held), idem.Done)
	mustBegin(t, store, again(lapsed), idem.Claimed)
	mustBegin(t, store, aClaim("new"), idem.Claimed)
	if r := mustBegin(t, store, takeOver(unknown), idem.Claimed); r.Attempt != 2 {
		t.Errorf("got attempt %d, want 2", r.Attempt)
	}
}

func TestCheck(t *testing.T) {
	server := startServer(t)
	store := idemredis.New(server.client(), idemredis.Options{})
	for policy, good := range map[string]bool{
		"noeviction": true, "allkeys-lru": false, "allkeys-lfu": false, "allkeys-random": false,
		"volatile-lru": false, "volatile-lfu": false, "volatile-random": false, "volatile-ttl": false,
	} {
		server.set("maxmemory-policy", policy)
		if err := store.Check(t.Context()); (err == nil) != good {
			t.Errorf("%s: got %v", policy, err)
		}
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.options().Addr}})
	defer ring.Close()
	if err := idemredis.New(ring, idemredis.Options{}).Check(t.Context()); err == nil {
		t.Error("got no error for a Ring")
	}
	server.kill()
	if err := store.Check(t.Context()); err == nil {
		t.Error("got no error when Redis is away")
	}
}
