package idemredis_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

func TestCheck(t *testing.T) {
	server := redistest.Start(t)
	store := idemredis.New(server.Client(), idemredis.Options{})
	for policy, good := range map[string]bool{
		"noeviction": true, "allkeys-lru": false, "allkeys-lfu": false, "allkeys-random": false,
		"volatile-lru": false, "volatile-lfu": false, "volatile-random": false, "volatile-ttl": false,
	} {
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
	server.Kill()
	if err := store.Check(t.Context()); err == nil {
		t.Error("got no error when Redis is away")
	}
}

// A client that asks one server of a cluster has not asked the others.
func TestCheckOfOneServerOfACluster(t *testing.T) {
	server := redistest.StartTCP(t, "--cluster-enabled", "yes")
	if err := idemredis.New(server.Client(), idemredis.Options{}).Check(t.Context()); err == nil {
		t.Error("got no error")
	}
}
