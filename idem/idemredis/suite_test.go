package idemredis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// moved is a Store and where it keeps its keys, so that they can be moved into the
// past: the time of the server itself cannot be changed.
type moved struct {
	*idemredis.Store
	client redis.UniversalClient
	prefix string
}

var agingScript = redis.NewScript(`
local ms = tonumber(ARGV[1])
local left = redis.call('PTTL', KEYS[1]) - ms
redis.call('HINCRBY', KEYS[1], 'l', -ms * 1000)
if left <= 0 then
	redis.call('DEL', KEYS[1])
else
	redis.call('PEXPIRE', KEYS[1], left)
end
`)

func (m moved) age(t *testing.T, d time.Duration) {
	for _, key := range keysOf(t, m.client, m.prefix) {
		if err := agingScript.Run(t.Context(), m.client, []string{key}, d.Milliseconds()).Err(); err != nil && err != redis.Nil {
			t.Fatal(err)
		}
	}
}

func TestSuite(t *testing.T) {
	client := connect(t, options(t))
	idemtest.Suite{
		New: func(t *testing.T) idem.Store {
			prefix := ownPrefix(t, client)
			return moved{idemredis.New(client, idemredis.Options{Prefix: prefix}), client, prefix}
		},
		Advance: func(t *testing.T, s idem.Store, d time.Duration) { s.(moved).age(t, d) },
	}.Run(t)
}

// A Begin sent again begins the retention anew, and one that is shorter than what is left of it
// as well.
func TestResentBeginRetains(t *testing.T) {
	client := connect(t, options(t))
	prefix := ownPrefix(t, client)
	store := idemredis.New(client, idemredis.Options{Prefix: prefix})
	c := aClaim("k")
	for _, retention := range []time.Duration{time.Hour, 3 * time.Hour, 2 * time.Hour} {
		c.Retention = retention
		mustBegin(t, store, c, idem.Claimed)
		if left := client.PTTL(t.Context(), keysOf(t, client, prefix)[0]).Val(); left <= retention-time.Minute || left > retention+time.Second {
			t.Errorf("after a Begin with a retention of %v the key goes in %v", retention, left)
		}
	}
}

// The server's clock ends leases and retentions, and neither of them early.
func TestTimeOfTheServer(t *testing.T) {
	t.Parallel()
	store := ownStore(t, connect(t, options(t)))
	const lease, retention = 300 * time.Millisecond, 700 * time.Millisecond
	for _, extended := range []bool{false, true} {
		c := aClaim(fmt.Sprint(extended))
		c.Lease, c.Retention = lease, retention
		if extended {
			c.Lease = 100 * time.Millisecond
		}
		claimed := time.Now()
		mustBegin(t, store, c, idem.Claimed)
		leased := claimed
		if extended {
			leased = time.Now()
			if err := store.Extend(t.Context(), c.Key, c.Token, lease); err != nil {
				t.Fatal(err)
			}
		}
		for state := idem.InFlight; state != idem.Claimed; {
			<-time.After(5 * time.Millisecond)
			r, err := store.Begin(t.Context(), again(c))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case r.State == idem.InFlight && (state != idem.InFlight || r.LeaseLeft <= 0 || r.LeaseLeft > lease):
				t.Fatalf("extended %v: in flight for another %v, after %v", extended, r.LeaseLeft, state)
			case r.State == idem.Unknown && time.Since(leased) < lease:
				t.Fatalf("extended %v: a lease of %v ended after %v", extended, lease, time.Since(leased))
			case r.State == idem.Claimed && time.Since(claimed) < retention:
				t.Fatalf("extended %v: a retention of %v ended after %v", extended, retention, time.Since(claimed))
			}
			state = r.State
		}
	}
}
