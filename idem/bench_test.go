package idem_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

func numbered(n uint64) idem.Key {
	var k idem.Key
	binary.LittleEndian.PutUint64(k[:], n)
	return k
}

// BenchmarkCreate is what a keyed create costs in this package: its key, its
// fingerprint, its claim and its reply.
func BenchmarkCreate(b *testing.B)       { benchmarkCreate(b, nil) }
func BenchmarkSealedCreate(b *testing.B) { benchmarkCreate(b, seal(keyA)) }

func benchmarkCreate(b *testing.B, s *idem.Seal) {
	r := idem.NewRunner(&idem.Memory{Budget: 8 << 30}, idem.Options{Seal: s})
	ctx := context.Background()
	body := []byte(`{"title":"Call the bank"}`)
	var name [36]byte
	copy(name[:], "00000000-0000-4000-8000-000000000000")
	b.ReportAllocs()
	var n uint64
	for b.Loop() {
		n++
		binary.LittleEndian.PutUint64(name[20:], n)
		_, e, err := r.Begin(ctx, idem.Claim{
			Key:    idem.NewKey("org_000001", "production", "", "", "", string(name[:])),
			Tenant: "org_000001", Fingerprint: sha256.Sum256(body),
		}, nil)
		if err != nil {
			b.Fatal(err)
		}
		s := idem.Settlement{Outcome: idem.OutcomeDone, Payload: make([]byte, 300), Summary: make([]byte, 80)}
		if err := e.Settle(ctx, s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReplay(b *testing.B)       { benchmarkReplay(b, nil) }
func BenchmarkSealedReplay(b *testing.B) { benchmarkReplay(b, seal(keyA)) }

func benchmarkReplay(b *testing.B, s *idem.Seal) {
	r := idem.NewRunner(&idem.Memory{}, idem.Options{Seal: s})
	ctx := context.Background()
	req := idem.Claim{Key: numbered(1), Tenant: "organization"}
	_, e, err := r.Begin(ctx, req, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Settle(ctx, idem.Settlement{Outcome: idem.OutcomeDone, Payload: make([]byte, 400)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if record, _, err := r.Begin(ctx, req, nil); err != nil || record.State != idem.Done {
			b.Fatal(record.State, err)
		}
	}
}

// BenchmarkMemoryFull begins and settles while each new key takes its room from
// an older one's payload.
func BenchmarkMemoryFull(b *testing.B) {
	m := &idem.Memory{Budget: 64 << 20, MinRetention: 1}
	ctx := context.Background()
	payload := make([]byte, 1024)
	b.ReportAllocs()
	var n uint64
	for b.Loop() {
		n++
		c := idem.Claim{Key: numbered(n), Token: idem.ClaimToken{1}, Lease: time.Second, Retention: time.Hour}
		c.Tenant = string([]byte{byte(n)})
		if _, err := m.Begin(ctx, c); err != nil {
			b.Fatal(err)
		}
		s := idem.Settlement{Outcome: idem.OutcomeDone, Payload: payload, Retention: time.Hour}
		if err := m.Settle(ctx, c.Key, c.Token, s); err != nil {
			b.Fatal(err)
		}
	}
}
