//go:build autopipeline

package ratelimitredis_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

// These tests need a go-redis that has the AutoPipeliner, which go.mod does not
// ask for. .ci/run raises it.

func pipelines(t *testing.T, client *redis.Client) *redis.AutoPipeliner {
	t.Helper()
	auto, err := client.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	return auto
}

// patientPipelines returns a Store like patientStore.
func patientPipelines(t *testing.T, client *redis.Client) *ratelimitredis.Store {
	return patientWith(t, pipelines(t, client), ratelimitredis.Options{Prefix: redistest.OwnPrefix(t, client)})
}

func TestAutoPipeline(t *testing.T) {
	store := patientPipelines(t, redistest.Connect(t, redistest.Options(t)))
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return store },
		Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// batches is a hook that counts the pipelines of more than one command.
type batches struct{ atomic.Int64 }

func (*batches) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*batches) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b *batches) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 1 {
			b.Add(1)
		}
		return next(ctx, cmds)
	}
}

// Decisions of concurrent requests travel together.
func TestAutoPipelineTravelsTogether(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	var several batches
	client.AddHook(&several)
	store := patientPipelines(t, client)
	redistest.Eventually(t, "a pipeline has several commands", func() bool {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				d, err := store.Take(t.Context(), []ratelimit.Charge{{Policy: policy(1e6, time.Hour), Bucket: "b", Cost: 1}})
				if err != nil || !d.Allowed {
					t.Errorf("Take: got %+v, %v", d, err)
				}
			})
		}
		wg.Wait()
		return several.Load() > 0
	})
}

// A Redis that hangs holds up no decision for longer than the timeout, although
// the client waits for an hour. Then all goes on.
func TestAutoPipelineOnAHungServer(t *testing.T) {
	server := redistest.Start(t)
	o := server.Options()
	o.ReadTimeout = time.Hour
	store := ratelimitredis.New(pipelines(t, redistest.Connect(t, o)), ratelimitredis.Options{
		Failover: ratelimit.FailoverOptions{Logger: patient.Logger},
	})
	one := ratelimit.Charge{Policy: policy(1e6, time.Hour), Bucket: "b", Cost: 1}
	decides := func() bool { return byRedis(store, func() { take(t, store, one) }) }
	redistest.Eventually(t, "Redis decides", decides)
	server.Hang()
	for range 20 {
		if decides() {
			t.Error("Redis decided while it hung")
		}
	}
	server.Resume()
	redistest.Eventually(t, "Redis decides again", decides)
}
