package ratelimitredis_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// fake runs the script as Redis does, in a bubble of synctest. TestAmount holds
// the script itself to the same rules.
type fake struct {
	redis.Scripter
	distance time.Duration // of one trip there and back
	mu       sync.Mutex
	tats     map[string]int64 // microseconds
	trips    int
	down     bool
}

func newFake(distance time.Duration) *fake {
	return &fake{distance: distance, tats: map[string]int64{}}
}

func (f *fake) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	oneWay := f.distance / 2
	time.Sleep(oneWay)
	reply, err := f.decide(keys, args)
	time.Sleep(oneWay)
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(reply)
	cmd.SetErr(err)
	return cmd
}

func (f *fake) decide(keys []string, args []any) ([]any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errors.New("the fake is down")
	}
	f.trips++
	now := time.Now().UnixMicro()
	number := func(i int) int64 { return args[i].(int64) }
	debt := func(tats map[string]int64, i int) int64 {
		return min(max(tats[keys[i]]-now, 0), number(1+2*i))
	}
	amount, twice := number(0), map[string]int64{}
	for i, key := range keys {
		twice[key] += 2 * number(0) * number(2+2*i)
		if twice[key] > number(1+2*i)-debt(f.tats, i) {
			amount = 1
		}
	}
	next, waits, denied := map[string]int64{}, make([]int64, len(keys)), false
	for _, key := range keys {
		next[key] = f.tats[key]
	}
	for i, key := range keys {
		if charge := amount * number(2+2*i); charge > 0 {
			waits[i] = max(debt(next, i)+charge-number(1+2*i), 0)
			denied = denied || waits[i] > 0
			next[key] = now + debt(next, i) + charge
		}
	}
	if !denied {
		for key, tat := range next {
			f.tats[key] = tat
		}
	}
	reply := []any{amount}
	for i, key := range keys {
		if full := now + number(1+2*i); denied && waits[i] > 0 && f.tats[key] > full {
			f.tats[key] = full
		}
		reply = append(reply, debt(f.tats, i), waits[i])
	}
	return reply, nil
}

// sent returns how many scripts were run.
func (f *fake) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trips
}

func (f *fake) set(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}
