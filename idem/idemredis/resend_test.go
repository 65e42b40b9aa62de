package idemredis_test

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// A loser is a way to a server on which answers get lost.
type loser struct {
	addr string
	lose atomic.Int64 // how many of the next answers
	hold bool         // the connection stays, as if the answer were still to come
	lost atomic.Int64
}

func newLoser(t *testing.T, addr string, hold bool) *loser {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	l := &loser{addr: listener.Addr().String(), hold: hold}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			go func() {
				defer far.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := near.Read(buf)
					if err != nil {
						return
					}
					far.Write(buf[:n])
				}
			}()
			go l.answers(far, near)
		}
	}()
	return l
}

func (l *loser) answers(from, to net.Conn) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if l.lose.Add(-1) >= 0 {
			l.lost.Add(1)
			if l.hold {
				continue
			}
			return
		}
		to.Write(buf[:n])
	}
}

// The client sends again what was not answered, although it was done. Nobody notices.
func TestResentByTheClient(t *testing.T) {
	for _, way := range []struct {
		name string
		hold bool
	}{{"the connection breaks", false}, {"the answer is late", true}} {
		t.Run(way.name, func(t *testing.T) {
			o := options(t)
			loser := newLoser(t, o.Addr, way.hold)
			far := *o
			far.Addr, far.ReadTimeout, far.PoolSize = loser.addr, 200*time.Millisecond, 1
			client := connect(t, &far)
			store := ownStore(t, client)
			// Redis is to know the scripts: the first answer would only say that it does not.
			known := aClaim("known")
			mustBegin(t, store, known, idem.Claimed)
			for _, call := range calls(store, known) {
				call(t.Context())
			}

			// One answer, because a new connection says hello and needs one to that.
			losing := func(what string, want error, do func() error) {
				t.Helper()
				if err := client.Ping(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				before := loser.lost.Load()
				loser.lose.Store(1)
				if err := do(); !errors.Is(err, want) {
					t.Errorf("%s: got %v, want %v", what, err, want)
				}
				if n := loser.lost.Load() - before; n != 1 {
					t.Errorf("%s: %d answers were lost, want 1", what, n)
				}
			}
			c := aClaim("k")
			losing("Begin", nil, func() error {
				r, err := store.Begin(t.Context(), c)
				if err == nil && (r.State != idem.Claimed || r.Attempt != 1) {
					t.Errorf("Begin: got %v, attempt %d, want the claim as attempt 1", r.State, r.Attempt)
				}
				return err
			})
			losing("Extend", nil, func() error { return store.Extend(t.Context(), c.Key, c.Token, c.Lease) })
			losing("Settle", nil, func() error { return store.Settle(t.Context(), c.Key, c.Token, finished("answer")) })
			if r := mustBegin(t, store, again(c), idem.Done); string(r.Payload) != "answer" {
				t.Errorf("got the payload %q, want the answer", r.Payload)
			}
			c = aClaim("freed")
			mustBegin(t, store, c, idem.Claimed)
			losing("Settle as not started", idem.ErrLost, func() error {
				return store.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Outcome: idem.NotStarted})
			})
			mustBegin(t, store, again(c), idem.Claimed)
		})
	}
}

// Freeing by a token that does not hold the claim leaves the claim its time.
func TestForeignFree(t *testing.T) {
	client := connect(t, options(t))
	prefix := ownPrefix(t, client)
	store := idemredis.New(client, idemredis.Options{Prefix: prefix})
	c := aClaim("k")
	mustBegin(t, store, c, idem.Claimed)
	if err := store.Settle(t.Context(), c.Key, idem.NewToken(), idem.Settlement{Outcome: idem.NotStarted}); !errors.Is(err, idem.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if left := client.PTTL(t.Context(), keysOf(t, client, prefix)[0]).Val(); left < c.Retention-time.Minute {
		t.Errorf("the claim is remembered for %v, want %v", left, c.Retention)
	}
}

// A Begin that was given up arrives after its claim was freed. Nobody holds the claim
// then, whatever happened to the key in between.
func TestLateBegin(t *testing.T) {
	client := connect(t, options(t))
	free := idem.Settlement{Outcome: idem.NotStarted}
	for _, tt := range []struct {
		name   string
		before func(s idem.Store, late, other idem.Claim)
	}{
		{"there was nothing to free", func(s idem.Store, late, other idem.Claim) {
			s.Settle(t.Context(), late.Key, late.Token, free)
		}},
		{"it was sent twice", func(s idem.Store, late, other idem.Claim) {
			mustBegin(t, s, late, idem.Claimed)
			s.Settle(t.Context(), late.Key, late.Token, free)
		}},
		{"another held the key then", func(s idem.Store, late, other idem.Claim) {
			mustBegin(t, s, other, idem.Claimed)
			s.Settle(t.Context(), late.Key, late.Token, free)
			mustBegin(t, s, again(other), idem.InFlight)
			s.Settle(t.Context(), other.Key, other.Token, free)
		}},
		{"another held the key in between", func(s idem.Store, late, other idem.Claim) {
			s.Settle(t.Context(), late.Key, late.Token, free)
			mustBegin(t, s, other, idem.Claimed)
			s.Settle(t.Context(), other.Key, other.Token, free)
		}},
	} {
		prefix := ownPrefix(t, client)
		store := idemredis.New(client, idemredis.Options{Prefix: prefix})
		late := aClaim("k")
		tt.before(store, late, again(late))
		if r, err := store.Begin(t.Context(), late); err == nil || isRefusal(err) {
			t.Errorf("%s: got %v, %v, want an error that is no refusal", tt.name, r.State, err)
		}
		if left := client.PTTL(t.Context(), keysOf(t, client, prefix)[0]).Val(); left < 15*time.Minute || left > time.Hour {
			t.Errorf("%s: this is remembered for %v", tt.name, left)
		}
		next := again(late)
		if r := mustBegin(t, store, next, idem.Claimed); r.Attempt != 1 {
			t.Errorf("%s: the next claim is attempt %d", tt.name, r.Attempt)
		}
		if left := client.PTTL(t.Context(), keysOf(t, client, prefix)[0]).Val(); left < late.Retention-time.Minute {
			t.Errorf("%s: the next claim is remembered for %v, want %v", tt.name, left, late.Retention)
		}
	}
}
