package idemsql_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/internal/meter"
)

// sharedQuota is what the processes of TestQuotaOfProcesses share.
var (
	sharedQuota   = &idem.Quota{Name: "monthly", Units: 3000}
	sharedAccount = idem.NewAccount("acme")
)

// sent is an operation that was let begin. All times are of the one clock of the
// machine.
type sent struct {
	Units             int64 // charged
	Asked, Held       time.Time
	Settling, Settled time.Time
}

// sender is what one process has done until it was refused for a while.
type sender struct {
	Sent     []sent
	UsedUp   []time.Time // refusals: when the verdict was there
	HeldBack int         // refusals with Held
	Faults   []string
}

const senderEnv = "IDEMSQL_TEST_SENDER" // the DSN, the schema, and the file for the outcome, in JSON

// TestQuotaOfProcesses: three processes that send as fast as they can use a quota
// up. What they get beyond it is at most what was in flight in the others when the
// last operation began, and what these settled in the second before. A second after
// the quota was used up, each process refuses everything; none does so before.
func TestQuotaOfProcesses(t *testing.T) {
	if text := os.Getenv(senderEnv); text != "" {
		send(t, text)
		return
	}
	t.Parallel()
	d := postgres(t)
	all := make([]sender, 3)
	starts := make([]func(), len(all))
	var wg sync.WaitGroup
	for i := range all {
		file := fmt.Sprintf("%s/%d", t.TempDir(), i)
		text, _ := json.Marshal([]string{d.conf.ConnString(), d.conf.RuntimeParams["search_path"], file})
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), senderEnv+"="+string(text))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		starts[i] = func() { in.Close() }
		ready := bufio.NewReader(out)
		if line, err := ready.ReadString('\n'); line != "ready\n" {
			t.Fatalf("a process says %q, error %v", line, err)
		}
		wg.Go(func() {
			said, _ := io.ReadAll(ready)
			if err := cmd.Wait(); err != nil {
				t.Errorf("a process failed: %v\n%s", err, said)
				return
			}
			outcome, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(outcome, &all[i])
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for _, start := range starts {
		start()
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	used, _, err := d.on(d.open(t), idemsql.Options{}).Used(t.Context(), sharedAccount, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	mustShare(t, all, used)
}

func mustShare(t *testing.T, all []sender, used int64) {
	var ops []sent
	for i, p := range all {
		ops = append(ops, p.Sent...)
		t.Logf("process %d began %d operations, was refused %d times, and %d times by what it held; %d faults",
			i, len(p.Sent), len(p.UsedUp), p.HeldBack, len(p.Faults))
		for _, fault := range slices.Compact(p.Faults) {
			t.Log(fault)
		}
	}
	slices.SortFunc(ops, func(a, b sent) int { return a.Settled.Compare(b.Settled) })
	var sum int64
	var full, lastAsked time.Time // when the next operation would be too much, and when the last one asked
	for _, op := range ops {
		if sum += op.Units; full.IsZero() && sum+sendUnits > sharedQuota.Units {
			full = op.Settled
		}
		if op.Asked.After(lastAsked) {
			lastAsked = op.Asked
		}
	}
	if sum != used || full.IsZero() {
		t.Fatalf("the store says that %d units were used, the processes %d, of %d", used, sum, sharedQuota.Units)
	}
	// Any operation that was held after the last one asked may have been the last to
	// be decided. Its process had read the store less than a second before it asked.
	var allowed, flying int64
	for i, p := range all {
		for _, last := range p.Sent {
			if last.Held.Before(lastAsked) {
				continue
			}
			var others, inFlight int64
			for j, q := range all {
				for _, op := range q.Sent {
					if i == j || op.Settled.Before(last.Asked.Add(-time.Second)) {
						continue
					}
					if others += op.Units; !op.Settled.Before(last.Asked) {
						inFlight += op.Units
					}
				}
			}
			if others >= allowed {
				allowed, flying = others, inFlight
			}
		}
	}
	t.Logf("%d units beyond %d; at most %d in flight elsewhere, and %d settled there in the second before",
		used-sharedQuota.Units, sharedQuota.Units, flying, allowed-flying)
	if used-sharedQuota.Units > allowed {
		t.Errorf("%d units were used beyond the quota, want at most %d", used-sharedQuota.Units, allowed)
	}
	for i, p := range all {
		if len(p.UsedUp) == 0 || len(p.Sent) == 0 {
			t.Errorf("process %d began %d operations and was refused %d times", i, len(p.Sent), len(p.UsedUp))
			continue
		}
		var late time.Duration
		for _, op := range p.Sent {
			late = max(late, op.Asked.Sub(full))
		}
		t.Logf("process %d asked for its last operation %v after the quota was used up", i, late)
		if late > time.Second {
			t.Errorf("process %d began an operation %v after the quota was used up", i, late)
		}
		var before int64 // what the store may have known at the first refusal
		for _, op := range ops {
			if op.Settling.Before(p.UsedUp[0]) {
				before += op.Units
			}
		}
		if before+sendUnits <= sharedQuota.Units {
			t.Errorf("process %d calls the quota used up by %d units of %d", i, before, sharedQuota.Units)
		}
	}
}

const sendUnits = 5

// send is a process. It sends until the quota has been used up for a while.
func send(t *testing.T, text string) {
	var order []string
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		t.Fatal(err)
	}
	conf, err := pgx.ParseConfig(order[0])
	if err != nil {
		t.Fatal(err)
	}
	conf.RuntimeParams["search_path"] = order[1]
	s := inPostgres(conf).on(inPostgres(conf).open(t), idemsql.Options{})
	m := meter.New(s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var done sync.WaitGroup
	defer done.Wait()
	running, stop := context.WithCancel(ctx)
	defer stop()
	done.Go(func() { s.Run(running) }) // which adds up meanwhile
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)

	var mu sync.Mutex
	var outcome sender
	until := time.Now().Add(time.Minute)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				mu.Lock()
				over := time.Now().After(until)
				mu.Unlock()
				if over {
					return
				}
				sent, v, err := sendOne(ctx, s, m)
				mu.Lock()
				switch {
				case err != nil:
					outcome.Faults = append(outcome.Faults, err.Error())
				case v.Held:
					outcome.HeldBack++
				case v.Refused != nil:
					if len(outcome.UsedUp) == 0 {
						until = time.Now().Add(1500 * time.Millisecond)
					}
					outcome.UsedUp = append(outcome.UsedUp, sent.Held)
				default:
					outcome.Sent = append(outcome.Sent, sent)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	saved, _ := json.Marshal(outcome)
	if err := os.WriteFile(order[2], saved, 0o600); err != nil {
		t.Fatal(err)
	}
}

// sendOne sends an operation, of which one in four comes to nothing.
func sendOne(ctx context.Context, s store, m *meter.Meter) (op sent, v meter.Verdict, err error) {
	c := claim(rand.Text())
	c.Account, c.Units = idem.NewAccount("acme", "key"), sendUnits
	if _, err := s.Begin(ctx, c); err != nil {
		return op, v, err
	}
	op.Asked = time.Now()
	h, v, err := m.Hold(ctx, sendUnits, []meter.Limit{{Account: sharedAccount, Quota: sharedQuota}})
	op.Held = time.Now()
	if h == nil {
		s.Settle(ctx, c.Key, c.Token, outcomeFree)
		return op, v, err
	}
	time.Sleep(mathrand.N(50 * time.Millisecond))
	settlement := outcomeFree
	if mathrand.N(4) > 0 {
		op.Units, settlement = sendUnits, using(sendUnits, finished("answer"))
	}
	op.Settling = time.Now()
	err = s.Settle(ctx, c.Key, c.Token, settlement)
	op.Settled = time.Now()
	h.End(op.Units)
	return op, v, err
}
