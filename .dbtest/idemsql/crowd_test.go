package idemsql_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// crowd is a number of clients, each of which creates one task after another
// and repeats its request until it has an answer. Each key is used by two of
// them.
type crowd struct {
	t    *testing.T
	post func(key string) (answer, error)

	next            atomic.Int64
	ending, stopped atomic.Bool
	wg              sync.WaitGroup

	mu    sync.Mutex
	first map[string]answer // of each key, the first answer that any client saw
}

func startCrowd(t *testing.T, clients int, post func(key string) (answer, error)) *crowd {
	c := &crowd{t: t, post: post, first: make(map[string]answer)}
	for range clients {
		c.wg.Go(func() {
			for !c.ending.Load() && !t.Failed() {
				key := "key " + strconv.FormatInt(c.next.Add(1)/2, 10)
				c.see(key, c.ask(key))
			}
		})
	}
	return c
}

// ask repeats the request until there is an answer for good.
func (c *crowd) ask(key string) answer {
	for deadline := time.Now().Add(2 * patience); ; {
		a, err := c.post(key)
		switch {
		case a.status == 201, a.status == 500 && a.replayed(), a.code() == outcomeUnknown:
			return a
		case err != nil, a.status >= 500, a.code() == "idempotency_in_progress":
			<-time.After(5 * time.Millisecond)
		default:
			c.t.Errorf("%s: got %d: %s", key, a.status, a.body)
			return a
		}
		if time.Now().After(deadline) {
			c.t.Errorf("%s: no answer within %v; the last is %d: %s, %v", key, 2*patience, a.status, a.body, err)
			return a
		}
	}
}

const outcomeUnknown = "idempotency_outcome_unknown"

// see compares what a client saw with what the first one saw. An unknown
// outcome may become known, and an answer may be unknown to others for a while:
// a process that is cut off from the database gives it to those who ask, and
// saves it when it can.
func (c *crowd) see(key string, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, ok := c.first[key]
	switch {
	case !ok, first.code() == outcomeUnknown:
		c.first[key] = a
	case a.code() == outcomeUnknown && !c.stopped.Load():
	case a.status != first.status || a.body != first.body || a.original() != first.original():
		c.t.Errorf("%s: got %d %q of request %s, want what was seen first, %d %q of request %s",
			key, a.status, a.body, a.original(), first.status, first.body, first.original())
	}
}

// original is the id of the request that the answer was made for.
func (a answer) original() string {
	if a.replayed() {
		return a.header.Get("Svc-Original-Request-Id")
	}
	return a.header.Get("Svc-Request-Id")
}

// leave ends the clients, each when it has its answer.
func (c *crowd) leave() {
	c.ending.Store(true)
	c.wg.Wait()
	c.stopped.Store(true)
}

// stop ends the clients and asks once more for every key. It returns for how
// many keys a task was created, and of how many it is not known: their outcome
// is unknown, or the handler failed and that was kept.
func (c *crowd) stop() (created, unknown int) {
	c.leave()
	for key := range c.first {
		c.see(key, c.ask(key))
		if c.first[key].status == 201 {
			created++
		} else {
			unknown++
		}
	}
	return created, unknown
}
