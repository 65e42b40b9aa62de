package idemredis_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// trips is a Store whose trips a test holds, as a hook of its client.
type trips struct {
	*idemredis.Store
	t         *testing.T
	hold      atomic.Pointer[chan struct{}] // single commands wait for it
	held      atomic.Int64
	alone     atomic.Int64 // single commands
	pipeline  func()       // called before each pipeline
	mu        sync.Mutex
	pipelines []int           // how many commands each had
	ctx       context.Context // of the last one
}

func newTrips(t *testing.T, client *redis.Client) *trips {
	s := &trips{Store: ownStore(t, client), t: t, pipeline: func() {}}
	s.SetStall(time.Hour) // a trip that the test holds is none that stalls
	client.AddHook(hook{single: s.command, pipelined: s.piped})
	return s
}

func (s *trips) command(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if cmd.Name() == "hello" { // which the newest go-redis does not send in a pipeline
		return next(ctx, cmd)
	}
	s.alone.Add(1)
	if hold := s.hold.Load(); hold != nil {
		s.held.Add(1)
		<-*hold
	}
	return next(ctx, cmd)
}

func (s *trips) piped(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	// go-redis also introduces itself in a pipeline.
	if name := cmds[0].Name(); name == "set" || name == "evalsha" {
		s.mu.Lock()
		s.pipelines = append(s.pipelines, len(cmds))
		s.ctx = ctx
		s.mu.Unlock()
		s.pipeline()
	}
	return next(ctx, cmds)
}

// holding lets two trips be under way until release is called.
func (s *trips) holding() (release func()) {
	s.t.Helper()
	hold := make(chan struct{})
	redistest.Eventually(s.t, "no trip is under way", func() bool { return s.Trips() == 0 })
	s.held.Store(0)
	s.hold.Store(&hold)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { s.Begin(s.t.Context(), aClaim(rand.Text())) })
	}
	redistest.Eventually(s.t, "two trips are under way", func() bool { return s.held.Load() == 2 })
	s.hold.Store(nil)
	return sync.OnceFunc(func() {
		close(hold)
		wg.Wait()
	})
}

// together makes calls while two other trips are under way, so that they travel
// together. meanwhile is called before the two end.
func (s *trips) together(meanwhile func(), calls ...func()) {
	s.t.Helper()
	release := s.holding()
	defer release()
	var wg sync.WaitGroup
	var ended atomic.Int64
	for _, call := range calls {
		wg.Go(func() {
			defer ended.Add(1)
			call()
		})
	}
	redistest.Eventually(s.t, "the calls wait", func() bool { return s.Waiting()+int(ended.Load()) >= len(calls) })
	meanwhile()
	release()
	wg.Wait()
}

func nothing() {}

// claims are Begins of new keys, which have to be claimed.
func (s *trips) claims(n int) (all []idem.Claim, calls []func()) {
	for i := range n {
		c := aClaim(fmt.Sprint("key ", i))
		all = append(all, c)
		calls = append(calls, func() {
			if r, err := s.Begin(s.t.Context(), c); err != nil || r.State != idem.Claimed || r.Attempt != 1 {
				s.t.Errorf("Begin: got %v, attempt %d, %v, want the claim", r.State, r.Attempt, err)
			}
		})
	}
	return all, calls
}

// settles are Settles of claims, each with an answer of its own.
func (s *trips) settles(claims []idem.Claim) (calls []func()) {
	for i, c := range claims {
		calls = append(calls, func() {
			if err := s.Settle(s.t.Context(), c.Key, c.Token, finished(fmt.Sprint("answer ", i))); err != nil {
				s.t.Errorf("Settle: %v", err)
			}
		})
	}
	return calls
}

// mustBeAnswered holds that each claim has its answer.
func (s *trips) mustBeAnswered(claims []idem.Claim) (calls []func()) {
	for i, c := range claims {
		calls = append(calls, func() {
			r, err := s.Begin(s.t.Context(), again(c))
			if want := fmt.Sprint("answer ", i); err != nil || r.State != idem.Done || string(r.Payload) != want {
				s.t.Errorf("Begin: got %v %q, %v, want %q", r.State, r.Payload, err, want)
			}
		})
	}
	return calls
}

// Concurrent calls travel together, up to 64, and each gets its own reply.
func TestTogether(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	s := newTrips(t, client)
	s.Settle(t.Context(), idem.Key{}, newToken(), finished("")) // Redis is to know the script
	claims, begins := s.claims(100)
	for _, step := range []struct {
		name  string
		calls []func()
	}{{"Begin", begins}, {"Settle", s.settles(claims)}, {"Begin again", s.mustBeAnswered(claims)}} {
		s.pipelines = nil
		s.alone.Store(0)
		s.together(nothing, step.calls...)
		if n := s.alone.Load(); n != 2 {
			t.Errorf("%s: %d commands had a trip of their own, want only the two before", step.name, n)
		}
		if len(s.pipelines) != 2 || s.pipelines[0]+s.pipelines[1] != 100 || max(s.pipelines[0], s.pipelines[1]) != 64 {
			t.Errorf("%s: got pipelines of %d, want 64 and 36", step.name, s.pipelines)
		}
	}
}

