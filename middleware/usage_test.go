package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// A caller sees what it has used of each quota, and is not charged for that.
func TestUsageOfQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which begins on 1 January 2000
		o := &observed{t: t}
		ring, token := oneKey(t)
		other := ring.issue(t)
		options := middleware.Options{Hooks: o.hooks()}
		options.Quota.Organization = quota("monthly", 12)
		options.Quota.Key = &idem.Quota{Name: "budget", Units: 7, Period: idem.Lifetime}
		api := middleware.NewAPI(ring.keys, options)
		api.HandleFunc("POST /api/v1/x", middleware.AnyCaller(), func(http.ResponseWriter, *http.Request) {},
			middleware.RouteOptions{Units: 5})
		api.Handle("GET /api/v1/usage", middleware.AnyCaller(), api.Guard().Usage())
		for _, token := range []string{token, other} {
			o.ask(api, request("POST", "/api/v1/x", token, "{}", "Idempotency-Key: "+token[len(token)-8:]))
		}
		time.Sleep(time.Second)
		for range 2 {
			_, a := o.ask(api, request("GET", "/api/v1/usage", token, ""))
			const want = `{"quotas":[{"name":"monthly","of":"organization","period":"month",` +
				`"units":12,"used":10,"left":2,"resets_at":"2000-02-01T00:00:00Z"},` +
				`{"name":"budget","of":"key","period":"lifetime","units":7,"used":5,"left":2}]}`
			if got := strings.TrimSpace(a.body); a.StatusCode != 200 || got != want ||
				a.Header.Get("Content-Type") != "application/json" || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("got %d %v\n%s\nwant\n%s", a.StatusCode, a.Header, got, want)
			}
		}
	})
}

// There is nothing to tell of nobody, and of an API without quotas, whatever its
// store.
func TestUsageOfNobody(t *testing.T) {
	ring := newKeyring()
	limited := middleware.Options{}
	limited.Quota.Organization = quota("monthly", 12)
	for name, o := range map[string]middleware.Options{
		"a quota": limited, "none": {}, "no store": {Idempotency: middleware.IdempotencyOptions{Off: true}},
	} {
		g := middleware.New(ring.keys, o)
		if all, err := g.UsageOf(t.Context(), nil); all != nil || err != nil {
			t.Errorf("%s: of nobody: got %v, %v", name, all, err)
		}
		all, err := g.UsageOf(t.Context(), callerOf(t, ring))
		if err != nil || len(all) > 0 != (name == "a quota") {
			t.Errorf("%s: got %v, %v", name, all, err)
		}
	}
}

// mute does not say what was used.
type mute struct{ idem.Memory }

func (*mute) Used(context.Context, idem.Account, time.Time) (int64, time.Time, error) {
	return 0, time.Time{}, errors.New("mute")
}

func TestUsageIsNotKnown(t *testing.T) {
	o := &observed{t: t}
	ring, token := oneKey(t)
	options := middleware.Options{Hooks: o.hooks()}
	options.Quota.Organization, options.Idempotency.Runner = quota("monthly", 12), runnerOf(&mute{})
	api := middleware.NewAPI(ring.keys, options)
	api.Handle("GET /api/v1/usage", middleware.AnyCaller(), api.Guard().Usage())
	_, a := o.ask(api, request("GET", "/api/v1/usage", token, ""))
	if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %v", a.StatusCode, a.Header)
	}
	// Without a caller there is nothing to tell.
	alone := middleware.New(ring.keys, options)
	_, a = o.ask(alone.RequestID(alone.Usage()), request("GET", "/", "", ""))
	if a.StatusCode != http.StatusInternalServerError {
		t.Errorf("without Authenticate: got %d, want 500", a.StatusCode)
	}
	defer func() {
		if recover() == nil {
			t.Error("without a quota Usage does not panic")
		}
	}()
	middleware.New(ring.keys, middleware.Options{}).Usage()
}
