package keystore

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/internal/arguments"
	"github.com/sallyport-go/sallyport/internal/calls"
)

// Cached remembers what a [Store] says about tokens, and protects the store:
//
//   - Concurrent lookups of one token ask the store once, and a few times more
//     if it has not answered after half of Timeout.
//   - A lookup ends within Timeout, whatever the store does. It does not end
//     with its context, whose values the store gets: a client may close its side
//     of the connection and still wait for the answer.
//   - At most 64 questions about strange tokens are open at once, also when the
//     store ignores its context: anybody can make them up. A lookup beyond that
//     fails with [ErrOverloaded] at once. A token that was usable before has
//     places of its own and waits for one, so no flood stops a live key.
//   - Only answers are remembered. An error other than [ErrNotFound] is passed
//     on, and the next lookup asks again.
//   - No lookup yields what was true before a change: once [Cached.Invalidate]
//     or an issuer over the Cached has returned, or the feed has named the key,
//     the next lookup asks the store, and no answer from before is remembered.
//     For a child this holds of its ancestors too.
//
// A Cached is safe for concurrent use, and starts no goroutine that outlives
// the question it was started for.
type Cached struct {
	store         Store
	options       CacheOptions
	epoch         time.Time // the times of answers count from here
	shards        []shard
	strange       chan struct{} // semaphore for questions about tokens that were never usable
	known         chan struct{} // and about tokens that were usable before
	unknownScopes sync.Map      // that were reported
	unknownCount  atomic.Int64
	runChecked    atomic.Bool  // Run was called, or a line says that it was not
	ended         atomic.Bool  // Run has ended, and not begun again
	polled        atomic.Int64 // when the last poll of the feed that succeeded began; 0: none
	outage        outage
	changed       changes // of the keys that may have children
	observed              // calls named "lookup"
}

// observed has methods for metrics and traces, which are no part of the surface.
type observed = calls.Observed

// A shard caches the answers for its digests. This is why no answer from before
// a change, such as a revocation, is given after it:
//
//   - Lookup enters a question in loads before it asks the store.
//   - load remembers the answer if the question is still in loads, in one step.
//   - forget, after the change, removes answer and question in one step. The
//     answer to a question that was open goes to those who waited, and is not
//     remembered. A later Lookup finds neither and asks the store.
//
// The ancestors of a child change in [changes].
type shard struct {
	mu       sync.Mutex
	accepted answers          // tokens that were usable when the store was last asked
	refused  answers          // tokens that were not
	loads    map[Digest]*load // questions whose answer may be remembered

	hits, asked, failed uint64 // of CacheStats

	_ [40]byte // no shard shares a cache line with another
}

// A load is a question to the store. Its result is set before done is closed.
type load struct {
	done   chan struct{}
	began  uint64      // the number of changes, before the store was asked
	shared atomic.Bool // several wait for it
	caller *Caller
	err    error
}

// NewCached returns a Cached in front of s. It panics when s is nil, or is or
// embeds a Cached, an option is negative or the service is not valid.
func NewCached(s Store, o CacheOptions) *Cached {
	if arguments.Absent(s) {
		panic("keystore: NewCached with a nil Store")
	}
	if c, _ := cacheOf(s); c != nil {
		panic("keystore: NewCached in front of a Cached")
	}
	o = o.withDefaults()
	if err := o.Service.validate(); err != nil {
		panic(err.Error())
	}
	c := &Cached{store: s, options: o, epoch: time.Now(),
		strange: make(chan struct{}, maxLoads), known: make(chan struct{}, maxLoads)}
	c.outage.now, c.outage.probe = c.now, c.probeLater
	// One lock is enough for a small cache, and keeps its order exact.
	shards := 16
	if o.Size < 1<<10 {
		shards = 1
	}
	c.shards = make([]shard, shards)
	for i := range c.shards {
		c.shards[i] = shard{
			accepted: newAnswers((o.Size-1)/shards + 1),
			refused:  newAnswers((o.Size-1)/shards + 1),
			loads:    make(map[Digest]*load),
		}
	}
	return c
}

func (c *Cached) shard(d Digest) *shard { return &c.shards[place(d, 4)%uint64(len(c.shards))] }

// place returns some bits of a hash of a digest: Knuth's multiplicative one
// (TAOCP 6.4) of its sum, each bit of which reaches the upper ones of the product.
// The digests of a [LegacyFormat] may have most of their bytes in common.
func place(d Digest, bits int) uint64 { return sum(d) * 0x9e3779b97f4a7c15 >> (64 - bits) }

// cacheOf returns the Cached that s is or embeds, or nil. itself is false if s
// embeds it: s may then have methods in place of the Cached's.
func cacheOf(s Store) (c *Cached, itself bool) {
	if c, itself = s.(*Cached); itself { // the common case, and cheap to ask
		return c, c != nil
	}
	if holder, ok := s.(interface{ cached() *Cached }); ok {
		c = holder.cached()
	}
	return c, false
}

func (c *Cached) cached() *Cached { return c }

// Lookup implements [Store]. The key that it returns is a copy, which
// [Token.Caller] does not make, and has what a [Caller] has: the other fields are
// empty, also when the store was just asked. A key that was usable when it was
// loaded may have expired since: ask [Key.Refused].
//
// Besides [ErrNotFound] and the errors of the store it returns [ErrOverloaded],
// an error that wraps [ErrCorrupt], and one that wraps
// [context.DeadlineExceeded] after Timeout.
func (c *Cached) Lookup(ctx context.Context, d Digest) (*Key, error) {
	caller, err := c.caller(ctx, d)
	if err != nil {
		return nil, err
	}
	k := caller.key().Clone()
	k.Digest = d
	return k, nil
}

