package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestStats: what several routes or authenticators share counts once.
func TestStats(t *testing.T) {
	ring, runner := newKeyring(), replies()
	token := ring.issue(t, scope.TasksWrite)
	down := ratelimit.NewFailover(failing{}, ratelimit.FailoverOptions{Logger: quiet().Logger})
	for range 5 {
		_, _ = down.Take(t.Context(), []ratelimit.Charge{{Policy: &ratelimit.Policy{Name: "p", Limit: ratelimit.MustParse("1-H")}}})
	}
	o := middleware.Options{
		Hooks:       quiet(),
		RateLimit:   middleware.PerOrganization(down, ratelimit.MustParse("100-S")),
		Idempotency: middleware.IdempotencyOptions{Runner: runner},
	}
	keys := middleware.KeyAuthenticator(ring.keys, o)
	shared := o
	shared.Authenticator = middleware.Prefer(keys, keys)
	var during middleware.Stats
	for name, api := range map[string]*middleware.API{"alone": middleware.NewAPI(ring.keys, o), "joined": middleware.NewAPI(nil, shared)} {
		api.HandleWith("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Runner: runner}},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				during = api.Stats()
				w.WriteHeader(201)
			}))
		before := api.Stats()
		if res := serve(api, request("POST", "/api/v1/tasks", token, "", "Idempotency-Key: "+name)); res.StatusCode != 201 {
			t.Fatalf("%s: got %d %s", name, res.StatusCode, res.body)
		}
		if during.Runner != (idem.RunnerStats{Executions: 1}) {
			t.Errorf("%s: in the handler got %+v, want one execution", name, during.Runner)
		}
		after := api.Stats()
		if got := after.Keys; got.Usable != 1 || got.Hits+got.Asked != before.Keys.Hits+before.Keys.Asked+1 {
			t.Errorf("%s: got %+v after %+v, want one look-up more", name, got, before.Keys)
		}
		if after.Replies.Settled != before.Replies.Settled+1 || !after.LimitsDown || after.Fallbacks != before.Fallbacks+1 {
			t.Errorf("%s: got %+v after %+v", name, after, before)
		}
	}
	if got := middleware.New(keystore.NewMemory(), middleware.Options{}).Stats(); got != (middleware.Stats{}) {
		t.Errorf("without parts that count: got %+v", got)
	}
	small := ratelimit.NewMemory()
	for i := 0; small.Forgotten() == 0; i++ {
		if _, err := small.Take(t.Context(), []ratelimit.Charge{{Policy: &ratelimit.Policy{Name: "p", Limit: ratelimit.MustParse("1-H")}, Bucket: strconv.Itoa(i), Cost: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	limited := middleware.New(nil, middleware.Options{RateLimit: middleware.PerOrganization(small, ratelimit.MustParse("1-H"))})
	if got := limited.Stats().Forgotten; got == 0 || got != small.Forgotten() {
		t.Errorf("got %d forgotten buckets, want %d", got, small.Forgotten())
	}
}

// TestStatsOfRuns: what was never started is zero, and of several caches the
// figure is that of the one that has waited longest.
func TestStatsOfRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var caches [2]*keystore.Cached
		var authenticators [2]middleware.Authenticator
		o := middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(sweeping{replies().Store()}, idem.Options{})}}
		for i := range caches {
			caches[i] = keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
			authenticators[i] = middleware.KeyAuthenticator(caches[i], o)
		}
		o.Authenticator = middleware.FirstOf(authenticators[0], authenticators[1])
		g := middleware.New(nil, o)
		if got := g.Stats(); !got.Swept.Equal(sweptAt) {
			t.Errorf("swept at %v, want what the store says, %v", got.Swept, sweptAt)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range caches {
			if got := g.Stats().Keys.Polled; !got.IsZero() {
				t.Errorf("with %d of 2 polled: got %v, want zero", i, got)
			}
			time.Sleep(time.Second)
			go caches[i].Run(ctx)
			synctest.Wait()
		}
		if got, want := g.Stats().Keys.Polled, time.Now().Add(-time.Second); !got.Equal(want) {
			t.Errorf("got %v, want the older one, %v", got, want)
		}
	})
}

var sweptAt = time.Unix(1e9, 0)

type sweeping struct{ idem.Store }

func (sweeping) Swept() time.Time { return sweptAt }

func (failing) Take(context.Context, []ratelimit.Charge) (ratelimit.Decision, error) {
	return ratelimit.Decision{}, errors.New("away")
}

// TestStatsOfTwoRunners: each figure is the sum of those of all Runners.
func TestStatsOfTwoRunners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet()})
		var want idem.RunnerStats
		for _, path := range []string{"/api/v1/tasks", "/api/v1/notes"} {
			runner := runnerOf(&losing{Memory: idem.NewMemory(idem.MemoryOptions{})}, idem.Options{Lease: time.Second, Logger: quiet().Logger})
			api.HandleWith("POST "+path, middleware.Require(scope.TasksWrite), middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Runner: runner}},
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(2 * time.Second)
					w.WriteHeader(201)
				}))
			serve(api, request("POST", path, ring.issue(t, scope.TasksWrite), "", "Idempotency-Key: k"))
			time.Sleep(time.Minute) // until the settlement was tried again
			s := runner.Stats()
			if s.RenewalErrors == 0 || s.SaveErrors == 0 || s.Lost == 0 {
				t.Fatalf("got %+v, want errors of each kind", s)
			}
			want.RenewalErrors += s.RenewalErrors
			want.SaveErrors += s.SaveErrors
			want.Lost += s.Lost
		}
		if got := api.Stats().Runner; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// losing is a store that renews nothing, fails at the first settlement and has
// lost the claim at the second.
type losing struct {
	*idem.Memory
	settlements atomic.Int64
}

func (*losing) Extend(context.Context, idem.Key, idem.ClaimToken, time.Duration) error {
	return errors.New("away")
}

func (l *losing) Settle(context.Context, idem.Key, idem.ClaimToken, idem.Settlement) error {
	if l.settlements.Add(1) == 1 {
		return errors.New("away")
	}
	return idem.ErrLost
}
