package idemredis_test

import (
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
	c := aClaim("k")
	c.Lease, c.Retention = 300*time.Millisecond, 700*time.Millisecond
	began := time.Now()
	mustBegin(t, store, c, idem.Claimed)
	for state := idem.InFlight; state != idem.Claimed; {
		<-time.After(5 * time.Millisecond)
		r, err := store.Begin(t.Context(), again(c))
		if err != nil {
			t.Fatal(err)
		}
		since := time.Since(began)
		switch {
		case r.State < state && r.State != idem.Claimed || r.State == idem.Claimed && state == idem.InFlight:
			t.Fatalf("after %v: got %v after %v", since, r.State, state)
		case r.State == idem.InFlight && (r.LeaseLeft <= 0 || r.LeaseLeft > c.Lease):
			t.Errorf("after %v: %v are left of a lease of %v", since, r.LeaseLeft, c.Lease)
		case r.State == idem.Unknown && since < c.Lease:
			t.Errorf("a lease of %v ended after %v", c.Lease, since)
		case r.State == idem.Claimed && since < c.Retention:
			t.Errorf("a retention of %v ended after %v", c.Retention, since)
		}
		state = r.State
	}
}