// caller is Lookup without a copy. From memory it does not allocate.
func (c *Cached) caller(ctx context.Context, d Digest) (*Caller, error) {
	now := c.now()
	s := c.shard(d)
	number := c.changed.number.Load()
	s.mu.Lock()
	for {
		if found, ok := c.find(s, d, now); ok {
			s.hits++
			s.mu.Unlock()
			if found.caller == nil {
				return nil, ErrNotFound
			}
			return found.caller, nil
		}
		l := s.loads[d]
		if l == nil {
			break
		}
		l.shared.Store(true)
		s.mu.Unlock()
		wait := calls.Wait(ctx, &c.observed, c.options.Logger)
		<-l.done
		wait.End(answered(l.err), l.err)
		if l.began >= number || !c.outdated(l.caller) { // the second one never is
			return l.caller, l.err
		}
		s.mu.Lock()
	}
	l := &load{done: make(chan struct{}), began: c.changed.number.Load()}
	s.loads[d] = l
	places := c.strange
	if s.accepted.contains(d) {
		places = c.known
	}
	s.mu.Unlock()

	c.load(ctx, s, d, l, places, now)
	return l.caller, l.err
}

// load asks the store and completes l.
func (c *Cached) load(ctx context.Context, s *shard, d Digest, l *load, places chan struct{}, began time.Duration) {
	l.err = errors.New("keystore: the lookup panicked")
	// Deferred, because a Logger may panic and others wait for done.
	defer func() {
		s.mu.Lock()
		s.asked++
		if !answered(l.err) {
			s.failed++
		}
		if s.loads[d] == l {
			delete(s.loads, d)
			c.remember(s, d, l.caller, l.err, began)
		}
		s.mu.Unlock()
		close(l.done)
		c.outage.told(l.err, began, c.options.Logger)
	}()
	c.noticeNoRun(began)
	ctx, call := calls.Begin(ctx, &c.observed, c.options.Logger, "lookup")
	l.caller, l.err = c.ask(ctx, d, places, after(began, c.options.Timeout), &l.shared)
	if errors.Is(l.err, ErrOverloaded) { // the store was not asked
		call.Observed = nil
	}
	call.End(answered(l.err), l.err)
	if of := l.caller.more().child; of != nil {
		of.loaded = l.began
	}
}

// answered reports whether the error of a question is none of the store's.
func answered(err error) bool { return err == nil || errors.Is(err, ErrNotFound) }

// find returns the answer that is remembered, if it can be used. The shard is
// locked.
func (c *Cached) find(s *shard, d Digest, now time.Duration) (answer, bool) {
	found, ok := s.accepted.get(d, now)
	if !ok {
		found, ok = s.refused.get(d, now)
	}
	return found, ok && now < found.deadline && !c.outdated(found.caller)
}

// outdated reports whether an ancestor may have changed since the question.
func (c *Cached) outdated(caller *Caller) bool {
	of := caller.more().child
	return of != nil && c.changed.since(of.loaded, of.ancestors)
}

// remember keeps the answer to a question that was asked at began. The shard is
// locked. A digest is in one of the two LRUs.
func (c *Cached) remember(s *shard, d Digest, caller *Caller, err error, began time.Duration) {
	switch {
	case err == nil && caller.Refused() == nil:
		s.refused.remove(d)
		s.accepted.add(answer{d, caller, after(began, c.options.TTL), began})
	case err == nil || errors.Is(err, ErrNotFound):
		s.accepted.remove(d)
		s.refused.add(answer{d, caller, after(began, c.options.NegativeTTL), began})
	}
}

// usable returns the caller of a token that is remembered and whose key may be
// used now, or nil.
func (c *Cached) usable(d Digest) *Caller {
	s := c.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := c.find(s, d, c.now())
	if !ok || found.caller == nil || found.caller.Refused() != nil {
		return nil
	}
	s.hits++
	return found.caller
}

// wasUsable reports whether the token was usable when the store was last asked.
func (c *Cached) wasUsable(d Digest) bool {
	s := c.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted.contains(d)
}

// Invalidate drops what is remembered of tokens, or of every token if none is
// given, for a change that was made in the store. A lookup that begins after it
// has returned asks the store.
func (c *Cached) Invalidate(tokens ...Digest) {
	if len(tokens) == 0 {
		c.invalidateAll()
	}
	for _, d := range tokens {
		s := c.shard(d)
		s.mu.Lock()
		c.changed.note(d)
		s.forget(d)
		s.mu.Unlock()
	}
}

// forget drops the answer and the open question. That a token was usable it
// keeps: the next question gets one of the places in known. The shard is locked.
func (s *shard) forget(d Digest) {
	s.accepted.outdate(d)
	s.refused.remove(d)
	delete(s.loads, d)
}

func (c *Cached) invalidateAll() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, a := range s.accepted.lru.Values() {
			s.accepted.outdate(a.digest) // from the oldest on: the order stays
		}
		s.refused.lru.Purge()
		clear(s.loads)
		s.mu.Unlock()
	}
}

// after is t + d, and saturates. t is negative in a test whose synctest bubble is
// younger than the Cached.
func after(t, d time.Duration) time.Duration { return t + min(d, math.MaxInt64-max(t, 0)) }

// now returns the time of the monotonic clock, which no correction of the wall
// clock moves.
func (c *Cached) now() time.Duration { return time.Since(c.epoch) }