// An answer of more than 16 KiB has a trip of its own, at once.
func TestLongAnswerTravelsAlone(t *testing.T) {
	s := newTrips(t, redistest.Connect(t, redistest.Options(t)))
	c, long := aClaim("key"), aClaim("long")
	mustBegin(t, s, c, idem.Claimed)
	mustBegin(t, s, long, idem.Claimed)
	settle := func(c idem.Claim, bytes int) {
		if err := s.Settle(t.Context(), c.Key, c.Token, finished(strings.Repeat("a", bytes))); err != nil {
			t.Errorf("Settle with %d bytes: %v", bytes, err)
		}
	}
	s.together(func() { settle(long, 16<<10+1) }, func() { settle(c, 16<<10) })
	if !slices.Equal(s.pipelines, []int{1}) {
		t.Errorf("got pipelines of %d commands, want one of 1", s.pipelines)
	}
}

// A call returns when its context ends, and the others that travel with it get
// their replies.
func TestDeadlinesOfCallsTogether(t *testing.T) {
	t.Parallel()
	for _, heeds := range []bool{false, true} {
		server := redistest.Start(t)
		proxy := redistest.StartProxy(t, server)
		o := redistest.Unhurried(proxy.Options())
		o.ContextTimeoutEnabled = heeds
		s := newTrips(t, redistest.Connect(t, o))
		sent := make(chan struct{})
		s.pipeline = func() {
			proxy.Answers.Close()
			close(sent)
		}
		long, cancel := context.WithTimeout(t.Context(), redistest.Patience)
		defer cancel()
		s.together(nothing, func() {
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.Begin(short, aClaim("short")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("heeds deadlines %t, the short one: got %v, want context.DeadlineExceeded", heeds, err)
			}
			<-sent
			proxy.Answers.Open()
		}, func() {
			if r, err := s.Begin(long, aClaim("long")); err != nil || r.State != idem.Claimed {
				t.Errorf("heeds deadlines %t, the long one: got %v, %v, want the claim", heeds, r.State, err)
			}
		})
	}
}

// A pipeline has the context of its first call, and the latest deadline, or none
// if a call has none.
func TestContextOfAPipeline(t *testing.T) {
	s := newTrips(t, redistest.Connect(t, redistest.Options(t)))
	type key struct{}
	first, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "first"), redistest.Patience)
	defer cancel()
	later, cancel := context.WithTimeout(t.Context(), 2*redistest.Patience)
	defer cancel()
	for _, second := range []context.Context{later, t.Context()} {
		var wg sync.WaitGroup
		s.together(func() {
			wg.Go(func() { s.Begin(second, aClaim(rand.Text())) })
			redistest.Eventually(t, "both calls wait", func() bool { return s.Waiting() == 2 })
		}, func() { s.Begin(first, aClaim(rand.Text())) })
		wg.Wait()
		got, bounded := s.ctx.Deadline()
		want, wantBounded := second.Deadline()
		if s.ctx.Value(key{}) != "first" || bounded != wantBounded || !got.Equal(want) {
			t.Errorf("got %v, want the context of the first call, until %v", s.ctx, want)
		}
	}
}

// What nobody waits for any more is not sent.
func TestLeavingBeforeTheTrip(t *testing.T) {
	s := newTrips(t, redistest.Connect(t, redistest.Options(t)))
	ctx, cancel := context.WithCancel(t.Context())
	_, claims := s.claims(1)
	s.together(func() {
		cancel()
		redistest.Eventually(t, "the call has left", func() bool { return s.Waiting() == 1 })
	}, func() {
		if _, err := s.Begin(ctx, aClaim("left")); !errors.Is(err, context.Canceled) {
			t.Errorf("Begin: got %v, want context.Canceled", err)
		}
	}, claims[0])
	if len(s.pipelines) != 1 || s.pipelines[0] != 1 {
		t.Errorf("got pipelines of %d commands, want one of 1", s.pipelines)
	}
}

// late is a context that ends when its trip has ended.
type late struct {
	context.Context
	s *trips
}

func (c late) Done() <-chan struct{} {
	redistest.Eventually(c.s.t, "the trip has ended", func() bool { return c.s.Trips() <= 0 })
	done := make(chan struct{})
	close(done)
	return done
}

// A call that leaves when its trip has just ended does not end it again.
func TestLeavingAfterTheTrip(t *testing.T) {
	s := newTrips(t, redistest.Connect(t, redistest.Options(t)))
	var calls []func()
	for i := range 40 { // each may as well take its reply
		calls = append(calls, func() { s.Begin(late{t.Context(), s}, aClaim(fmt.Sprint("key ", i))) })
	}
	s.together(nothing, calls...)
	if n := s.Trips(); n != 0 {
		t.Errorf("%d trips are under way, want none", n)
	}
}

