// Package idemredis keeps claims and replies in Redis, where all servers of a
// fleet see them.
//
//	client := redis.NewUniversalClient(&redis.UniversalOptions{
//		Addrs:                 []string{"redis:6379"},
//		ContextTimeoutEnabled: true,
//	})
//	replies := idemredis.New(client, idemredis.Options{})
//	if err := replies.Check(ctx); err != nil {
//		log.Fatal(err)
//	}
//
// A new request costs two commands, its claim by a SET and its reply by a
// script. A repeat costs one, the SET, and a script more while the first one
// runs. With a *redis.Client the commands of concurrent requests share trips: at
// most two trips are under way, and the commands that come meanwhile follow in
// pipelines of up to 64. Each command is on one key, and so works on any slot of
// a Redis Cluster, and each uses the server's own clock. Redis needs nothing
// prepared, and has to be version 5 or newer; before version 7 a script takes
// the place of the SET. Where Redis has ACLs, "Access rights" in
// .github/OPERATING.md of the module has the rights of the user.
//
// A claim that is forgotten lets a request run twice. This Redis must therefore
// be set up so that:
//
//   - It evicts nothing: maxmemory-policy noeviction, which [Store.Check]
//     checks. When its memory is used up, new claims are refused
//     ([idem.ErrFull]), replies wait in the process that has them, and stored
//     replies are still served.
//   - It persists: appendonly yes. A crash loses up to two seconds of writes
//     with appendfsync everysec, and no acknowledged write with appendfsync
//     always.
//   - A failover loses little. Redis cannot promise that it loses nothing:
//     replication by Sentinel or Cluster is asynchronous, and a primary that
//     dies may lose its last claims and replies. A repeat whose claim was lost
//     then runs a second time, and one whose reply was lost has an unknown
//     outcome. A request that still runs when its claim is lost is treated as
//     one whose claim was taken over ([idem.ErrLost]). min-replicas-to-write and
//     min-replicas-max-lag limit how much is lost. Where even that is too much,
//     idemsql and idempgx join the request's own transaction.
//
// Replies lie in Redis as plain text for as long as they are retained, unless
// there is an [idem.Seal]. A key is named by its [idem.Key] in hex, and takes
// about 400 bytes beside the reply.
package idemredis

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/bounded"
)

// Options adjust a Store. The zero value is ready to use.
type Options struct {
	// Prefix begins the name of every key; "" means "sallyport:idem:". Stores
	// with one prefix know the same requests.
	Prefix string
}

// Client is what a Store needs of a client. A *redis.Client, whose commands
// share trips, a *redis.ClusterClient, whose commands do not, and a
// redis.AutoPipeliner have it.
type Client interface {
	redis.Scripter
	SetArgs(ctx context.Context, key string, value any, a redis.SetArgs) *redis.StatusCmd
}

// Store is an idem.Store in Redis. It has no goroutine beyond those of its
// calls, and nothing to close; closing the client is the caller's business.
//
// A method returns when its context is done, also if its command is in a
// pipeline, which goes on for the others. There is one exception. A client with
// ContextTimeoutEnabled and without TLS ends a call at the deadline by itself. A
// command that has a trip of its own then needs no goroutine, and its method
// returns at the deadline, even if the context is canceled before. For any other
// client, or without a deadline, such a trip costs a goroutine.
//
// A hook of the client sees a pipeline with the context of its first call, and
// a deadline that is the latest of all. Commands of more than 16 KiB, and those
// that Redis refused in a pipeline, have a trip of their own.
//
// A command that a method did not wait for may be carried out at any later
// time, which is safe, and so is that the client sends a command again which
// was not answered (MaxRetries). A Begin that arrives after its claim was freed
// is an error and claims nothing.
type Store struct {
	client Client
	prefix string
	heeds  bool        // the client returns at the deadline of a context
	old    atomic.Bool // Redis is older than version 7
	sender *sender     // nil: each command has a trip of its own

	cluster *redis.ClusterClient // nil: one server has all keys
	known   atomic.Bool          // the client knows the servers of the cluster
}

var _ idem.Eraser = (*Store)(nil)

// New returns a Store that asks client. It asks nothing yet, and panics when
// client is nil.
func New(client Client, o Options) *Store {
	if client == nil {
		panic("idemredis: New without a client")
	}
	s := &Store{client: client, prefix: cmp.Or(o.Prefix, "sallyport:idem:"), heeds: heedsDeadlines(client)}
	switch c := client.(type) {
	case *redis.Client:
		s.sender = &sender{client: c, stall: stall}
	case *redis.ClusterClient:
		s.cluster = c
	}
	return s
}

// Shard names, in the meaning of [idem.Store], the address of the primary of the
// key's slot in a Redis Cluster. It is another one after a failover.
func (s *Store) Shard(key idem.Key) string {
	if s.cluster == nil || !s.known.Load() {
		return "" // the client would ask which servers there are
	}
	primary, err := s.cluster.MasterForKey(context.Background(), s.name(key))
	if err != nil {
		return ""
	}
	return primary.Options().Addr
}

