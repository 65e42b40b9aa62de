// Package idemredis keeps claims and answers in Redis, where all servers of a fleet see them.
//
//	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"redis:6379"}})
//	replies := idemredis.New(client, idemredis.Options{})
//	if err := replies.Check(ctx); err != nil {
//		log.Fatal(err)
//	}
//
// A new request costs two commands, its claim and its answer, and a repeat costs one. Each is a script on one key, which Redis
// runs in one piece and on its own clock, and which works on any slot of a Redis Cluster. Redis needs nothing prepared, and has
// to be version 5 or newer.
//
// What this Redis has to promise, since a claim that is forgotten lets a request run twice:
//
//   - It evicts nothing: maxmemory-policy noeviction, which [Store.Check] sees to. When its memory is used up, new claims are
//     refused ([idem.ErrFull]), answers wait in the process that has them, and what is stored is served on.
//   - It survives its own end: appendonly yes. With appendfsync everysec a crash forgets up to two seconds, with always nothing
//     that was acknowledged.
//   - It does not lose what it acknowledged. Replication by Sentinel or Cluster is asynchronous: a primary that dies may take
//     with it the claims and answers of its last moments. After that a repeat of a claim that was lost runs a second time, and
//     one of an answer that was lost has an unknown outcome. min-replicas-to-write and min-replicas-max-lag bound how much a
//     primary accepts that nobody else has; they do not end it. Where even that is too much, idemsql joins the request's own
//     transaction.
//
// Answers lie in Redis as plain text for as long as they are retained. A key is named by the hashes of its [idem.Key] in hex,
// and takes about 900 bytes beside the answer.
package idemredis

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
)

// Options adjust a Store. The zero value is ready to use.
type Options struct {
	// Prefix begins the name of every key; "" means "sallyport:idem:". Stores with one prefix know the same requests.
	Prefix string
}

// Store is an idem.Store in Redis. It has no goroutine beyond those of its calls, and nothing to close; the client stays its
// owner's.
//
// A method returns when its context is done, also where the client does not heed deadlines (ContextTimeoutEnabled). Its command
// may then still be carried out at any later time, which is safe, and so is that the client sends a command again which was
// not answered (MaxRetries). A Begin that arrives after its claim was freed is an error and claims nothing.
type Store struct {
	client redis.UniversalClient
	prefix string
}

var _ idem.Store = (*Store)(nil)

// New returns a Store that asks client. It asks nothing yet, and panics when client is nil.
func New(client redis.UniversalClient, o Options) *Store {
	if client == nil {
		panic("idemredis: New without a client")
	}
	if o.Prefix == "" {
		o.Prefix = "sallyport:idem:"
	}
	return &Store{client, o.Prefix}
}

// Begin claims a key or says what is there.
func (s *Store) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	if c.Lease <= 0 || c.Retention < c.Lease {
		return idem.Record{}, fmt.Errorf("idemredis: a claim with a lease of %v and a retention of %v", c.Lease, c.Retention)
	}
	reexecute := 0
	if c.Reexecute {
		reexecute = 1
	}
	reply, err := s.run(ctx, beginScript, c.Key, c.Token[:], c.Fingerprint[:], micros(c.Lease), millis(c.Retention), reexecute)
	if outOfMemory(err) {
		return idem.Record{}, fmt.Errorf("%w: %w", idem.ErrFull, err)
	}
	if err != nil {
		return idem.Record{}, err
	}
	return record(reply)
}

// Extend makes the lease end the given time from now.
func (s *Store) Extend(ctx context.Context, key idem.Key, token idem.Token, lease time.Duration) error {
	if lease <= 0 {
		return fmt.Errorf("idemredis: a lease of %v", lease)
	}
	return verdict(s.run(ctx, extendScript, key, token[:], micros(lease), millis(lease)))
}

// Settle ends a claim. When Redis has no memory left for the outcome, that is an error like any other and the claim stands;
// freeing a claim always works.
func (s *Store) Settle(ctx context.Context, key idem.Key, token idem.Token, settlement idem.Settlement) error {
	switch {
	case settlement.Outcome > idem.NotStarted:
		return fmt.Errorf("idemredis: a settlement as %v", settlement.Outcome)
	case settlement.Outcome == idem.NotStarted:
		return verdict(s.run(ctx, freeScript, key, token[:], millis(freedFor)))
	case settlement.Retention <= 0:
		return fmt.Errorf("idemredis: a settlement with a retention of %v", settlement.Retention)
	case settlement.Outcome != idem.Finished:
		settlement.Payload = nil
	}
	return verdict(s.run(ctx, settleScript, key, token[:], uint8(settlement.Outcome), settlement.Payload, millis(settlement.Retention)))
}

// run runs a script on a key. The call is left behind when ctx is done first: at most one for each connection of the client's
// pool hangs, because who waits for a connection heeds ctx.
func (s *Store) run(ctx context.Context, script *redis.Script, key idem.Key, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	done := make(chan *redis.Cmd, 1)
	go func() { done <- script.Run(ctx, s.client, []string{s.name(key)}, args...) }()
	select {
	case cmd := <-done:
		reply, err := cmd.Result()
		if err != nil {
			return nil, fmt.Errorf("idemredis: %w", err)
		}
		return reply, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Store) name(key idem.Key) string {
	return s.prefix + hex.EncodeToString(key.Partition[:]) + ":" + hex.EncodeToString(key.Digest[:])
}

func micros(d time.Duration) int64 { return max(int64(d/time.Microsecond), 1) }

// millis rounds up, and adds one: the server's expiries see whole milliseconds, and none is to be early.
func millis(d time.Duration) int64 { return int64((d-1)/time.Millisecond) + 2 }
