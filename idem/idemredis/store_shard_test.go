package idemredis_test

import (
	"fmt"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// A key's shard is the address of the primary that has it, once that is known.
func TestShard(t *testing.T) {
	servers := redistest.StartCluster(t)
	client := connectCluster(t, servers)
	store := idemredis.New(client, idemredis.Options{})
	if got := store.Shard(idem.Key{}); got != "" {
		t.Errorf("before the first command: got the shard %q", got)
	}
	for i := range 30 {
		c := aClaim(fmt.Sprint(i))
		mustBegin(t, store, c, idem.Claimed)
		want := servers[redisSlot(c.Key, "sallyport:idem:")*3/redistest.Slots].Addr
		if got := store.Shard(c.Key); got != want {
			t.Errorf("got the shard %q, want %q", got, want)
		}
	}
	one := idemredis.New(redistest.Connect(t, redistest.Options(t)), idemredis.Options{Prefix: "shard:"})
	mustBegin(t, one, aClaim("one"), idem.Claimed)
	if got := one.Shard(idem.Key{}); got != "" {
		t.Errorf("without a cluster: got the shard %q", got)
	}
}

// redisSlot is that of a key with a prefix.
func redisSlot(key idem.Key, prefix string) int {
	var crc uint16
	for _, b := range fmt.Appendf(nil, "%s%x", prefix, key[:]) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % redistest.Slots
}
