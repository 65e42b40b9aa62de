package redisnew

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

const continues = syscall.SIGCONT

func claim() (c idem.Claim) {
	c.Lease, c.Retention = time.Minute, time.Hour
	rand.Read(c.Key[:])
	rand.Read(c.Token[:])
	return c
}

// client is what both stores take.
type client interface {
	redis.Scripter
	idemredis.Client
}

func BenchmarkTake(b *testing.B) {
	benchmark(b, func(c client) func() error {
		store := ratelimitredis.New(c, ratelimitredis.Options{Failover: patient})
		p := &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: 1e6, Period: time.Second, Burst: 1 << 40}}
		return func() error {
			_, err := store.Take(context.Background(), []ratelimit.Charge{{Policy: p, Bucket: "b", Cost: 1}})
			return err
		}
	})
}

func BenchmarkCreate(b *testing.B) {
	answer := make([]byte, 400)
	benchmark(b, func(c client) func() error {
		store := idemredis.New(c, idemredis.Options{})
		return func() error {
			c := claim()
			if _, err := store.Begin(context.Background(), c); err != nil {
				return err
			}
			return store.Settle(context.Background(), c.Key, c.Token, idem.Settlement{Outcome: idem.Finished, Payload: answer, Retention: time.Hour})
		}
	})
}

// BenchmarkRun is what a server does for a create: the claim and the answer,
// through a Runner.
func BenchmarkRun(b *testing.B) {
	answer := make([]byte, 400)
	benchmark(b, func(c client) func() error {
		runner := idem.NewRunner(idemredis.New(c, idemredis.Options{}), idem.Options{Timeout: time.Minute, ExecutionsPerOwner: 1 << 20})
		return func() error {
			c := claim()
			_, e, err := runner.Begin(context.Background(), idem.Request{Key: c.Key, Fingerprint: c.Fingerprint})
			if err != nil {
				return err
			}
			return e.Settle(context.Background(), idem.Settlement{Outcome: idem.Finished, Payload: answer})
		}
	})
}

// benchmark compares a plain client with an AutoPipeliner: the time of one call
// among so many callers, and that of the processor here and in the server.
func benchmark(b *testing.B, prepare func(client) func() error) {
	for _, callers := range []int{1, 16, 64} {
		for _, way := range []string{"plain", "auto"} {
			b.Run(fmt.Sprint(way, "/", callers), func(b *testing.B) {
				o, _ := startServer(b)
				o.ContextTimeoutEnabled, o.PoolSize = true, callers
				plain, auto := connect(b, o)
				var c client = plain
				if way == "auto" {
					c = auto
				}
				do := prepare(c)
				if err := do(); err != nil {
					b.Fatal(err)
				}
				server, own := serverTime(b, plain), ownTime(b)
				each := make(chan int)
				failed := make(chan error, callers)
				b.ResetTimer()
				for range callers {
					go func() {
						var err error
						for range each {
							if e := do(); e != nil {
								err = e
							}
						}
						failed <- err
					}()
				}
				for i := range b.N {
					each <- i
				}
				close(each)
				for range callers {
					if err := <-failed; err != nil {
						b.Error(err)
					}
				}
				b.StopTimer()
				b.ReportMetric((serverTime(b, plain)-server)/float64(b.N), "server-µs/op")
				b.ReportMetric((ownTime(b)-own)/float64(b.N), "own-µs/op")
			})
		}
	}
}

// serverTime is the processor's time that Redis has used, in microseconds.
func serverTime(b *testing.B, client *redis.Client) (sum float64) {
	for line := range strings.Lines(client.Info(b.Context(), "cpu").Val()) {
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				seconds, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += 1e6 * seconds
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
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}
