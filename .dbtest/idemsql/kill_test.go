package idemsql_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
)

// killUnderLoad kills the server at random moments while clients create tasks,
// and returns what they were told in the end. With leases, each kill also meets a
// task that is written and not answered.
func killUnderLoad(t *testing.T, d database, o order) (created, unknown int) {
	server := startChild(t, d, o)
	clients := startCrowd(t, 8, server.post)
	db := d.open(t)
	store, bills := d.on(db, keepsAll), newBiller()
	var holding sync.WaitGroup
	for n := range kills {
		// Some of these are a server's first moments, most are in its full run.
		<-time.After(time.Duration(rand.IntN(250)) * time.Millisecond)
		if o.Mode != "joined" {
			title := fmt.Sprint("held ", n)
			holding.Go(func() {
				a, err := server.postTitle(title, title, "Hold")
				// On a slow machine the claim fails, and is undone in the background.
				for err == nil && (a.status == http.StatusServiceUnavailable || a.status == http.StatusConflict) {
					<-time.After(10 * time.Millisecond)
					a, err = server.postTitle(title, title, "Hold")
				}
				if err == nil {
					t.Errorf("%s: got %d, want no answer", title, a.status)
				}
			})
			written := "SELECT count(*) FROM tasks WHERE title = '" + title + "'"
			for deadline := time.Now().Add(patience); count(t, db, written) == 0 && !t.Failed(); {
				if <-time.After(time.Millisecond); time.Now().After(deadline) {
					t.Fatalf("%s: nothing is written after %v", title, patience)
				}
			}
		}
		server.kill()
		holding.Wait()
		server.start() // the clients wait for it, whatever has failed
		if err := bills.read(t, store); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			break
		}
	}
	for n := range kills {
		if key := fmt.Sprint("held ", n); o.Mode != "joined" {
			clients.see(key, clients.ask(key))
		}
	}
	created, unknown = clients.stop()
	t.Logf("%s, %+v: %d kills, %d keys, %d of them with an unknown outcome", d.name, o, kills, created+unknown, unknown)
	if o.Redis == "" {
		bills.mustMatch(t, d, clients.first)
	}
	return created, unknown
}

// Exactly once under kill -9: every key gets an answer, always the same, and
// there is one row for each.
func TestKillJoined(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		created, unknown := killUnderLoad(t, d, order{Mode: "joined"})
		if unknown != 0 {
			t.Errorf("%d keys ended with an unknown outcome, want none", unknown)
		}
		db := d.open(t)
		mustCount(t, db, "SELECT count(*) FROM tasks", created)
		mustCount(t, db, "SELECT count(DISTINCT title) FROM tasks", created)
	})
}

// inStores runs f for claims on each server, and for claims in Redis, whose prefix
// it gets.
func inStores(t *testing.T, f func(t *testing.T, d database, prefix string)) {
	inServers(t, func(t *testing.T, d database) { f(t, d, "") })
	beside(t, "redis", func(t *testing.T) { f(t, postgres(t), redisPrefix(t)) })
}

func redisPrefix(t *testing.T) string {
	return redistest.OwnPrefix(t, redistest.Connect(t, redistest.Options(t)))
}

// At most once with leases: a key that was cut off ends with an unknown
// outcome, and never with two rows.
func TestKillLeased(t *testing.T) {
	inStores(t, func(t *testing.T, d database, prefix string) {
		created, unknown := killUnderLoad(t, d, order{Mode: "leased", Redis: prefix})
		if unknown < kills {
			t.Errorf("%d keys ended with an unknown outcome after %d kills", unknown, kills)
		}
		db := d.open(t)
		mustCount(t, db, "SELECT count(*) - count(DISTINCT title) FROM tasks", 0)
		if rows := count(t, db, "SELECT count(*) FROM tasks"); rows < created || rows > created+unknown {
			t.Errorf("got %d rows for %d tasks created and %d unknown", rows, created, unknown)
		}
	})
}

// A second attempt where the route asked for it: every key gets an answer, and no
// attempt is made twice.
func TestKillReexecuted(t *testing.T) {
	inStores(t, func(t *testing.T, d database, prefix string) {
		created, unknown := killUnderLoad(t, d, order{Mode: "reexecuted", Redis: prefix})
		if unknown != 0 {
			t.Errorf("%d keys ended with an unknown outcome, want none", unknown)
		}
		db := d.open(t)
		mustCount(t, db, "SELECT count(DISTINCT title) FROM tasks", created)
		mustCount(t, db, "SELECT count(*) FROM (SELECT 1 FROM tasks GROUP BY title, attempt HAVING count(*) > 1) AS twice", 0)
	})
}

func TestPostgresKilled(t *testing.T) {
	t.Parallel()
	own := pgtest.NewServer(t)
	own.Start()
	inPostgres := func() database { return inPostgres(own.Schema()).migrated(t) }
	t.Run("sql", func(t *testing.T) { testServerKilled(t, own, inPostgres) })
	t.Run("pgx", func(t *testing.T) { testServerKilled(t, own, func() database { return inPostgres().native() }) })
}

func TestMariaDBKilled(t *testing.T) {
	t.Parallel()
	own := sqltest.NewMariaDB(t)
	own.Start()
	testServerKilled(t, own, func() database { return inMariaDB(own.Database()).migrated(t) })
}

// A server is killed and comes back: no request hangs, nothing is done twice,
// and service goes on by itself.
func testServerKilled(t *testing.T, own interface {
	Start()
	Kill()
}, newDatabase func() database) {
	for _, mode := range []string{"joined", "leased"} {
		t.Run(mode, func(t *testing.T) {
			d := newDatabase()
			o := options{Options: idem.Options{
				Join: mode == "joined", Wait: time.Second, Timeout: 30 * time.Second, Lease: crashLease,
			}, charged: true}
			var servers [2]*server
			for i := range servers {
				servers[i] = serverOn(t, d, d.open(t), keepsAll, o, create)
				go addUp(t.Context(), servers[i].store)
			}
			bills := newBiller()
			var n atomic.Int64
			clients := startCrowd(t, 8, func(key string) (a answer, err error) {
				within(t, "a request", func() { a = servers[n.Add(1)%2].post(key, key) })
				return a, nil
			})
			for range max(kills/5, 1) {
				<-time.After(300 * time.Millisecond)
				own.Kill()
				own.Start()
				bills.read(t, servers[0].store) // of which an error is none of the reader's
			}
			before := clients.next.Load()
			for clients.next.Load() < before+100 && !t.Failed() { // service resumes
				<-time.After(10 * time.Millisecond)
			}
			clients.leave()
			for _, s := range servers {
				if err := s.Guard().WaitSettled(t.Context()); err != nil {
					t.Error(err)
				}
			}
			created, unknown := clients.stop()
			t.Logf("%s: %d keys, %d of them with an unknown outcome", mode, created+unknown, unknown)
			db := d.open(t)
			mustCount(t, db, "SELECT count(*) - count(DISTINCT title) FROM tasks", 0)
			rows := count(t, db, "SELECT count(*) FROM tasks")
			if mode == "joined" && (unknown != 0 || rows != created) || rows < created || rows > created+unknown {
				t.Errorf("got %d rows for %d tasks created and %d unknown", rows, created, unknown)
			}
			bills.mustMatch(t, d, clients.first)
		})
	}
}

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

func newCrowd(t *testing.T, post func(key string) (answer, error)) *crowd {
	return &crowd{t: t, post: post, first: make(map[string]answer)}
}

func startCrowd(t *testing.T, clients int, post func(key string) (answer, error)) *crowd {
	c := newCrowd(t, post)
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
