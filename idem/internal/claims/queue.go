package claims

import (
	"cmp"
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
	// whether its reply is there, and lookAgain how long until the next look.
	lookAfter = 50 * time.Millisecond
	lookAgain = time.Second
)

// A Queue gives joined requests their turns, in the order in which they came,
// and lets one of a key in at a time.
type Queue struct {
	turns func() turns

	mu       sync.Mutex
	joining  map[idem.Key]bool // keys of Joins under way and of their transactions
	answered time.Time         // when the database last answered a Join or a look
	asked    time.Time         // since when Joins and Settles have no answer, where only one runs at once
}

type turns struct {
	*semaphore.Weighted
	alone bool // while there is a transaction, nobody else has a connection
}

// NewQueue returns a Queue for half of a pool. The other half is left to
// everything else, for example to handlers that use the pool while they hold a
// transaction. The first Join asks for the size of the pool, which may be set
// late; 0 is no limit.
func NewQueue(pool func() int) *Queue {
	return &Queue{joining: make(map[idem.Key]bool), turns: sync.OnceValue(func() turns {
		size := pool()
		if size == 0 {
			size = 2 * unlimitedPool
		}
		return turns{semaphore.NewWeighted(int64(max(size/2, 1))), size == 1}
	})}
}

// Enter waits for a turn. It returns a record if there is one that keeps the key
// from being claimed; then, and after an error, there is no turn. Otherwise the
// caller has until the deadline to join, and calls Leave when the transaction
// has ended or there is none.
//
// The look for the record comes only after a while, and without giving the place
// up: where turns are short, a look would be one round trip more for each
// request. A look also finds out that the database hangs. A request is held no
// longer than the timeout while it has looked and nobody is answered. Where a
// transaction leaves no connection for a look, that holds only while the Join or
// the Settle of the transaction waits for its own answer: a handler may take
// longer.
func (q *Queue) Enter(
	ctx context.Context, key idem.Key, timeout time.Duration, look func(context.Context) (idem.Record, error),
) (known idem.Record, deadline time.Time, err error) {
	timeout = cmp.Or(timeout, LongestHandler)
	// One Join of a key at a time: a second one must not wait for a turn that
	// it gets only when the first has ended.
	if !q.reserve(key) {
		return idem.Record{State: idem.InProgress}, time.Time{}, nil
	}
	if q.turns().TryAcquire(1) {
		q.Asks()
		return idem.Record{}, time.Now().Add(timeout), nil
	}
	w := wait{queue: q, timeout: timeout}
	known, err = w.turn(ctx, look)
	if err != nil || known.State != 0 {
		q.unreserve(key)
		return known, time.Time{}, err
	}
	deadline = time.Now().Add(max(w.left(), timeout/4))
	q.Asks()
	return idem.Record{}, deadline, nil
}

// Leave gives the turn back, and the key.
func (q *Queue) Leave(key idem.Key) {
	q.unreserve(key)
	q.turns().Release(1)
}

// Asks notes that a Settle begins. Enter does so for a Join. One that gives up
// is followed at once by that of the next request, so it still counts as asking.
func (q *Queue) Asks() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.asked.IsZero() {
		q.asked = time.Now()
	}
}

// Answered notes that the database has answered a Join or a Settle. It is called
// before Leave.
func (q *Queue) Answered() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answered, q.asked = time.Now(), time.Time{}
}

// wait is the wait of a request for its turn.
type wait struct {
	queue   *Queue
	timeout time.Duration
	asked   time.Time // since when a look has no answer; Queue.mu guards it
}

// left returns for how long the database may still not answer.
func (w *wait) left() time.Duration {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	alone := q.turns().alone
	if w.asked.IsZero() || alone && q.asked.IsZero() {
		return w.timeout
	}
	silent := min(time.Since(w.asked), time.Since(q.answered))
	if alone {
		silent = min(silent, time.Since(q.asked))
	}
	return w.timeout - silent
}

func (w *wait) turn(ctx context.Context, look func(context.Context) (idem.Record, error)) (idem.Record, error) {
	most := LongestHandler
	if deadline, ok := ctx.Deadline(); ok {
		// Half of a time that is not long enough for both: a time limit outside
		// may be shorter than the database's own.
		left := time.Until(deadline)
		most = max(left-w.timeout, left/2)
	}
	waiting, stop := context.WithTimeout(ctx, most)
	defer stop()
	type answer struct {
		record idem.Record
		err    error
	}
	found := make(chan answer, 1)
	time.AfterFunc(lookAfter, func() {
		// Not bounded by the wait: a query that is cancelled costs its
		// connection.
		for waiting.Err() == nil {
			known, answered, err := w.look(context.WithoutCancel(ctx), look)
			if err == nil || !answered && w.left() <= 0 {
				found <- answer{known, err}
				stop()
			}
			if answered {
				select {
				case <-waiting.Done():
				case <-time.After(lookAgain):
				}
			}
		}
	})
	err := w.queue.turns().Acquire(waiting, 1)
	if err == nil {
		return idem.Record{}, nil
	}
	select {
	case a := <-found:
		return a.record, a.err
	default:
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", idem.ErrNoTurn, err)
	}
	return idem.Record{}, fmt.Errorf("waiting for a turn: %w", err)
}

// look looks once and reports whether the database answered.
func (w *wait) look(
	ctx context.Context, look func(context.Context) (idem.Record, error),
) (known idem.Record, answered bool, err error) {
	w.queue.mu.Lock()
	if w.asked.IsZero() {
		w.asked = time.Now()
	}
	w.queue.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, w.left())
	defer cancel()
	if known, err = look(ctx); err != nil && ctx.Err() != nil {
		return idem.Record{}, false, fmt.Errorf("the database does not answer: %w", err)
	}
	w.queue.mu.Lock()
	w.asked, w.queue.answered = time.Time{}, time.Now()
	w.queue.mu.Unlock()
	return known, true, err
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