// Trips that never end hold up nobody but those who made them.
func TestTripsThatHang(t *testing.T) {
	s := newTrips(t, redistest.Connect(t, redistest.Options(t)))
	never := make(chan struct{})
	defer close(never)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		s.pipeline = func() {
			cancel()
			<-never
		}
		leaves := func() {
			if _, err := s.Begin(ctx, aClaim("key")); !errors.Is(err, context.Canceled) {
				t.Errorf("Begin: got %v, want context.Canceled", err)
			}
		}
		s.together(nothing, leaves, leaves)
	}
	s.pipeline = nothing
	_, claims := s.claims(10)
	s.together(nothing, claims...)
}

// Scripts that Redis has lost are sent again.
func TestScriptsLostTogether(t *testing.T) {
	client := redistest.Start(t).Client()
	s := newTrips(t, client)
	claims, begins := s.claims(10)
	s.together(nothing, begins...)
	if err := client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.together(nothing, s.settles(claims)...)
	s.together(nothing, s.mustBeAnswered(claims)...)
}

// cut is a connection that breaks after some more bytes, once it is armed.
type cut struct {
	net.Conn
	armed, over *atomic.Bool
	left        int
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left == 0 && c.armed.CompareAndSwap(true, false) {
		c.left = 99 // amid a reply
	}
	if c.left == 0 || c.over.Load() {
		return c.Conn.Read(p)
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 {
		c.Close()
	}
	return n, err
}

// When a connection breaks amid the replies, the client sends all commands
// again; if it may not, those without a reply are errors. Either way all can be
// called again.
func TestBrokenAmidReplies(t *testing.T) {
	for _, retries := range []int{-1, 3} {
		var armed, over atomic.Bool
		o := wrapped(redistest.Options(t), func(c net.Conn) net.Conn { return &cut{Conn: c, armed: &armed, over: &over} })
		o.MaxRetries = retries
		s := newTrips(t, redistest.Connect(t, o))
		claims, begins := s.claims(30)
		s.together(nothing, begins...)
		s.together(nothing, s.settles(claims[:10])...)
		s.pipeline = func() { armed.Store(true) }
		var failed atomic.Int64
		var calls []func()
		count := func(err error) {
			if err != nil {
				failed.Add(1)
			}
			if isRefusal(err) {
				t.Errorf("got the refusal %v", err)
			}
		}
		for _, c := range claims[10:] {
			calls = append(calls, func() {
				r, err := s.Begin(t.Context(), c)
				if err == nil && (r.State != idem.Claimed || r.Attempt != 1) {
					t.Errorf("Begin: got %v, attempt %d, want the claim", r.State, r.Attempt)
				}
				count(err)
			})
		}
		for i, c := range claims[:10] {
			calls = append(calls, func() {
				count(s.Settle(t.Context(), c.Key, c.Token, finished(fmt.Sprint("answer ", i))))
			})
		}
		s.together(nothing, calls...)
		if n := failed.Load(); (n > 0) != (retries < 0) {
			t.Errorf("%d retries: %d calls failed", retries, n)
		}
		s.pipeline = nothing
		over.Store(true) // a second pipeline may have armed a connection and read less
		armed.Store(false)
		s.together(nothing, begins[10:]...)
		s.together(nothing, s.settles(claims)...)
		s.together(nothing, s.mustBeAnswered(claims)...)
	}
}

// Without Redis each call is an error, and no reply is made up.
func TestAwayTogether(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	s := newTrips(t, client)
	var together []func()
	for name, call := range calls(s, aClaim("key")) {
		together = append(together, func() {
			if err := call(t.Context()); err == nil || isRefusal(err) || !strings.Contains(err.Error(), "dial") {
				t.Errorf("%s: got %v, want that there is no connection", name, err)
			}
		})
	}
	s.together(server.Kill, together...)
	server.Start()
	// After as many failures as it has places, go-redis connects once a second.
	redistest.Eventually(t, "the client connects again", func() bool { return client.Ping(t.Context()).Err() == nil })
}

// A hook of the client that panics is an error of the calls, and the next ones
// go on.
func TestPanicOfTheClient(t *testing.T) {
	s := newTrips(t, redistest.Connect(t, redistest.Options(t)))
	s.pipeline = func() { panic("hook") }
	fails := func() {
		if _, err := s.Begin(t.Context(), aClaim("key")); err == nil || !strings.Contains(err.Error(), "hook") {
			t.Errorf("Begin: got %v, want the panic", err)
		}
	}
	s.together(nothing, fails, fails)
	s.pipeline = nothing
	_, claims := s.claims(10)
	s.together(nothing, claims...)
}
