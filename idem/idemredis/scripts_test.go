package idemredis_test

import (
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// A Begin that was given up arrives after its claim was freed. Nobody holds the
// claim then, whatever happened to the key in between.
func TestLateBegin(t *testing.T) {
	var client *redis.Client
	var prefix string
	for _, tt := range []struct {
		name   string
		before func(t *testing.T, s idem.Store, late, other idem.Claim)
	}{
		{"there was nothing to free", func(t *testing.T, s idem.Store, late, other idem.Claim) {
			s.Settle(t.Context(), late.Key, late.Token, freed)
		}},
		{"it was sent twice", func(t *testing.T, s idem.Store, late, other idem.Claim) {
			mustBegin(t, s, late, idem.Claimed)
			s.Settle(t.Context(), late.Key, late.Token, freed)
		}},
		{"another held the key then", func(t *testing.T, s idem.Store, late, other idem.Claim) {
			mustBegin(t, s, other, idem.Claimed)
			if err := s.Settle(t.Context(), late.Key, late.Token, freed); !errors.Is(err, idem.ErrLost) {
				t.Errorf("freeing another's claim: got %v, want ErrLost", err)
			}
			if left := ttl(t, client, prefix); left < other.Retention-time.Minute {
				t.Errorf("another's claim is remembered for %v, want %v", left, other.Retention)
			}
			mustBegin(t, s, again(other), idem.InProgress)
			s.Settle(t.Context(), other.Key, other.Token, freed)
		}},
		{"another held the key in between", func(t *testing.T, s idem.Store, late, other idem.Claim) {
			s.Settle(t.Context(), late.Key, late.Token, freed)
			mustBegin(t, s, other, idem.Claimed)
			s.Settle(t.Context(), other.Key, other.Token, freed)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client = redistest.Connect(t, redistest.Options(t))
			prefix = redistest.OwnPrefix(t, client)
			store := idemredis.New(client, idemredis.Options{Prefix: prefix})
			late := aClaim("k")
			tt.before(t, store, late, again(late))
			if r, err := store.Begin(t.Context(), late); err == nil || isRefusal(err) {
				t.Errorf("got %v, %v, want an error that is no refusal", r.State, err)
			}
			if left := ttl(t, client, prefix); left < 19*time.Minute+30*time.Second || left > 20*time.Minute+time.Second {
				t.Errorf("this is remembered for %v, want 20 minutes", left)
			}
			next := again(late)
			if r := mustBegin(t, store, next, idem.Claimed); r.Attempt != 1 {
				t.Errorf("the next claim is attempt %d", r.Attempt)
			}
			if left := ttl(t, client, prefix); left < late.Retention-time.Minute {
				t.Errorf("the next claim is remembered for %v, want %v", left, late.Retention)
			}
		})
	}
}

// Out of memory, Redis takes no claim and serves what it has. A claim that it
// has stands until its outcome is saved.
func TestOutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	store := idemredis.New(redistest.Connect(t, server.Rights("replies")), idemredis.Options{}) // frees by DEL
	done, held, unknown, lapsed := aClaim("done"), aClaim("held"), aClaim("unknown"), aClaim("lapsed")
	lapsed.Lease = time.Millisecond
	for _, c := range []idem.Claim{done, held, unknown, lapsed} {
		mustBegin(t, store, c, idem.Claimed)
	}
	mustSettle(t, store, done, finished("answer"))
	mustSettle(t, store, unknown, idem.Settlement{Retention: time.Hour})
	takeOver := func(c idem.Claim) idem.Claim { c = again(c); c.Reexecute = true; return c }
	taken := aClaim("taken")
	mustBegin(t, store, taken, idem.Claimed)
	mustSettle(t, store, taken, idem.Settlement{Retention: time.Hour})
	taken = takeOver(taken)
	mustBegin(t, store, taken, idem.Claimed)
	redistest.Eventually(t, "the lease is over", func() bool {
		r, err := store.Begin(t.Context(), again(lapsed))
		return err != nil || r.State == idem.Unknown
	})
	server.Fill()

	full := func(what string, c idem.Claim) {
		t.Helper()
		if r, err := store.Begin(t.Context(), c); !errors.Is(err, idem.ErrFull) {
			t.Errorf("Begin of %s: got %v, %v, want ErrFull", what, r.State, err)
		}
	}
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
	mustBegin(t, store, again(held), idem.InProgress)
	mustBegin(t, store, again(unknown), idem.Unknown)
	mustBegin(t, store, again(lapsed), idem.Unknown)
	heldKey := redistest.KeysOf(t, client, "*"+hex.EncodeToString(held.Key[:]))[0]
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
	mustBegin(t, store, again(held), idem.InProgress)
	noRefusal("freeing what took over", store.Settle(t.Context(), taken.Key, taken.Token, freed))
	mustBegin(t, store, again(taken), idem.InProgress)
	mustSettle(t, store, lapsed, freed)
	nothing := aClaim("nothing")
	if err := store.Settle(t.Context(), nothing.Key, nothing.Token, freed); !errors.Is(err, idem.ErrLost) {
		t.Errorf("freeing what is not there: got %v, want ErrLost", err)
	}

	server.Empty()
	mustSettle(t, store, taken, freed)
	mustSettle(t, store, held, finished("late"))
	mustBegin(t, store, again(held), idem.Done)
	mustBegin(t, store, again(lapsed), idem.Claimed)
	mustBegin(t, store, aClaim("new"), idem.Claimed)
	if r := mustBegin(t, store, takeOver(unknown), idem.Claimed); r.Attempt != 2 {
		t.Errorf("got attempt %d, want 2", r.Attempt)
	}
}

// A key that is freed again and again does not grow without end. The latest of
// its claims are known as freed, and no answer is lost in between.
func TestFreedAgainAndAgain(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	prefix := redistest.OwnPrefix(t, client)
	store := idemredis.New(client, idemredis.Options{Prefix: prefix})
	c := aClaim("k")
	var latest []idem.Claim
	for range 100 {
		c = again(c)
		latest = append(latest, c)
		mustBegin(t, store, c, idem.Claimed)
		for range 2 { // the second time there is nothing to free
			store.Settle(t.Context(), c.Key, c.Token, freed)
		}
	}
	name := redistest.KeysOf(t, client, prefix)[0]
	if n := client.StrLen(t.Context(), name).Val(); n != 77+32*16 {
		t.Errorf("a key that was freed 100 times has %d bytes, want those of 32 tokens", n)
	}
	for _, c := range latest[68:] {
		if r, err := store.Begin(t.Context(), c); err == nil || isRefusal(err) {
			t.Errorf("a Begin after its claim was freed: got %v, %v, want an error that is no refusal", r.State, err)
		}
	}
	c = again(c)
	mustBegin(t, store, c, idem.Claimed)
	mustSettle(t, store, c, finished("answer"))
	for _, client := range []idemredis.Client{client, &old{Client: client}} {
		store := idemredis.New(client, idemredis.Options{Prefix: prefix})
		if r := mustBegin(t, store, again(c), idem.Done); string(r.Payload) != "answer" {
			t.Errorf("got the payload %q, want the answer", r.Payload)
		}
		for payload, want := range map[string]error{"answer": nil, "another": idem.ErrSettled} {
			if err := store.Settle(t.Context(), c.Key, c.Token, finished(payload)); !errors.Is(err, want) {
				t.Errorf("Settle again as %q: got %v, want %v", payload, err, want)
			}
		}
	}
}
