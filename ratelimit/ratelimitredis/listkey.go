package ratelimitredis

import (
	"hash/maphash"
	"math/bits"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// listKey is a hash of policies, limits, buckets and costs. The seed is random,
// so nobody can find two lists of charges with the same key, and nothing that a
// client sent is kept. It is never 0.
func listKey(seed maphash.Seed, charges []ratelimit.Charge) uint64 {
	h := uint64(len(charges))
	for i := range charges {
		c := &charges[i]
		l := &c.Policy.Limit
		h = mix(h, maphash.String(seed, c.Policy.Name))
		h = mix(h, maphash.String(seed, c.Bucket))
		h = mix(h, uint64(l.Count))
		h = mix(h, uint64(l.Period))
		h = mix(h, uint64(l.Burst))
		h = mix(h, uint64(c.Cost))
	}
	return max(h, 1)
}

// mix folds the product with an odd number, in which every bit of the sum
// changes half of the result.
func mix(h, part uint64) uint64 {
	high, low := bits.Mul64(h^part, 0x9e3779b97f4a7c15)
	return high ^ low
}
