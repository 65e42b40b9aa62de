package idemredis_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

type (
	server = redistest.Server
	proxy  = redistest.Proxy
)

func ownStore(t testing.TB, client redis.UniversalClient) *idemredis.Store {
	return idemredis.New(client, idemredis.Options{Prefix: redistest.OwnPrefix(t, client)})
}

// newToken returns a token that no other claim has.
func newToken() (t idem.ClaimToken) {
	rand.Read(t[:])
	return t
}

// aClaim is a claim that does not lapse while a test runs.
func aClaim(key string) idem.Claim {
	return idem.Claim{
		Key: idem.NewKey("org_1", key), Token: newToken(), Fingerprint: [32]byte{1},
		Lease: time.Minute, Retention: time.Hour + 7*time.Millisecond, // no digit of a key is 0 by chance
	}
}

// again is c by another token.
func again(c idem.Claim) idem.Claim {
	c.Token = newToken()
	return c
}

func mustBegin(t testing.TB, s idem.Store, c idem.Claim, want idem.State) idem.Record {
	t.Helper()
	r, err := s.Begin(t.Context(), c)
	if err != nil || r.State != want {
		t.Fatalf("Begin: got %v, %v, want %v", r.State, err, want)
	}
	return r
}

func mustSettle(t testing.TB, s idem.Store, c idem.Claim, as idem.Settlement) {
	t.Helper()
	if err := s.Settle(t.Context(), c.Key, c.Token, as); err != nil {
		t.Fatalf("Settle: %v", err)
	}
}

// hook is one of a client: what it does with single commands and with pipelines.
// They pass where it is nil.
type hook struct {
	single    func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
	pipelined func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error
}

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if h.single == nil {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error { return h.single(ctx, cmd, next) }
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if h.pipelined == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.pipelined(ctx, cmds, next) }
}

// counted counts the single commands of a client.
func counted(client redis.UniversalClient) *atomic.Int64 {
	n := new(atomic.Int64)
	client.AddHook(hook{single: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		n.Add(1)
		return next(ctx, cmd)
	}})
	return n
}

// unsent notes the single commands of a client, and sends none.
func unsent(client redis.UniversalClient) *[]string {
	commands := new([]string)
	client.AddHook(hook{single: func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		*commands = append(*commands, cmd.String())
		return errors.New("nothing is sent")
	}})
	return commands
}

// wrapped lets the connections of a client be wrapped.
func wrapped(o *redis.Options, wrap func(net.Conn) net.Conn) *redis.Options {
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(c), nil
	}
	return o
}

// ttl returns how long the only key of a prefix is remembered.
func ttl(t *testing.T, client redis.UniversalClient, prefix string) time.Duration {
	return client.PTTL(t.Context(), redistest.KeysOf(t, client, prefix)[0]).Val()
}

var freed = idem.Settlement{Outcome: idem.OutcomeFree, Retention: time.Hour}

func finished(payload string) idem.Settlement {
	return idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte(payload), Retention: time.Hour}
}
