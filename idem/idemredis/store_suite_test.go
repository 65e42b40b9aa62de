package idemredis_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// moved is a Store and where it keeps its keys, so that they can be made older:
// the time of the server itself cannot be changed.
type moved struct {
	*idemredis.Store
	eraser *idemredis.Store
	client redis.UniversalClient
	prefix string
}

// Erase erases by the client behind client.
func (m moved) Erase(ctx context.Context, organization string) (int, error) {
	return m.eraser.Erase(ctx, organization)
}

func (m moved) age(t *testing.T, d time.Duration) {
	for _, key := range redistest.KeysOf(t, m.client, m.prefix) {
		left := m.client.PTTL(t.Context(), key).Val() - d
		if err := m.client.PExpire(t.Context(), key, max(left, 0)).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// suite runs the suite through client, with keys that begin so; admin moves the
// time.
func suite(t *testing.T, client idemredis.Client, admin redis.UniversalClient, under string) {
	idemtest.Suite{
		New: func(t *testing.T) idem.Store {
			prefix := under + redistest.OwnPrefix(t, admin)
			store := idemredis.New(client, idemredis.Options{Prefix: prefix})
			eraser := store
			if _, err := store.Erase(t.Context(), ""); err != nil {
				eraser = idemredis.New(admin, idemredis.Options{Prefix: prefix})
			}
			return moved{store, eraser, admin, prefix}
		},
		Advance: func(t *testing.T, s idem.Store, d time.Duration) { s.(moved).age(t, d) },
	}.Run(t)
}

func TestSuite(t *testing.T) {
	t.Parallel()
	client := redistest.Connect(t, redistest.Options(t))
	suite(t, client, client, "")
}

// old is a client of a Redis before version 7, whose SET has not both NX and
// GET.
type old struct {
	*redis.Client
	refused atomic.Int64
}

func (o *old) SetArgs(ctx context.Context, key string, value any, a redis.SetArgs) *redis.StatusCmd {
	cmd := redis.NewStatusCmd(ctx)
	cmd.SetErr(errors.New("ERR syntax error"))
	o.refused.Add(1)
	return cmd
}

// Before version 7 the scripts do everything.
func TestSuiteOnOldRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Connect(t, redistest.Options(t))
	suite(t, &old{Client: client}, client, "")
}

// TestRights: the operator's guide names the rights that a Store needs.
func TestRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, client := server.Client(), redistest.Connect(t, server.Rights("replies"))
	suite(t, client, admin, "sallyport:idem:")
	suite(t, &old{Client: client}, admin, "sallyport:idem:")
	if err := idemredis.New(client, idemredis.Options{}).Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if refused := server.Refusals(); len(refused) > 0 {
		t.Errorf("Redis refused %q", refused)
	}
}

// That Redis is old is found out once.
func TestOldRedisIsRemembered(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	before := &old{Client: client}
	store := idemredis.New(before, idemredis.Options{Prefix: redistest.OwnPrefix(t, client)})
	for range 3 {
		mustBegin(t, store, aClaim(rand.Text()), idem.Claimed)
	}
	if n := before.refused.Load(); n != 1 {
		t.Errorf("the SET was sent %d times, want once", n)
	}
}

// The server's clock ends leases and retentions, and neither of them early.
func TestTimeOfTheServer(t *testing.T) {
	t.Parallel()
	store := ownStore(t, redistest.Connect(t, redistest.Options(t)))
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
			err := store.Extend(t.Context(), c.Key, c.Token, lease)
			if err == idem.ErrLost && time.Since(claimed) >= retention {
				t.Log("the machine stopped for longer than the retention")
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for state := idem.InProgress; state != idem.Claimed; {
			<-time.After(5 * time.Millisecond)
			r, err := store.Begin(t.Context(), again(c))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case r.State == idem.InProgress && (state != idem.InProgress || r.RetryAfter <= 0 || r.RetryAfter > lease):
				t.Fatalf("extended %v: in progress for another %v, after %v", extended, r.RetryAfter, state)
			case r.State == idem.Unknown && time.Since(leased) < lease:
				t.Fatalf("extended %v: a lease of %v ended after %v", extended, lease, time.Since(leased))
			case r.State == idem.Claimed && time.Since(claimed) < retention:
				t.Fatalf("extended %v: a retention of %v ended after %v", extended, retention, time.Since(claimed))
			}
			state = r.State
		}
	}
}
