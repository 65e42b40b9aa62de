package claims

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sallyport-go/sallyport/idem"
)

const (
	// unlimitedPool is how many joined requests run at once when the pool has
	// no limit.
	unlimitedPool = 32

	// lookAfter is how long a joined request waits for its turn before it looks
	// whether its reply is there.
	lookAfter = 50 * time.Millisecond

	// lookTimeout bounds the look.
	lookTimeout = 5 * time.Second
)

// A Queue gives joined requests their turns, in the order in which they came,
// and lets one of a key in at a time.
type Queue struct {
	turns func() *semaphore.Weighted

	mu      sync.Mutex
	joining map[idem.Key]bool // keys of Joins under way and of their transactions
}

// NewQueue returns a Queue for half of a pool. The other half is left to
// everything else, for example to handlers that use the pool while they hold a
// transaction. The first Join asks for the size of the pool, which may be set
// late; 0 is no limit.
func NewQueue(pool func() int) *Queue {
	turns := sync.OnceValue(func() *semaphore.Weighted {
		size := pool()
		if size == 0 {
			size = 2 * unlimitedPool
		}
		return semaphore.NewWeighted(int64(max(size/2, 1)))
	})
	return &Queue{turns: turns, joining: make(map[idem.Key]bool)}
}

// Enter waits for a turn. It returns a record if there is one that keeps the key
// from being claimed; then, and after an error, there is no turn. Otherwise the
// caller calls Leave when the transaction has ended or there is none.
//
// The look for the record comes only after a while, and without giving the place
// up: where turns are short, a look would be one round trip more for each
// request.
func (q *Queue) Enter(
	ctx context.Context, key idem.Key, timeout time.Duration, look func(context.Context) (idem.Record, error),
) (idem.Record, error) {
	// One Join of a key at a time: a second one must not wait for a turn that
	// it gets only when the first has ended.
	if !q.reserve(key) {
		return idem.Record{State: idem.InFlight}, nil
	}
	if q.turns().TryAcquire(1) {
		return idem.Record{}, nil
	}
	known, err := q.wait(ctx, timeout, look)
	if err != nil || known.State != 0 {
		q.unreserve(key)
	}
	return known, err
}

// Leave gives the turn back, and the key.
func (q *Queue) Leave(key idem.Key) {
	q.unreserve(key)
	q.turns().Release(1)
}

func (q *Queue) wait(
	ctx context.Context, timeout time.Duration, look func(context.Context) (idem.Record, error),
) (idem.Record, error) {
	most := LongestHandler
	if deadline, ok := ctx.Deadline(); ok {
		// Half of a time that is not long enough for both: a time limit outside
		// may be shorter than the database's own.
		left := time.Until(deadline)
		most = max(left-timeout, left/2)
	}
	waiting, stop := context.WithTimeout(ctx, most)
	defer stop()
	found := make(chan idem.Record, 1)
	looks := time.AfterFunc(lookAfter, func() {
		// Not bounded by the wait: a query that is cancelled costs its
		// connection.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		defer cancel()
		if known, err := look(ctx); err == nil {
			found <- known
			stop()
		}
	})
	defer looks.Stop()
	err := q.turns().Acquire(waiting, 1)
	if err == nil {
		return idem.Record{}, nil
	}
	select {
	case known := <-found:
		return known, nil
	default:
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", idem.ErrNoTurn, err)
	}
	return idem.Record{}, fmt.Errorf("waiting for a turn: %w", err)
}

// reserve reserves a key for a Join and its transaction, if no other has it.
func (q *Queue) reserve(key idem.Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	reserved := q.joining[key]
	q.joining[key] = true
	return !reserved
}

func (q *Queue) unreserve(key idem.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.joining, key)
}
