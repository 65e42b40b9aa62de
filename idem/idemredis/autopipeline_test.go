//go:build autopipeline

package idemredis_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
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
