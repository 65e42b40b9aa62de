package ratelimitredis_test

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

type (
	server = redistest.Server
	proxy  = redistest.Proxy
)

// patient leaves Redis more time than a busy machine needs.
var patient = ratelimit.FailoverOptions{Budget: redistest.Patience, Logger: slog.New(slog.DiscardHandler)}

// patientStore has its own prefix. The test fails if it decides without Redis.
func patientStore(t testing.TB, client redis.UniversalClient) *ratelimitredis.Store {
	return patientStoreAt(t, client, redistest.OwnPrefix(t, client))
}

func patientStoreAt(t testing.TB, client redis.UniversalClient, prefix string) *ratelimitredis.Store {
	s := ratelimitredis.New(client, ratelimitredis.Options{Prefix: prefix, Failover: patient})
	t.Cleanup(func() {
		if n := fallbacks(s); n > 0 {
			t.Errorf("%d decisions were made without Redis", n)
		}
	})
	return s
}

func policy(count int64, period time.Duration) *ratelimit.Policy {
	return &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: count, Period: period}}
}

func take(t testing.TB, s ratelimit.Store, charges ...ratelimit.Charge) ratelimit.Decision {
	t.Helper()
	d, err := s.Take(t.Context(), charges)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// scriptCalls returns how many scripts the server has run.
func scriptCalls(t testing.TB, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(info) {
		for _, name := range []string{"cmdstat_eval:calls=", "cmdstat_evalsha:calls="} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				number, _, _ := strings.Cut(rest, ",")
				n, err := strconv.Atoi(number)
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}
