//go:build unix

package idemsql_test

import (
	"database/sql"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

func init() {
	standStill = func() {
		last := time.Now()
		syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
		for now := last; now.Sub(last) < stillLease; now = time.Now() { // it may stop a moment later
			last = now
			time.Sleep(time.Millisecond)
		}
	}
}

// awaitStill waits until the process has stopped itself. It may have answered
// before only if it was slow to stop.
func (c *child) awaitStill(answers chan answer) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		var status syscall.WaitStatus
		pid, _ := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if pid > 0 && status.Stopped() {
			return
		}
		select {
		case a := <-answers:
			a.mustHave(c.t, "")
			answers <- a
		default:
		}
		if c.t.Failed() {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	c.t.Fatal("the process did not stop")
}

// A server stands still at a step of a create for longer than the lease.
// Meanwhile a repeat is told that the outcome is unknown; the client looks, finds
// nothing and creates with a new key. The first server then writes nothing, but
// for a statement that is already on its way.
func TestStoodStill(t *testing.T) {
	steps := map[string]string{ // what the repeat gets
		"begin": "", "begun": "idempotency_outcome_unknown", "handler": "idempotency_outcome_unknown",
		"extend": "idempotency_outcome_unknown", "sent": "idempotency_outcome_unknown",
		"written": "idempotency_outcome_unknown", "settle": "idempotency_outcome_unknown", "settled": "",
	}
	check := func(t *testing.T, d database, mode string, inRedis bool, told *crowd) {
		db, prefix := d.open(t), ""
		if inRedis {
			prefix = redisPrefix(t)
		}
		second := startChild(t, d, order{Mode: mode, Still: "never", Redis: prefix})
		var all sync.WaitGroup // most of the time is spent waiting, so beyond -parallel
		for step, want := range steps {
			if mode == "joined" {
				if step != "handler" && step != "written" && step != "sent" {
					continue // what a wrapped store has
				}
				want = ""
			}
			all.Go(func() {
				t.Run(step, func(t *testing.T) {
					if inRedis {
						servers.Redis.Met(t)
					}
					first := startChild(t, d, order{Mode: mode, Still: step, Redis: prefix})
					stoodStill(t, db, first, second, mode+", "+step, want, told)
				})
			})
		}
		all.Wait()
	}
	inServers(t, func(t *testing.T, d database) {
		told := newCrowd(t, nil)
		var both sync.WaitGroup
		for _, mode := range []string{"leased", "joined"} {
			both.Go(func() { t.Run(mode, func(t *testing.T) { check(t, d, mode, false, told) }) })
		}
		both.Wait()
		newBiller().mustMatch(t, d, told.first)
	})
	beside(t, "redis", func(t *testing.T) { check(t, postgres(t), "leased", true, newCrowd(t, nil)) })
}

// stoodStill lets the first server stand still within a create with the title.
func stoodStill(t *testing.T, db *sql.DB, first, second *child, title, want string, told *crowd) {
	answers := make(chan answer, 2)
	ask := func(c *child, key string) {
		a, err := c.postTitle(key, title)
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}
	rows := func() int { return count(t, db, "SELECT count(*) FROM tasks WHERE title = '"+title+"'") }
	keys := []string{title}
	joined, sent := strings.HasPrefix(title, "joined"), strings.HasSuffix(title, "sent")
	go ask(first, title)
	first.awaitStill(answers)
	<-time.After(stillLease + stillLease/4)
	if joined { // its repeat waits
		go ask(second, title)
		<-time.After(stillLease / 4)
	} else {
		ask(second, title)
		(<-answers).mustHave(t, want)
		if want != "" && rows() == 0 {
			keys = append(keys, "new "+title)
			ask(second, keys[1])
			(<-answers).mustHave(t, "")
		}
	}
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a := <-answers
	if joined {
		a.mustHave(t, "")
		(<-answers).mustHave(t, "")
	}
	if sent {
		<-time.After(2 * stillLease) // until it has ended, whoever waits for it
	}
	switch n := rows(); {
	case n > 1 && sent && !joined:
		t.Logf("there are %d rows", n)
	case n > 1:
		t.Errorf("there are %d rows, want one", n)
	}
	again := newCrowd(t, func(key string) (answer, error) { return second.postTitle(key, title) })
	for _, key := range keys {
		a := again.ask(key)
		within(t, "the first server, which frees the key,", func() {
			for strings.HasSuffix(key, "begun") && a.code() == outcomeUnknown {
				<-time.After(10 * time.Millisecond)
				a = again.ask(key)
			}
		})
		told.see(key, a)
	}
}

// mustHave wants a creation, or a problem with the code.
func (a answer) mustHave(t *testing.T, code string) {
	t.Helper()
	if code == "" && a.status != 201 || code != "" && a.code() != code {
		t.Errorf("got %d %s, want code %q", a.status, a.body, code)
	}
}
