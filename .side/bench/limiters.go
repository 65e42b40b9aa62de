package bench

import (
	"context"
	"sync"
	"time"

	"github.com/labstack/echo/v5/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	sethvargo "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// Limiter is a rate limiter alone, one decision for one key.
type Limiter struct {
	Name string
	// New returns a function that goroutines ask at once: keys is how many
	// there will be, for limiters that have a size.
	New func(limit int, period time.Duration, keys int) func() func(key string) bool
}

// each is for limiters whose question needs no room of the caller's own.
func each(take func(key string) bool) func() func(string) bool {
	return func() func(string) bool { return take }
}

// Limiters are all of them. The first is ours. The others forget nobody who
// still owes, as long as their room and time are set as here.
func Limiters() []Limiter {
	ctx := context.Background()
	return []Limiter{
		{"sallyport", func(limit int, period time.Duration, keys int) func() func(string) bool {
			m := &ratelimit.Memory{}
			p := &ratelimit.Policy{Name: "organization", Limit: ratelimit.Limit{Count: int64(limit), Period: period}}
			return func() func(string) bool {
				takes := []ratelimit.Charge{{Policy: p, Cost: 1}}
				return func(key string) bool {
					takes[0].Bucket = key
					d, err := m.Take(ctx, takes)
					return err == nil && d.Allowed
				}
			}
		}},
		{"x-time-rate", func(limit int, period time.Duration, keys int) func() func(string) bool {
			var mu sync.RWMutex
			limiters := make(map[string]*rate.Limiter)
			return each(func(key string) bool {
				mu.RLock()
				l := limiters[key]
				mu.RUnlock()
				if l == nil {
					mu.Lock()
					if l = limiters[key]; l == nil {
						l = rate.NewLimiter(rate.Limit(float64(limit)/period.Seconds()), limit)
						limiters[key] = l
					}
					mu.Unlock()
				}
				return l.Allow()
			})
		}},
		{"echo", func(limit int, period time.Duration, keys int) func() func(string) bool {
			s := middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
				Rate: float64(limit) / period.Seconds(), Burst: limit, ExpiresIn: 2 * period,
			})
			return each(func(key string) bool {
				ok, err := s.Allow(key)
				return err == nil && ok
			})
		}},
		{"sethvargo", func(limit int, period time.Duration, keys int) func() func(string) bool {
			s, err := sethvargo.New(&sethvargo.Config{Tokens: uint64(limit), Interval: period})
			must(err)
			return each(func(key string) bool {
				_, _, _, ok, err := s.Take(ctx, key)
				return err == nil && ok
			})
		}},
		{"ulule", func(limit int, period time.Duration, keys int) func() func(string) bool {
			l := limiter.New(ulule.NewStore(), limiter.Rate{Limit: int64(limit), Period: period})
			return each(func(key string) bool {
				c, err := l.Get(ctx, key)
				return err == nil && !c.Reached
			})
		}},
		{"throttled", func(limit int, period time.Duration, keys int) func() func(string) bool {
			s, err := memstore.NewCtx(0) // 0: without its LRU, which forgets debtors
			must(err)
			// Its burst is what a key may spend beyond the first.
			q := throttled.RateQuota{MaxRate: throttled.PerDuration(limit, period), MaxBurst: limit - 1}
			l, err := throttled.NewGCRARateLimiterCtx(s, q)
			must(err)
			l.SetMaxCASAttemptsLimit(1 << 20)
			return each(func(key string) bool {
				limited, _, err := l.RateLimitCtx(ctx, key, 1)
				return err == nil && !limited
			})
		}},
	}
}
