//go:build autopipeline

package idemredis_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// These tests need a go-redis that has the AutoPipeliner, which go.mod does not
// ask for. .ci/run raises it.

func pipelines(t *testing.T, client interface {
	AutoPipeline() (*redis.AutoPipeliner, error)
}) *redis.AutoPipeliner {
	t.Helper()
	auto, err := client.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	return auto
}

func TestAutoPipeline(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	auto := pipelines(t, client)
	suite(t, auto, client, "")
	if err := idemredis.New(auto, idemredis.Options{}).Check(t.Context()); err != nil {
		t.Error(err)
	}
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

// Claims of concurrent requests travel together.
func TestAutoPipelineTravelsTogether(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	var several batches
	client.AddHook(&several)
	store := idemredis.New(pipelines(t, client), idemredis.Options{Prefix: redistest.OwnPrefix(t, client)})
	redistest.Eventually(t, "a pipeline has several commands", func() bool {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if r, err := store.Begin(t.Context(), aClaim(rand.Text())); err != nil || r.State != idem.Claimed {
					t.Errorf("Begin: got %v, %v", r.State, err)
				}
			})
		}
		wg.Wait()
		return several.Load() > 0
	})
}

// A Redis that hangs holds up no call for longer than its context, although the
// client waits for an hour. Then all goes on.
func TestAutoPipelineOnAHungServer(t *testing.T) {
	server := redistest.Start(t)
	o := server.Options()
	o.ReadTimeout = time.Hour
	store := idemredis.New(pipelines(t, redistest.Connect(t, o)), idemredis.Options{})
	mustBegin(t, store, aClaim("before"), idem.Claimed)
	server.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := store.Begin(ctx, aClaim("meanwhile")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Begin: got %v, want the end of the context", err)
	}
	server.Resume()
	mustBegin(t, store, aClaim("after"), idem.Claimed)
}

// An AutoPipeliner asks one server of a cluster, which Check says.
func TestAutoPipelineOfACluster(t *testing.T) {
	client := connectCluster(t, redistest.StartCluster(t))
	store := idemredis.New(pipelines(t, client), idemredis.Options{})
	mustBegin(t, store, aClaim("key"), idem.Claimed)
	if err := store.Check(t.Context()); err == nil {
		t.Error("Check with an AutoPipeliner: got no error")
	}
	if err := idemredis.New(client, idemredis.Options{}).Check(t.Context()); err != nil {
		t.Errorf("Check with the client behind it: %v", err)
	}
}
