package idem_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// cluster is a Store on several servers.
type cluster struct {
	idem.Store
	mu    sync.Mutex
	names []string // a key's is by its first byte, if of is nil
	of    func(idem.Key) string
	hangs string // which of them does not answer
	asked map[string]int
}

func (c *cluster) Shard(key idem.Key) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != nil {
		return c.of(key)
	}
	return c.names[int(key[0])%len(c.names)]
}

func (c *cluster) Begin(ctx context.Context, claim idem.Claim) (idem.Record, error) {
	name := c.Shard(claim.Key)
	c.mu.Lock()
	c.asked[name]++
	hangs := c.hangs == name
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return idem.Record{}, ctx.Err()
	}
	return c.Store.Begin(ctx, claim)
}

func (c *cluster) set(hangs string, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangs, c.names, c.asked = hangs, names, map[string]int{}
}

func (c *cluster) askedOf(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[name]
}

// While one shard is away, its keys fail at once and those of others are served,
// however many requests it holds up. It is asked about once a second until it
// answers, or until its keys are elsewhere.
func TestShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{Store: newMemory()}
		c.set("a", "a", "b", "c")
		draining := make(chan struct{})
		r := newRunner(c, idem.Options{Draining: draining})
		var asked atomic.Int64
		ask := func(shard byte) (time.Duration, error) {
			n := fmt.Sprint(asked.Add(1))
			req := idem.Claim{Key: idem.NewKey("organization", n), Tenant: n, Fingerprint: [32]byte{1}}
			req.Key[0] = shard
			began := time.Now()
			_, e, err := r.Begin(t.Context(), req, nil)
			if e != nil {
				mustSettle(t, e, answer("created"))
			}
			return time.Since(began), err
		}
		var wg sync.WaitGroup
		for range 2000 { // more than there may be calls, or claims to undo
			wg.Go(func() {
				if _, err := ask(0); err == nil {
					t.Error("a shard that hangs has answered")
				}
			})
		}
		synctest.Wait()
		for range 10 {
			if took, err := ask(1); err != nil || took > 0 {
				t.Fatalf("beside a shard that hangs: got error %v after %v", err, took)
			}
		}
		wg.Wait()
		for range 100 {
			if took, err := ask(0); err == nil || took > 0 {
				t.Fatalf("of a shard that is away: got error %v after %v", err, took)
			}
			for _, other := range []byte{1, 2} {
				if _, err := ask(other); err != nil {
					t.Fatalf("of another shard: got %v", err)
				}
			}
		}
		if !r.Stats().Down {
			t.Error("a shard is away, and Down is not set")
		}
		c.set("a", "a", "b", "c")
		time.Sleep(30 * time.Second)
		if n := c.askedOf("a"); n < 5 || n > 30 || c.askedOf("b")+c.askedOf("c") > 0 {
			t.Errorf("got %d questions in 30s to the shard that is away, %d to others", n, c.askedOf("b")+c.askedOf("c"))
		}

		time.Sleep(2 * time.Minute)
		ask(0) // one call a second is let through
		if took, err := ask(0); err == nil || took > 0 {
			t.Errorf("of a shard that is away for minutes: got error %v after %v", err, took)
		}

		c.set("", "a", "b", "c")
		time.Sleep(10 * time.Second)
		if _, err := ask(0); err != nil || r.Stats().Down {
			t.Errorf("of a shard that answers again: got %v, Down %t", err, r.Stats().Down)
		}

		c.set("b", "a", "b", "c")
		for range 5 {
			ask(1)
		}
		if !r.Stats().Down {
			t.Error("another shard is away, and Down is not set")
		}
		c.set("b", "a", "d", "c") // a replica takes over
		if _, err := ask(1); err != nil {
			t.Errorf("of the replica that took over: got %v", err)
		}
		time.Sleep(40 * time.Second)
		if r.Stats().Down {
			t.Error("Down is set for a server that has no keys any more")
		}
		close(draining)
		r.WaitSettled(t.Context())
	})
}

// A shard that is away, and has too few keys for a probe to find one, stays away.
func TestShardOfFewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few := make(map[idem.Key]bool)
		c := &cluster{Store: newMemory(), of: func(key idem.Key) string {
			if few[key] {
				return "few"
			}
			return "most"
		}}
		c.set("few")
		draining := make(chan struct{})
		r := newRunner(c, idem.Options{Draining: draining})
		for n := range 4000 {
			few[idem.NewKey("organization", fmt.Sprint(n))] = true
		}
		var wg sync.WaitGroup
		for n := range 4000 {
			wg.Go(func() {
				name := fmt.Sprint(n)
				r.Begin(t.Context(), idem.Claim{Key: idem.NewKey("organization", name), Tenant: name}, nil)
			})
			time.Sleep(5 * time.Millisecond)
		}
		wg.Wait()
		if n := c.askedOf("few"); n > 1000 {
			t.Errorf("a shard that hangs was asked %d times for 4000 requests in 20s", n)
		}
		close(draining)
		r.WaitSettled(t.Context())
	})
}

// A shard whose claims are being undone is kept, though probes find no key of it.
func TestUndoneOfFewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := idemtest.NewFaulty(newMemory())
		f.Always(idemtest.Begin, idemtest.Fail)
		f.Always(idemtest.Settle, idemtest.Fail)
		c := &cluster{Store: f, of: func(key idem.Key) string {
			if key[1] == 0 && key[2] == 0 && key[3] == 0 {
				return "few"
			}
			return "most"
		}}
		c.set("")
		draining := make(chan struct{})
		r := newRunner(c, idem.Options{Draining: draining})
		for n := range byte(10) {
			r.Begin(t.Context(), idem.Claim{Key: idem.Key{n + 1}, Tenant: "acme"}, nil)
		}
		was := r.Undoing("few")
		time.Sleep(10 * time.Minute)
		if got := r.Undoing("few"); got != was || was == 0 {
			t.Errorf("got %d claims, want %d", got, was)
		}
		f.Always(idemtest.Settle, idemtest.None)
		close(draining)
		r.WaitSettled(t.Context())
		if got := r.Undoing("few"); got != 0 {
			t.Errorf("got %d claims at the end, want none", got)
		}
	})
}

// A panic of Shard is the store's.
func TestShardPanics(t *testing.T) {
	c := &cluster{Store: newMemory(), of: func(idem.Key) string { panic("no slots") }}
	r := newRunner(c, idem.Options{})
	if _, _, err := r.Begin(t.Context(), idem.Claim{Key: idem.NewKey("organization", "1"), Tenant: "1"}, nil); err == nil {
		t.Error("got no error")
	}
}
