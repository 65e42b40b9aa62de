package idemredis_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := idemredis.New(server.Client(), idemredis.Options{})
	for policy, good := range map[string]bool{"noeviction": true, "allkeys-lru": false, "volatile-ttl": false} {
		server.Set("maxmemory-policy", policy)
		if err := store.Check(t.Context()); (err == nil) != good {
			t.Errorf("%s: got %v", policy, err)
		}
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Options().Addr}})
	defer ring.Close()
	if err := idemredis.New(ring, idemredis.Options{}).Check(t.Context()); err == nil {
		t.Error("got no error for a Ring")
	}
	// What is in front of a client may hide what it is.
	mute := idemredis.New(struct{ idemredis.Client }{server.Client()}, idemredis.Options{})
	if err := mute.Check(t.Context()); err == nil {
		t.Error("got no error for a client without INFO")
	}
	for want, args := range map[string][]string{
		"a replica": {"--replicaof", "127.0.0.1 1"}, "one server of a Redis Cluster": {"--cluster-enabled", "yes"},
	} {
		other := redistest.StartTCP(t, args...)
		err := idemredis.New(other.Client(), idemredis.Options{}).Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %s: got %v", want, err)
		}
	}
	server.Kill()
	if err := store.Check(t.Context()); err == nil {
		t.Error("got no error when Redis is away")
	}
}

// says is a client whose Redis says a text of itself.
type says struct {
	idemredis.Client
	text string
}

func (s says) Info(context.Context, ...string) *redis.StringCmd {
	return redis.NewStringResult(s.text, nil)
}

// Check believes what Redis says, and not what it leaves out.
func TestCheckOfWhatIsSaid(t *testing.T) {
	client := redistest.Connect(t, &redis.Options{})
	for text, want := range map[string]string{
		"":                                 "does not say which maxmemory-policy",
		"# Memory":                         "does not say which maxmemory-policy",
		"maxmemory_policy:\r\n":            "does not say which maxmemory-policy",
		"maxmemory_policy:allkeys-lru\r\n": "has maxmemory-policy allkeys-lru",
		"maxmemory_policy:noeviction\r\n":  "",
		"maxmemory_policy:noeviction\r\ncluster_enabled:0\r\n": "",
		"maxmemory_policy:noeviction\r\ncluster_enabled:1\r\n": "one server of a Redis Cluster",
		"maxmemory_policy:noeviction\r\nrole:master\r\n":       "",
	} {
		err := idemredis.New(says{client, text}, idemredis.Options{}).Check(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
