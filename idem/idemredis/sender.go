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

	// stall is how long no trip may begin or end before there is one more:
	// those under way may have connections on which nothing answers.
	stall = 100 * time.Millisecond
)

// sender sends the commands of concurrent calls together, because a trip costs
// far more than a command. While there are fewer than maxTrips, or they have
// stalled, a call makes its trip itself. Otherwise commands wait in groups, and
// each trip that ends is followed by one with a group.
type sender struct {
	client  *redis.Client
	stall   time.Duration
	mu      sync.Mutex
	trips   int
	moved   time.Time // when a trip last began or ended
	waiting []*group  // only the last one has room
}

// group is the commands of one pipeline.
type group struct {
	ctx       context.Context // of the first call, without its end
	deadline  time.Time       // the latest of the calls
	unbounded bool            // a call has no deadline
	cmds      []redis.Cmder
	sent      bool
	over      bool          // its trip has ended, or another may begin although it has not
	done      chan struct{} // closed when there are replies, or err
	err       error
}

// join begins a trip for the caller, or returns a group that has its command.
func (s *sender) join(ctx context.Context, args []any) (*group, *redis.Cmd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.trips < maxTrips || now.Sub(s.moved) > s.stall {
		s.trips++
		s.moved = now
		return nil, nil
	}
	n := len(s.waiting)
	if n == 0 || len(s.waiting[n-1].cmds) == maxGroup {
		s.waiting = append(s.waiting, &group{ctx: context.WithoutCancel(ctx), done: make(chan struct{})})
		n++
	}
	g, cmd := s.waiting[n-1], redis.NewCmd(ctx, args...)
	g.cmds = append(g.cmds, cmd)
	deadline, bounded := ctx.Deadline()
	g.unbounded = g.unbounded || !bounded
	if deadline.After(g.deadline) {
		g.deadline = deadline
	}
	return g, cmd
}

// leave is for a call that does not wait any longer. A trip that outlasts one
// of its calls may never end: others need not wait for it.
func (s *sender) leave(g *group, cmd *redis.Cmd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !g.sent:
		g.cmds = slices.DeleteFunc(g.cmds, func(c redis.Cmder) bool { return c == cmd })
	case !g.over:
		g.over = true
		s.end()
	}
}

// end ends a trip, for the benefit of the groups that wait. The caller has the
// lock.
func (s *sender) end() {
	s.moved = time.Now()
	if len(s.waiting) > 0 {
		go s.serve()
	} else {
		s.trips--
	}
}

// serve sends groups for as long as any wait.
func (s *sender) serve() {
	for g := s.next(nil); g != nil; g = s.next(g) {
		g.send(s.client)
	}
}

// next returns the group that follows last. Without one it ends the trip.
func (s *sender) next(last *group) *group {
	runtime.Gosched() // who was just answered may have another command
	s.mu.Lock()
	defer s.mu.Unlock()
	if last != nil {
		if last.over {
			return nil
		}
		last.over = true
	}
	s.moved = time.Now()
	if len(s.waiting) == 0 {
		s.trips--
		return nil
	}
	g := s.waiting[0]
	s.waiting = slices.Delete(s.waiting, 0, 1)
	g.sent = true
	return g
}

// send makes the trip of a group. It ends no earlier than any call may.
func (g *group) send(client *redis.Client) {
	defer close(g.done)
	defer func() {
		if p := recover(); p != nil { // a hook of the client
			g.err = fmt.Errorf("the client panicked: %v", p)
		}
	}()
	ctx := g.ctx
	if !g.unbounded {
		bounded, cancel := context.WithDeadline(ctx, g.deadline)
		defer cancel()
		ctx = bounded
	}
	pipeline := client.Pipeline()
	for _, cmd := range g.cmds {
		pipeline.Process(ctx, cmd)
	}
	_, g.err = pipeline.Exec(ctx)
}

// do sends a command, which alone does with a trip of its own.
func (s *Store) do(ctx context.Context, alone func() (any, error), args ...any) (any, error) {
	if s.sender == nil || ctx.Err() != nil || length(args) > maxBytes {
		return call(ctx, s, alone)
	}
	g, cmd := s.sender.join(ctx, args)
	if g == nil {
		defer func() {
			s.sender.mu.Lock()
			defer s.sender.mu.Unlock()
			s.sender.end()
		}()
		return call(ctx, s, alone)
	}
	select {
	case <-g.done:
	case <-ctx.Done():
		s.sender.leave(g, cmd)
		return nil, fmt.Errorf("idemredis: %w", ctx.Err())
	}
	reply, err := cmd.Result()
	var refusal redis.Error
	switch {
	case err == nil && reply != nil, err == redis.Nil:
		return reply, err
	case err == nil: // go-redis has no connection, and says so only once
		err = cmp.Or(g.err, errReply)
	case errors.As(err, &refusal) && !outOfMemory(err):
		// Redis does not know the script, or is not ready. What then helps,
		// go-redis does for single commands only.
		return call(ctx, s, alone)
	}
	return nil, fmt.Errorf("idemredis: %w", err)
}

// length is that of the longest argument.
func length(args []any) int {
	longest := 0
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			longest = max(longest, len(b))
		}
	}
	return longest
}
