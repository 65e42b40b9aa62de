package idemredis_test

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// A fresh create is a claim and its answer. by says who spends the processor's
// time: this process, and the server.
func BenchmarkCreate(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			o := redistest.Start(b, "--appendonly", "no").Options()
			o.ContextTimeoutEnabled, o.PoolSize = true, callers
			client := redistest.Connect(b, o)
			store := idemredis.New(client, idemredis.Options{})
			payload := make([]byte, 400)
			create := func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				c := idem.Claim{Lease: 15 * time.Second, Retention: time.Hour, Token: newToken()}
				rand.Read(c.Key[:])
				if _, err := store.Begin(ctx, c); err != nil {
					b.Error(err)
				}
				if err := store.Settle(ctx, c.Key, c.Token, idem.Settlement{Outcome: idem.Finished, Payload: payload, Retention: time.Hour}); err != nil {
					b.Error(err)
				}
			}
			create()
			server, self := serverTime(b, client), ownTime(b)
			b.SetParallelism((callers + 1) / 2)
			b.ResetTimer()
			if callers == 1 {
				for range b.N {
					create()
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						create()
					}
				})
			}
			b.StopTimer()
			b.ReportMetric(1e6*(serverTime(b, client)-server)/float64(b.N), "server-µs/op")
			b.ReportMetric(1e6*(ownTime(b)-self)/float64(b.N), "own-µs/op")
		})
	}
}

// serverTime is the processor's time that Redis has used, in seconds.
func serverTime(b *testing.B, client *redis.Client) (sum float64) {
	info := client.Info(b.Context(), "cpu").Val()
	for line := range strings.Lines(info) {
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				seconds, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += seconds
			}
		}
	}
	return sum
}

// ownTime is that of this process.
func ownTime(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