// heedsDeadlines reports whether the client returns at the deadline of a
// context. With TLS, go-redis may connect for its whole DialTimeout.
func heedsDeadlines(client Client) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled && c.Options().TLSConfig == nil
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled && c.Options().TLSConfig == nil
	}
	return false
}

// HonorsContext promises, in the meaning of [idem.Store], that no call outlasts
// its context.
func (s *Store) HonorsContext() {}

// Begin claims a key or says what is there. A plain SET does both for a new
// request and for one that has a reply. What else there may be, a script
// decides.
func (s *Store) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	if c.Lease <= 0 || c.Retention < c.Lease {
		return idem.Record{}, fmt.Errorf("idemredis: a claim with a lease of %v and a retention of %v", c.Lease, c.Retention)
	}
	if !s.old.Load() {
		key, err := s.claim(ctx, &c)
		switch {
		case errors.Is(err, redis.Nil):
			return idem.Record{State: idem.Claimed, Fingerprint: c.Fingerprint, Attempt: 1}, nil
		case err == nil:
			if r, ok := done(key); ok {
				return r, nil
			}
		case strings.Contains(err.Error(), "syntax error"):
			s.old.Store(true)
		case !outOfMemory(err): // a script still serves what there is
			return idem.Record{}, err
		}
	}
	reply, err := s.run(ctx, beginScript, c.Key,
		c.Token[:], c.Fingerprint[:], millis(c.Lease), millis(c.Retention), c.Reexecute)
	if outOfMemory(err) {
		return idem.Record{}, fmt.Errorf("%w: %w", idem.ErrFull, err)
	}
	if err != nil {
		return idem.Record{}, err
	}
	return record(reply)
}

// claim sets the key if there is none, and returns the one there is. The error
// is redis.Nil when there was none.
func (s *Store) claim(ctx context.Context, c *idem.Claim) (string, error) {
	name, key, ttl := s.name(c.Key), claimed(c), millis(c.Retention)
	reply, err := s.do(ctx, func() (any, error) {
		o := redis.SetArgs{Mode: "NX", Get: true, TTL: time.Duration(ttl) * time.Millisecond}
		return s.client.SetArgs(ctx, name, key, o).Result()
	}, "set", name, key, "px", ttl, "nx", "get")
	had, _ := reply.(string)
	return had, err
}

// Extend makes the lease end the given time from now.
func (s *Store) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	if lease <= 0 {
		return fmt.Errorf("idemredis: a lease of %v", lease)
	}
	return verdict(s.run(ctx, extendScript, key, token[:], millis(lease)))
}

// Settle ends a claim. When Redis has no memory left for the outcome, that is
// an error like any other and the claim stands; freeing a first claim always works.
func (s *Store) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, settlement idem.Settlement) error {
	outcome := "d"
	switch {
	case settlement.Outcome > idem.OutcomeFree:
		return fmt.Errorf("idemredis: a settlement with the outcome %d", settlement.Outcome)
	case settlement.Retention <= 0:
		return fmt.Errorf("idemredis: a settlement with a retention of %v", settlement.Retention)
	case settlement.Outcome == idem.OutcomeFree:
		return verdict(s.run(ctx, freeScript, key, token[:], millis(freedFor), maxFreed, millis(settlement.Retention)))
	case settlement.Outcome != idem.OutcomeDone:
		outcome, settlement.Payload = "u", nil
	}
	return verdict(s.run(ctx, settleScript, key, token[:], outcome, settlement.Payload, millis(settlement.Retention)))
}

// run runs a script on a key.
func (s *Store) run(ctx context.Context, script *redis.Script, key idem.Key, args ...any) (any, error) {
	name := s.name(key)
	return s.do(ctx, func() (any, error) {
		return script.Run(ctx, s.client, []string{name}, args...).Result()
	}, append([]any{"evalsha", script.Hash(), 1, name}, args...)...)
}

// call calls do and returns when ctx is done. Where the client does not, it
// leaves do behind in a goroutine: at most one for each connection of the
// client's pool hangs, because the client heeds ctx while it waits for a
// connection.
func call[T any](ctx context.Context, s *Store, do func() (T, error)) (T, error) {
	var r bounded.Result[T]
	if err := ctx.Err(); err != nil {
		return r.Value, err
	}
	if _, deadline := ctx.Deadline(); deadline && s.heeds {
		r.Value, r.Err = do()
	} else {
		r, _ = bounded.Call(ctx, do)
	}
	if s.cluster != nil && (r.Err == nil || isReply(r.Err)) {
		s.known.Store(true)
	}
	if r.Err != nil {
		r.Err = fmt.Errorf("idemredis: %w", r.Err)
	}
	return r.Value, r.Err
}

func (s *Store) name(key idem.Key) string { return s.prefix + hex.EncodeToString(key[:]) }

// outOfMemory tells Redis's refusal of a write, whose wording differs between
// versions, from other errors.
func outOfMemory(err error) bool {
	return err != nil && strings.Contains(err.Error(), "OOM command not allowed")
}
