package claims_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

// With one connection, looks get none while there is a transaction. So a
// request that waits for its turn is held no longer than the timeout while the
// Join or the Settle of the one before it gets no answer, and as long as it
// takes while that one's handler runs.
func TestQueueOfOneConnection(t *testing.T) {
	const timeout = 2 * time.Second
	key := func(name string) idem.Key { return idem.NewKey(name) }
	noConnection := func(ctx context.Context) (r idem.Record, err error) {
		<-ctx.Done()
		return r, ctx.Err()
	}
	for _, test := range []struct {
		name   string
		first  func(q *claims.Queue) // has the turn
		waited time.Duration         // how long the second waits for it
		left   time.Duration         // that the second then has to join; 0 if it gives up
	}{
		{"the Join has no answer", func(*claims.Queue) {
			time.Sleep(time.Hour)
		}, timeout + 50*time.Millisecond, 0},
		{"the caller leaves", func(*claims.Queue) {
			time.Sleep(time.Second)
		}, time.Second, timeout - time.Second + 50*time.Millisecond},
		{"the handler runs long", func(q *claims.Queue) {
			time.Sleep(time.Second)
			q.Answered()
			time.Sleep(time.Minute)
		}, time.Minute + time.Second, timeout},
		{"the Settle is slow", func(q *claims.Queue) {
			q.Answered()
			time.Sleep(time.Minute)
			q.Asks()
			time.Sleep(time.Second)
			q.Answered()
		}, time.Minute + time.Second, timeout},
		{"the Settle has no answer", func(q *claims.Queue) {
			q.Answered()
			time.Sleep(time.Minute)
			q.Asks()
			time.Sleep(time.Hour)
		}, time.Minute + timeout, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(2 * time.Hour) // until the first and the last look have ended
				q := claims.NewQueue(func() int { return 1 })
				enter := func(name string) (deadline time.Time, err error) {
					_, deadline, err = q.Enter(t.Context(), key(name), timeout, noConnection)
					return deadline, err
				}
				// A caller that left long ago, and nobody has asked since.
				if _, err := enter("gone"); err != nil {
					t.Fatal(err)
				}
				q.Leave(key("gone"))
				time.Sleep(time.Hour)
				if _, err := enter("first"); err != nil {
					t.Fatal(err)
				}
				go func() {
					test.first(q)
					q.Leave(key("first"))
				}()
				begun := time.Now()
				deadline, err := enter("second")
				if waited := time.Since(begun); waited != test.waited {
					t.Errorf("the second waited %v, want %v", waited, test.waited)
				}
				if test.left == 0 {
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, idem.ErrNoTurn) {
						t.Errorf("got error %v, want that the database does not answer", err)
					}
				} else if left := time.Until(deadline); err != nil || left != test.left {
					t.Errorf("got error %v and %v to join, want %v", err, left, test.left)
				}
			})
		})
	}
}
