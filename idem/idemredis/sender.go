package idemredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxTrips = 2        // at a time, so that one that is slow does not hold up all commands
	maxGroup = 64       // commands
	maxBytes = 16 << 10 // of a command in a group, so that none delays the others

	// stall is how long a trip takes at least before it may be on a connection
	// on which nothing answers.
	stall = 100 * time.Millisecond
)

// sender sends the commands of concurrent calls together, because a trip costs
// far more than a command. While there are fewer than maxTrips, a call makes its
// trip itself. Otherwise commands wait in groups, and each trip that ends is
// followed by one with a group. A trip that stalls counts as one that has ended,
// and its group is sent once more: Redis may see a command twice, as it does
// when the client repeats one.
type sender struct {
	client  *redis.Client
	stall   time.Duration
	mu      sync.Mutex
	trips   int           // under way, without those that have stalled
	took    time.Duration // of the last trip that was answered
	waiting []*group      // only the last one may have room
}

// trip is one of a group, or of one call by itself.
type trip struct {
	group *group
	began time.Time
	timer *time.Timer
	over  bool // does not count any more
}

// group is the calls of one pipeline.
type group struct {
	ctx       context.Context // of the first call, without its end
	deadline  time.Time       // the latest of the calls
	unbounded bool            // a call has no deadline
	calls     []*sent
	trip      *trip         // the last one, nil before the first
	sends     int           // trips until now
	flying    int           // trips that have not returned
	done      chan struct{} // closed when the calls have replies, or err
	ended     bool
	err       error
}

// sent is a call in a group.
type sent struct {
	group *group
	args  []any
	left  bool
	reply *redis.Cmd // once the group is done
}

// join begins a trip for the caller, or gives the call to a group.
func (s *sender) join(ctx context.Context, args []any) (*trip, *sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trips < maxTrips {
		return s.begin(nil), nil
	}
	n := len(s.waiting)
	if n == 0 || s.waiting[n-1].sends > 0 || len(s.waiting[n-1].calls) == maxGroup {
		s.waiting = append(s.waiting, &group{ctx: context.WithoutCancel(ctx), done: make(chan struct{})})
		n++
	}
	g := s.waiting[n-1]
	c := &sent{group: g, args: args}
	g.calls = append(g.calls, c)
	deadline, bounded := ctx.Deadline()
	g.unbounded = g.unbounded || !bounded
	if deadline.After(g.deadline) {
		g.deadline = deadline
	}
	return nil, c
}

// leave is for a call that does not wait any longer. A trip that outlasts one
// of its calls may never end: others need not wait for it.
func (s *sender) leave(c *sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.left = true
	if t := c.group.trip; t != nil {
		s.release(t)
	}
}

// begin begins a trip. Where each takes long, none stalls as soon; a group that
// is sent again and again waits longer each time. The caller has the lock, as in
// release.
func (s *sender) begin(g *group) *trip {
	t, patience := &trip{group: g, began: time.Now()}, min(max(4*s.took, s.stall), 10*s.stall)
	s.trips++
	if g != nil {
		patience <<= g.sends
		g.trip = t
		g.sends++
		g.flying++
	}
	t.timer = time.AfterFunc(patience, func() { s.stalled(t) })
	return t
}

func (s *sender) stalled(t *trip) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := t.group; g != nil && !g.ended {
		s.waiting = slices.Insert(s.waiting, 0, g)
	}
	s.release(t)
}

// end is for a trip that has returned.
func (s *sender) end(t *trip, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.timer.Stop()
	if answered {
		s.took = time.Since(t.began)
	}
	s.release(t)
}

// release lets groups follow a trip.
func (s *sender) release(t *trip) {
	if !t.over {
		t.over = true
		s.trips--
	}
	for s.trips < maxTrips && len(s.waiting) > 0 {
		g := s.waiting[0]
		s.waiting = slices.Delete(s.waiting, 0, 1)
		calls := slices.DeleteFunc(slices.Clone(g.calls), func(c *sent) bool { return c.left })
		if !g.ended && len(calls) > 0 {
			go s.send(s.begin(g), calls)
		}
	}
}

// send makes the trip of a group. It ends no earlier than any call may. The
// trip that is first answered counts, or the last one that returns.
func (s *sender) send(t *trip, calls []*sent) {
	g, cmds := t.group, make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = redis.NewCmd(g.ctx, c.args...)
	}
	err := g.exec(s.client, cmds)
	answered := !slices.ContainsFunc(cmds, func(c *redis.Cmd) bool { return c.Val() == nil && !isReply(c.Err()) })
	s.mu.Lock()
	if g.flying--; !g.ended && (answered || g.flying == 0) {
		for i, c := range calls {
			c.reply = cmds[i]
		}
		g.err, g.ended = err, true
		close(g.done)
	}
	s.mu.Unlock()
	runtime.Gosched() // who was just answered may have another command
	s.end(t, answered)
}

func (g *group) exec(client *redis.Client, cmds []*redis.Cmd) (err error) {
	defer func() {
		if p := recover(); p != nil { // a hook of the client
			err = fmt.Errorf("the client panicked: %v", p)
		}
	}()
	ctx := g.ctx
	if !g.unbounded {
		bounded, cancel := context.WithDeadline(ctx, g.deadline)
		defer cancel()
		ctx = bounded
	}
	pipeline := client.Pipeline()
	for _, cmd := range cmds {
		pipeline.Process(ctx, cmd)
	}
	_, err = pipeline.Exec(ctx)
	return err
}

// isReply reports whether an error is what Redis answered.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// do sends a command, which alone does with a trip of its own.
func (s *Store) do(ctx context.Context, alone func() (any, error), args ...any) (reply any, err error) {
	if s.sender == nil || ctx.Err() != nil || length(args) > maxBytes {
		return call(ctx, s, alone)
	}
	t, c := s.sender.join(ctx, args)
	if t != nil {
		defer func() { s.sender.end(t, err == nil || isReply(err)) }()
		return call(ctx, s, alone)
	}
	select {
	case <-c.group.done:
	case <-ctx.Done():
		s.sender.leave(c)
		return nil, fmt.Errorf("idemredis: %w", ctx.Err())
	}
	reply, err = c.reply.Result()
	switch {
	case err == nil && reply != nil, err == redis.Nil:
		return reply, err
	case err == nil: // go-redis has no connection, and says so only once
		err = cmp.Or(c.group.err, errReply)
	case isReply(err) && !outOfMemory(err):
		// Redis does not know the script, or is not ready. What then helps,
		// go-redis does for single commands only.
		return call(ctx, s, alone)
	}
	return nil, fmt.Errorf("idemredis: %w", err)
}

// length is that of the longest argument.
func length(args []any) (longest int) {
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			longest = max(longest, len(b))
		}
	}
	return longest
}
