package idem_test

import (
	"context"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
)

func BenchmarkFresh(b *testing.B) {
	m := idem.NewMemory(idem.MemoryOptions{Budget: 1 << 40})
	r := idem.NewRunner(m, idem.Options{})
	ctx := context.Background()
	var k idem.Key
	payload := make([]byte, 300)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		k.Digest[0], k.Digest[1], k.Digest[2] = byte(i), byte(i>>8), byte(i>>16)
		_, e, err := r.Begin(ctx, idem.Request{Key: k, Owner: "o"})
		if err != nil {
			b.Fatal(err)
		}
		if e != nil {
			e.Settle(ctx, idem.Settlement{Outcome: idem.NotStarted, Payload: payload})
		}
	}
}

func BenchmarkStoreFresh(b *testing.B) {
	m := idem.NewMemory(idem.MemoryOptions{Budget: 1 << 40})
	ctx := context.Background()
	var k idem.Key
	payload := make([]byte, 300)
	b.ReportAllocs()
	i := 0
	tok := idem.NewToken()
	for b.Loop() {
		i++
		k.Digest[0], k.Digest[1], k.Digest[2] = byte(i), byte(i>>8), byte(i>>16)
		_, err := m.Begin(ctx, idem.Claim{Key: k, Token: tok, Lease: 1e9, Retention: 1e12})
		if err != nil {
			b.Fatal(err)
		}
		m.Settle(ctx, k, tok, idem.Settlement{Outcome: idem.NotStarted, Payload: payload})
	}
}
