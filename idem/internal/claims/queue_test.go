package claims_test

import (
	"context"
	"errors"
	"slices"
	"sync"
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
		{"the Join has no answer", func(*claims.Queue) { time.Sleep(time.Hour) }, timeout + 50*time.Millisecond, 0},
		{"the caller leaves", func(*claims.Queue) { time.Sleep(time.Second) }, time.Second,
			timeout - time.Second + 50*time.Millisecond},
		{"the caller leaves late", func(*claims.Queue) { time.Sleep(timeout - time.Second/10) },
			timeout - time.Second/10, timeout / 4},
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
				// The Join of the second has no answer either.
				if _, gaveUp := enter("third"); err == nil && (gaveUp == nil || errors.Is(gaveUp, idem.ErrNoTurn)) {
					t.Errorf("the third got error %v, want that the database does not answer", gaveUp)
				}
			})
		})
	}
}

// Half of a pool, but one at least, has turns, and 32 where it has no limit. Who
// gets none has waited for as long as leaves the timeout to the Join, or for half
// of a shorter time, and has left the key.
func TestTurns(t *testing.T) {
	for pool, want := range map[int]int{0: 32, 1: 1, 2: 1, 3: 1, 4: 2, 10: 5} {
		for within, waits := range map[time.Duration]time.Duration{
			time.Millisecond: time.Millisecond / 2, 90 * time.Second: 45 * time.Second, 3 * time.Minute: 2 * time.Minute,
		} {
			synctest.Test(t, func(t *testing.T) {
				q := claims.NewQueue(func() int { return pool })
				enter := func(key int) error {
					ctx, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					known, deadline, err := q.Enter(ctx, idem.Key{byte(key)}, time.Minute, noReply)
					if err == nil && (known.State != 0 || time.Until(deadline) != time.Minute) {
						t.Errorf("a turn: got %v and %v to join", known.State, time.Until(deadline))
					}
					return err
				}
				turns, begun := 0, time.Now()
				err := enter(turns)
				for ; err == nil; err = enter(turns) {
					turns++
				}
				if waited := time.Since(begun); turns != want || waited != waits || !errors.Is(err, idem.ErrNoTurn) {
					t.Errorf("a pool of %d: got %d turns and after %v %v, want %d and after %v ErrNoTurn",
						pool, turns, waited, err, want, waits)
				}
				q.Leave(idem.Key{})
				if err := enter(turns); err != nil {
					t.Errorf("the same key again: %v", err)
				}
				synctest.Wait()
			})
		}
	}
}

// Turns come in the order of the requests; one that leaves gives its place up.
func TestOrderOfTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := claims.NewQueue(func() int { return 1 })
		leaving, leave := context.WithCancel(t.Context())
		var order []byte
		var all sync.WaitGroup
		for key := range byte(8) {
			ctx := t.Context()
			if key == 3 {
				ctx = leaving
			}
			all.Go(func() {
				_, _, err := q.Enter(ctx, idem.Key{key}, time.Hour, noReply)
				switch {
				case key == 3 && errors.Is(err, context.Canceled):
				case err != nil:
					t.Errorf("number %d: %v", key, err)
				default:
					order = append(order, key)
					time.Sleep(time.Second)
					q.Leave(idem.Key{key})
				}
			})
			synctest.Wait()
		}
		leave()
		all.Wait()
		if want := []byte{0, 1, 2, 4, 5, 6, 7}; !slices.Equal(order, want) {
			t.Errorf("got the order %v, want %v", order, want)
		}
	})
}

func noReply(context.Context) (r idem.Record, err error) { return r, errors.New("no reply") }

// A request that waits looks after 50 milliseconds and then every second, until
// it has its turn or its reply.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := claims.NewQueue(func() int { return 2 })
		begun := time.Now()
		var at []time.Duration
		var looks []context.Context
		enter := func(key byte, timeout time.Duration) (idem.State, time.Duration) {
			t.Helper()
			r, deadline, err := q.Enter(t.Context(), idem.Key{key}, timeout, func(ctx context.Context) (idem.Record, error) {
				at, looks = append(at, time.Since(begun)), append(looks, ctx)
				if key == 3 {
					return idem.Record{State: idem.Done}, nil
				}
				return noReply(ctx)
			})
			if err != nil {
				t.Error(err)
			}
			return r.State, time.Until(deadline)
		}
		if known, left := enter(1, 0); known != 0 || left != claims.LongestHandler {
			t.Errorf("the first: got %v and %v to join, want %v", known, left, claims.LongestHandler)
		}
		if known, _ := enter(1, 0); known != idem.InProgress {
			t.Errorf("the same key: got %v, want in progress", known)
		}
		time.AfterFunc(2*time.Second, func() { q.Leave(idem.Key{1}) })
		if known, left := enter(2, time.Minute); known != 0 || left != time.Minute {
			t.Errorf("the second: got %v and %v to join, want a minute", known, left)
		}
		time.AfterFunc(time.Minute, func() { q.Leave(idem.Key{2}) })
		if known, _ := enter(3, time.Minute); known != idem.Done {
			t.Errorf("the third: got %v, want its reply", known)
		}
		for _, ctx := range looks {
			if ctx.Err() == nil {
				t.Error("a look goes on")
			}
		}
		time.Sleep(time.Hour)
		if want := []time.Duration{50e6, 1050e6, 2050e6}; !slices.Equal(at, want) {
			t.Errorf("got looks after %v, want %v", at, want)
		}
		if known, _ := enter(1, time.Minute); known != 0 {
			t.Errorf("a key that was left: got %v, want a turn", known)
		}
	})
}
