//go:build unix

package idemsql_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/servers"
)

func init() {
	standStill = func() {
		syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
		for began := time.Now(); time.Since(began) < 10*time.Millisecond; { // it stops a moment later
		}
	}
}

// awaitStill waits until the process has stopped itself.
func (c *child) awaitStill() {
	c.t.Helper()
	for range 1000 {
		var status syscall.WaitStatus
		pid, _ := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if pid > 0 && status.Stopped() {
			return
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
	check := func(t *testing.T, d database, mode string, inRedis bool) {
		db := d.open(t)
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
					prefix := ""
					if inRedis {
						servers.Redis.Address(t)
						prefix = "still-" + step + time.Now().Format("150405.000000") + ":"
					}
					first := startOrdered(t, d, order{Mode: mode, Still: step, Redis: prefix})
					second := startOrdered(t, d, order{Mode: mode, Still: "never", Redis: prefix})
					doubled := 0
					const tries = 2
					for i := range tries {
						title := fmt.Sprintf("%s, %s %d", mode, step, i)
						answers := make(chan answer, 2)
						ask := func(c *child, key string) {
							a, err := c.postTitle(key, title)
							if err != nil {
								t.Error(err)
							}
							answers <- a
						}
						go ask(first, title)
						first.awaitStill()
						<-time.After(stillLease + stillLease/4)
						if mode == "joined" { // its repeat waits
							go ask(second, title)
							<-time.After(stillLease / 4)
						} else {
							ask(second, title)
							(<-answers).mustHave(t, want)
							if want != "" && count(t, db, "SELECT count(*) FROM tasks WHERE title = '"+title+"'") == 0 {
								ask(second, "new "+title)
								(<-answers).mustHave(t, "")
							}
						}
						if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
							t.Fatal(err)
						}
						a := <-answers
						if mode == "joined" {
							a.mustHave(t, "")
							(<-answers).mustHave(t, "")
						}
						if step == "sent" {
							<-time.After(2 * stillLease) // until it has ended, whoever waits for it
						}
						if count(t, db, "SELECT count(*) FROM tasks WHERE title = '"+title+"'") > 1 {
							doubled++
						}
					}
					t.Logf("%d of %d have two rows", doubled, tries)
					if doubled > 0 && (step != "sent" || mode == "joined") {
						t.Errorf("%d of %d have two rows", doubled, tries)
					}
				})
			})
		}
		all.Wait()
	}
	inServers(t, func(t *testing.T, d database) {
		t.Run("leased", func(t *testing.T) { check(t, d, "leased", false) })
		t.Run("joined", func(t *testing.T) { check(t, d, "joined", false) })
	})
	t.Run("redis", func(t *testing.T) { check(t, postgres(t), "leased", true) })
}

// mustHave wants a creation, or a problem with the code.
func (a answer) mustHave(t *testing.T, code string) {
	t.Helper()
	if code == "" && a.status != 201 || code != "" && a.code() != code {
		t.Errorf("got %d %s, want code %q", a.status, a.body, code)
	}
}
