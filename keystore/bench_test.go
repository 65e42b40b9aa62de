package keystore_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

func BenchmarkParse(b *testing.B) {
	for name, token := range map[string]string{
		"accepted": keystore.Format{}.Generate(keystore.Production).Reveal(),
		"checksum": "svc_live_00000000000000000000000000000000000000",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				keystore.Format{}.Parse(token)
			}
		})
	}
}

func BenchmarkGenerate(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		keystore.Format{}.Generate(keystore.Production)
	}
}

func BenchmarkDigestOf(b *testing.B) {
	token := keystore.Format{}.Generate(keystore.Production).Reveal()
	b.ReportAllocs()
	for b.Loop() {
		keystore.DigestOf(token)
	}
}

// manyKeys returns a Cached that remembers n keys, and their digests.
func manyKeys(b *testing.B, n int) (*keystore.Cached, []keystore.Digest) {
	ctx := context.Background()
	memory := keystore.NewMemory()
	cached := keystore.NewCached(memory, keystore.CacheOptions{TTL: time.Hour})
	issuer := keystore.NewIssuer(memory, keystore.Format{})
	digests := make([]keystore.Digest, n)
	for i := range digests {
		secret, _, err := issuer.Issue(ctx, keystore.Grant{Organization: "acme", Environment: keystore.Production})
		if err != nil {
			b.Fatal(err)
		}
		digests[i] = keystore.DigestOf(secret.Reveal())
		if _, err := cached.Lookup(ctx, digests[i]); err != nil {
			b.Fatal(err)
		}
	}
	return cached, digests
}

func BenchmarkCachedHit(b *testing.B) {
	ctx := context.Background()
	cached, digests := manyKeys(b, 1000)
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			cached.Lookup(ctx, digests[0])
		}
	})
	b.Run("spread", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			cached.Lookup(ctx, digests[i%len(digests)])
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := rand.IntN(len(digests)); pb.Next(); i++ {
				cached.Lookup(ctx, digests[i%len(digests)])
			}
		})
	})
	b.Run("parallel one", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				cached.Lookup(ctx, digests[0])
			}
		})
	})
}

func BenchmarkCachedMiss(b *testing.B) {
	ctx := context.Background()
	cached := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
	var d keystore.Digest
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		d[0], d[1], d[2], d[3], d[4] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24), byte(i>>32)
		cached.Lookup(ctx, d)
	}
}

func BenchmarkMemoryLookup(b *testing.B) {
	ctx := context.Background()
	memory := keystore.NewMemory()
	secret, _, err := keystore.NewIssuer(memory, keystore.Format{}).
		Issue(ctx, keystore.Grant{Organization: "acme", Environment: keystore.Production})
	if err != nil {
		b.Fatal(err)
	}
	d := keystore.DigestOf(secret.Reveal())
	b.ReportAllocs()
	for b.Loop() {
		memory.Lookup(ctx, d)
	}
}

func BenchmarkRecordUse(b *testing.B) {
	uses := keystore.NewLastUsed(keystore.NewMemory(), keystore.LastUsedOptions{})
	k := &keystore.Key{ID: "key_1", Organization: "acme"}
	b.ReportAllocs()
	for b.Loop() {
		uses.Record(k)
	}
}
