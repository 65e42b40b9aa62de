package middleware_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

func quota(name string, units int64) *idem.Quota { return &idem.Quota{Name: name, Units: units} }

// smallQuota lets a tenant use five units a month.
func smallQuota(o *middleware.Options) {
	o.Quota.Organization, o.Idempotency.Runner = quota("monthly", 5), replies()
}

type quotaPlan = func(context.Context, *keystore.Caller) (organization, key *idem.Quota, err error)

// bought is a plan that names the same quotas for everybody.
func bought(organization, key *idem.Quota) quotaPlan {
	return func(context.Context, *keystore.Caller) (*idem.Quota, *idem.Quota, error) {
		return organization, key, nil
	}
}

// counted is an API of which GET and POST /api/v1/x use five units, and one tenant
// may use a thousand.
type counted struct {
	*observed
	o     middleware.Options
	route middleware.RouteOptions
	ring  *keyring
	token string
	store idem.Counter
	http.Handler
}

func newCounted(t testing.TB, h http.HandlerFunc, configure ...func(*counted)) *counted {
	c := &counted{observed: &observed{t: t}, store: &idem.Memory{}, route: middleware.RouteOptions{Units: 5}}
	c.ring, c.token = oneKey(t)
	c.o.Hooks, c.o.Quota.Organization = c.hooks(), quota("monthly", 1000)
	for _, configure := range configure {
		configure(c)
	}
	if c.o.Idempotency.Runner == nil {
		c.o.Idempotency.Runner = runnerOf(c.store)
	}
	api := middleware.NewAPI(c.ring.keys, c.o)
	for _, method := range []string{"GET", "POST"} {
		api.Handle(method+" /api/v1/x", middleware.AnyCaller(), h, c.route)
	}
	c.Handler = api
	return c
}

// send sends a POST with an Idempotency-Key, or a GET for "".
func (c *counted) send(key string) (middleware.Event, answer) {
	c.t.Helper()
	if key == "" {
		return c.ask(c, request("GET", "/api/v1/x", c.token, ""))
	}
	return c.ask(c, request("POST", "/api/v1/x", c.token, "{}", "Idempotency-Key: "+key))
}

// codes sends with each of the keys and returns the codes of refusals and the
// statuses of other responses.
func (c *counted) codes(keys ...string) string {
	c.t.Helper()
	var got []string
	for _, key := range keys {
		e, a := c.send(key)
		if e.Stage == "quota" {
			got = append(got, e.Outcome)
		} else {
			got = append(got, strconv.Itoa(a.StatusCode))
		}
	}
	return strings.Join(got, " ")
}

// used returns what counts on the tenant.
func (c *counted) used(name string) int64 {
	c.t.Helper()
	units, _, err := c.store.Used(context.Background(), idem.NewAccount(name, "production", "org_1"), time.Time{})
	if err != nil {
		c.t.Fatal(err)
	}
	return units
}

// adds is a handler that adds units before it does what h does.
func adds(n int64, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := middleware.AddUnits(r.Context(), n); err != nil {
			panic(err)
		}
		h(w, r)
	}
}

// An operation is charged for a 2xx, a 3xx and an outcome that is not known, in
// both modes, and its repeats are not. A request without a key is charged in any
// case. The Event tells.
func TestUnitsOfEachOutcome(t *testing.T) {
	for _, row := range []struct {
		name                  string
		h                     http.HandlerFunc
		leased, joined, plain int64
	}{
		{"200", steps("done"), 5, 5, 5},
		{"silent", steps(), 5, 5, 5},
		{"201", steps("201", "done"), 5, 5, 5},
		{"304", steps("304"), 5, 5, 5},
		{"399", steps("399"), 5, 5, 5},
		{"400", steps("400"), 0, 0, 5},
		{"403", steps("403"), 0, 0, 5},
		{"500", steps("500"), 0, 0, 5},
		{"free", steps("free", "201"), 0, 0, 5},
		{"FreeOn", steps("418"), 0, 0, 5},
		{"panic", steps("201", "panic"), 0, 0, 5},
		{"abort", steps("201", "abort"), 5, 0, 5},
		{"more", adds(3, steps("201")), 8, 8, 8},
		{"none more", adds(0, steps("201")), 5, 5, 5},
		{"more, 422", adds(3, steps("422")), 0, 0, 8},
		{"more, panic", adds(3, steps("panic")), 0, 0, 8},
		{"more, abort", adds(3, steps("abort")), 8, 0, 8},
		{"more, interrupted", adds(3, steps("end", "late")), 8, 0, 8},
		{"stream", adds(3, steps("Content-Type: text/event-stream", "a", "flush", "b")), 8, 8, 8},
		{"stream that fails", adds(3, steps("Content-Type: text/event-stream", "a", "flush", "panic")), 8, 8, 8},
		{"stream, free", steps("free", "Content-Type: text/event-stream", "a", "flush", "b"), 0, 0, 5},
		{"stream of a 404", steps("Content-Type: text/event-stream", "404", "a", "flush", "b"), 0, 0, 5},
	} {
		for mode, want := range map[string]int64{"leased": row.leased, "joined": row.joined, "plain": row.plain} {
			synctest.Test(t, func(t *testing.T) {
				c := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
					if mode == "plain" {
						ctx, cancel := context.WithTimeout(r.Context(), time.Second)
						defer cancel()
						r = r.WithContext(ctx)
					}
					row.h(w, r)
				}, func(c *counted) {
					c.o.Idempotency.FreeOn = []int{418}
					if mode == "joined" {
						store := newJoiner()
						c.store, c.o.Idempotency.Runner = store, joining(store)
					}
				})
				key := map[string]string{"plain": ""}
				name, has := key[mode]
				if !has {
					name = "a"
				}
				e, _ := c.send(name)
				if got := c.used("units"); got != want || e.Units != want {
					t.Errorf("%s, %s: charged %d, and the Event says %d; want %d", row.name, mode, got, e.Units, want)
				}
				if e, _ = c.send(name); name != "" && (c.used("units") != want || e.Outcome == "replayed" && e.Units != 0) {
					t.Errorf("%s, %s: after a repeat %d, want %d", row.name, mode, c.used("units"), want)
				}
			})
		}
	}
}

// A quota that is used up refuses what would begin, with a key and without, and
// not the repeats. The key is free, for the next period too.
func TestQuotaUsedUp(t *testing.T) {
	for _, period := range []idem.Period{idem.Month, idem.Day, idem.Lifetime} {
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int64
			c := newCounted(t, numbered(&runs, nil), func(c *counted) {
				c.o.Quota.Organization = &idem.Quota{Name: "sold", Units: 14, Period: period}
				c.o.RateLimit = middleware.PerOrganization("1000-S")
			})
			if got := c.codes("a", "", "b", "", "b", "a"); got != "201 201 quota_exceeded quota_exceeded quota_exceeded 201" {
				t.Errorf("%d: got %s", period, got)
			}
			for _, key := range []string{"b", ""} {
				e, a := c.send(key)
				wantRefusal(t, "over the quota", a, 403, "quota_exceeded", "")
				resets := []string{"2000-02-01T00:00:00Z", "2000-01-02T00:00:00Z", ""}[period]
				p := a.problem(t)
				if p.ResetsAt != resets || p.Policy != "sold" || a.Header.Get("X-Should-Retry") != "false" ||
					e.Stage != "quota" || e.Policy != "sold" || e.Burst != 0 || e.Units != 0 || e.Executed {
					t.Errorf("%d: got %+v %q and %+v", period, p, a.Header, e)
				}
			}
			if runs.Load() != 2 || c.used("units") != 10 {
				t.Errorf("%d: %d runs, %d units", period, runs.Load(), c.used("units"))
			}
			time.Sleep(32 * 24 * time.Hour)
			want := map[bool]string{true: "201", false: "quota_exceeded"}[period != idem.Lifetime]
			if got := c.codes("b"); got != want {
				t.Errorf("%d, in the next period: got %s, want %s", period, got, want)
			}
		})
	}
}

// Operations in progress hold their units. What they leave is free at once.
func TestQuotaHeld(t *testing.T) {
	inBubble(t, "held", func(t *testing.T) {
		release, h := make(chan struct{}), steps("201")
		c := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
			<-release
			h(w, r)
		}, func(c *counted) { c.o.Quota.Organization.Units, c.o.Hooks = 5, quiet() })
		first := make(chan answer)
		post := func(key string) answer {
			return serve(c, request("POST", "/api/v1/x", c.token, "{}", "Idempotency-Key: "+key))
		}
		h = steps("500")
		go func() { first <- post("a") }()
		synctest.Wait()
		a := post("b")
		wantRefusal(t, "held by another", a, 503, "too_many_in_flight", "")
		if p := a.problem(t); p.Policy != "monthly" || p.ResetsAt != "" || a.Header.Get("X-Should-Retry") != "true" {
			t.Errorf("held: got %+v %q", p, a.Header)
		}
		close(release)
		<-first
		h = steps("201")
		wantAnswer(t, "after a failure", post("b"), 201)
		wantAnswer(t, "used up", post("c"), 403)
		wantAnswer(t, "a repeat", post("b"), 201)
	})
}

// The quotas of a tenant and of a key, chosen by the options, a plan or the route.
func TestQuotas(t *testing.T) {
	one, two := quota("one", 5), quota("two", 10)
	type options = middleware.QuotaOptions
	for _, row := range []struct {
		name string
		o    options
		own  *idem.Quota
		want string // of the key, its child, the key, another key, another tenant
	}{
		{"organization", options{Organization: two}, nil, "201 201 403 403 201"},
		{"key", options{Key: one}, nil, "201 403 403 201 201"},
		{"both", options{Organization: two, Key: one}, nil, "201 403 403 201 201"},
		{"plan", options{Organization: one, Plan: bought(two, nil)}, nil, "201 201 403 403 201"},
		{"plan for keys", options{Plan: bought(nil, one)}, nil, "201 403 403 201 201"},
		{"plan beside the others", options{Organization: two, Plan: bought(nil, one)}, nil, "201 403 403 201 201"},
		{"unlimited", options{Organization: one, Key: two, Plan: bought(idem.Unlimited, idem.Unlimited)}, nil,
			"201 201 201 201 201"},
		{"no plan", options{Plan: bought(nil, nil)}, nil, "503 503 503 503 503"},
		{"a bad plan", options{Plan: bought(quota("bad", -1), nil)}, nil, "503 503 503 503 503"},
		{"a failing plan", options{Plan: func(context.Context, *keystore.Caller) (*idem.Quota, *idem.Quota, error) {
			return one, one, errDown
		}}, nil, "503 503 503 503 503"},
		{"the route's own", options{Organization: one}, two, "201 201 403 403 201"},
		{"the route's own alone", options{}, two, "201 201 403 403 201"},
	} {
		c := newCounted(t, steps("201"), func(c *counted) { c.o.Quota, c.route.Quota, c.o.Hooks = row.o, row.own, quiet() })
		parent, key := c.ring.grant(t, keystore.Key{})
		child := c.ring.plant(t, keystore.Key{ID: "child", Parent: key.ID})
		other := c.ring.plant(t, keystore.Key{ID: "elsewhere", Organization: "org_2"})
		var got []string
		for i, token := range []string{parent, child, parent, c.token, other} {
			lines := []string{"Idempotency-Key: " + strconv.Itoa(i)}
			got = append(got, strconv.Itoa(serve(c, request("POST", "/api/v1/x", token, "{}", lines...)).StatusCode))
		}
		if got := strings.Join(got, " "); got != row.want {
			t.Errorf("%s: got %s, want %s", row.name, got, row.want)
		}
		apart, all := int64(0), int64(5*strings.Count(row.want[:15], "201")) // of org_1
		if row.own != nil {
			apart, all = all, 0
		}
		if c.used("two") != apart || c.used("units") != all {
			t.Errorf("%s: %d and %d units count, want %d and %d", row.name, c.used("two"), c.used("units"), apart, all)
		}
	}
}

// A quota that is report-only counts, reports and refuses nothing.
func TestReportOnlyQuota(t *testing.T) {
	c := newCounted(t, steps("201"), func(c *counted) {
		c.o.Quota.Organization = &idem.Quota{Name: "soon", Units: 5, ReportOnly: true}
	})
	for i, want := range []string{"", "quota_exceeded", "quota_exceeded"} {
		e, a := c.send(fmt.Sprint(i))
		if a.StatusCode != 201 || e.ReportedCode != want || e.Units != 5 || e.Stage != "idempotency" {
			t.Errorf("%d: got %d and %+v, want %q reported", i, a.StatusCode, e, want)
		}
	}
}

// A store that hangs when it is asked what was used refuses nothing by a
// report-only quota, with the Timeout of the default.
func TestReportOnlyQuotaOfAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hung{&idem.Memory{}, make(chan struct{})}
		defer close(store.done)
		c := newCounted(t, sayOK, func(c *counted) {
			c.store, c.o.Idempotency.Runner = store, idem.NewRunner(store, idem.Options{})
			c.o.Quota.Organization.ReportOnly = true
			c.o.Quota.Key = &idem.Quota{Name: "key", Units: 1, ReportOnly: true}
		})
		if got := c.codes("a", ""); got != "200 200" {
			t.Errorf("got %s", got)
		}
	})
}

type hung struct {
	*idem.Memory
	done chan struct{}
}

func (h hung) Used(context.Context, idem.Account, time.Time) (int64, time.Time, error) {
	<-h.done
	return 0, time.Time{}, errors.New("the test has ended")
}

// Callers whom Options.ReportOnly lets pass unknown are not counted.
func TestUnitsWithoutACaller(t *testing.T) {
	var added error
	c := newCounted(t, func(w http.ResponseWriter, r *http.Request) { added = middleware.AddUnits(r.Context(), 1) },
		func(c *counted) { c.o.ReportOnly, c.o.Quota.Organization.Units = true, 5 })
	c.token = "wrong"
	if got := c.codes("a", ""); got != "200 200" || added == nil {
		t.Errorf("got %s, and AddUnits %v", got, added)
	}
	if middleware.AccountOf(nil) != "" {
		t.Error("nobody has an account")
	}
}

// AccountOf nests the account of a child in that of its parent, and keeps subjects
// apart from keys.
func TestAccountOf(t *testing.T) {
	ring := newKeyring()
	_, root := ring.grant(t, keystore.Key{ID: "root"})
	tenant := idem.NewAccount("units", "production", "org_1")
	for _, row := range []struct {
		key  keystore.Key
		want idem.Account
	}{
		{keystore.Key{ID: "one"}, tenant + "one\x00"},
		{keystore.Key{ID: "two", Parent: root.ID}, tenant + idem.NewAccount(root.ID, "two")},
		{keystore.Key{ID: "test", Environment: keystore.Sandbox}, idem.NewAccount("units", "sandbox", "org_1", "test")},
	} {
		var got idem.Account
		h := apiOf(ring.keys, middleware.Options{Hooks: quiet()}, middleware.AnyCaller(),
			func(w http.ResponseWriter, r *http.Request) {
				got = middleware.AccountOf(middleware.CallerFrom(r.Context()))
			})
		serve(h, request("GET", "/api/v1/x", ring.plant(t, row.key), ""))
		if got != row.want {
			t.Errorf("%+v: got %q, want %q", row.key, got, row.want)
		}
	}
	if got, want := middleware.AccountOf(by(t, "one")), tenant+"subject one\x00"; got != want {
		t.Errorf("a subject: got %q, want %q", got, want)
	}
}

// What a handler adds may go over the quota. It is refused when nothing is counted,
// and when the charge is made.
func TestAddUnits(t *testing.T) {
	var inside, late context.Context
	add := func(n int64) string {
		if err := middleware.AddUnits(inside, n); err != nil {
			return err.Error()
		}
		return ""
	}
	for _, key := range []string{"a", ""} {
		c := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
			inside, late = r.Context(), r.Context()
			if got := add(-1); !strings.Contains(got, "negative") {
				t.Errorf("a negative number: %q", got)
			}
			if got := add(1<<63 - 1); !strings.Contains(got, "int64") {
				t.Errorf("too large a number: %q", got)
			}
			inside = middleware.WithCaller(r.Context(), middleware.CallerFrom(r.Context()))
			if got := add(1); !strings.Contains(got, "no units are counted") {
				t.Errorf("for another caller: %q", got)
			}
			inside = r.Context()
			if got := add(2000) + add(1); got != "" {
				t.Errorf("in the handler: %s", got)
			}
		})
		if got := c.codes(key, key+"2", ""); got != "200 quota_exceeded quota_exceeded" || c.used("units") != 2006 {
			t.Errorf("%q: got %s and %d units", key, got, c.used("units"))
		}
		if inside = late; !strings.Contains(add(1), "charged already") {
			t.Errorf("%q, after the end: %q", key, add(1))
		}
	}
	c := newCounted(t, func(w http.ResponseWriter, r *http.Request) { inside = r.Context() },
		func(c *counted) { c.route.Units = 0 })
	if c.send("a"); !strings.Contains(add(1), "no units are counted") || c.used("units") != 0 {
		t.Errorf("a free route: %q", add(1))
	}
	if inside = context.Background(); !strings.Contains(add(1), "no units are counted") {
		t.Errorf("no request: %q", add(1))
	}
	store := newJoiner() // whose stream is committed before its first byte
	c = newCounted(t, func(w http.ResponseWriter, r *http.Request) {
		inside = r.Context()
		steps("Content-Type: text/event-stream", "a", "flush")(w, r)
		if got := add(1); !strings.Contains(got, "charged already") {
			t.Errorf("after the commit: %q", got)
		}
	}, func(c *counted) { c.store, c.o.Idempotency.Runner = store, joining(store) })
	if c.send("a"); c.used("units") != 5 {
		t.Errorf("after a stream that was committed: %d units", c.used("units"))
	}
}

// A transaction that is not committed charges nothing, and holds nothing more.
func TestUnitsOfAFailedCommit(t *testing.T) {
	store := newJoiner()
	c := newCounted(t, adds(1, steps("201")), func(c *counted) {
		c.store, c.o.Idempotency.Runner, c.o.Quota.Organization.Units = store, joining(store), 6
	})
	for _, err := range []error{errors.New("reset"), idem.ErrConstraint, idem.ErrBroken} {
		store.commit = func(_, undo func()) error { undo(); return err }
		if e, _ := c.send("a"); c.used("units") != 0 || e.Units != 0 {
			t.Errorf("%v: %d units, and the Event says %d", err, c.used("units"), e.Units)
		}
	}
	store.commit = func(do, _ func()) error { do(); return idem.ErrCommitUnknown }
	if e, _ := c.send("a"); c.used("units") != 6 || e.Units != 6 {
		t.Errorf("an unknown commit: %d units, and the Event says %d", c.used("units"), e.Units)
	}
}

// A take-over asks no quota, and its charge replaces that of the first attempt.
func TestUnitsOfATakeOver(t *testing.T) {
	h := adds(3, steps("abort"))
	c := newCounted(t, func(w http.ResponseWriter, r *http.Request) { h(w, r) }, func(c *counted) {
		c.o.Quota.Organization.Units, c.o.Idempotency.Runner = 20, runnerOf(c.store, idem.Options{Reexecute: true})
	})
	if c.send("a"); c.used("units") != 8 {
		t.Errorf("after the first attempt: %d units", c.used("units"))
	}
	h = adds(100, steps("201"))
	if got := c.codes("b", "c"); got != "201 quota_exceeded" || c.used("units") != 113 {
		t.Errorf("others: got %s and %d units", got, c.used("units"))
	}
	h = adds(1, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200 + middleware.ExecutionFrom(r.Context()).Attempt())
	})
	if got := c.codes("a", "a", "c"); got != "202 202 quota_exceeded" || c.used("units") != 111 {
		t.Errorf("after the take-over: got %s and %d units", got, c.used("units"))
	}
}

// Where the store does not count, nothing begins, and the key is free.
func TestUnitsThatCannotBeCounted(t *testing.T) {
	store := &uncountable{Memory: &idem.Memory{}}
	var runs atomic.Int64
	c := newCounted(t, numbered(&runs, nil), func(c *counted) { c.store = store })
	for range 6 { // more than an outage of claims takes
		for _, key := range []string{"a", ""} {
			store.reads.Store(true)
			_, a := c.send(key)
			wantRefusal(t, "no sum", a, 503, "idempotency_store_unavailable", "")
			if !strings.Contains(a.body, "cannot be counted") || a.Header.Get("X-Should-Retry") != "true" {
				t.Errorf("got %s", a.body)
			}
		}
	}
	store.reads.Store(false)
	store.counts.Store(true)
	if _, a := c.send(""); a.StatusCode != 503 || runs.Load() != 0 {
		t.Errorf("no charge: got %d after %d runs", a.StatusCode, runs.Load())
	}
	store.counts.Store(false)
	log, away := newLogged(), &uncountable{Memory: &idem.Memory{}}
	h := adds(3, func(http.ResponseWriter, *http.Request) { away.counts.Store(true) })
	more := newCounted(t, h, func(c *counted) {
		c.store, c.o.Hooks = away, log.hooks(c.note)
	})
	if e, _ := more.send(""); e.Status != 200 || e.Units != 5 || !strings.Contains(log.String(), "are not counted") {
		t.Errorf("no charge of what was added: got %d, %d units and\n%s", e.Status, e.Units, log)
	}
	if got := c.codes("a", ""); got != "201 201" || c.used("units") != 10 {
		t.Errorf("afterwards: got %s with %d units", got, c.used("units"))
	}
	// What stays charged if this process dies now.
	if got := store.claim; got.Units != 5 || got.Account.Within()[2] != idem.NewAccount("units", "production", "org_1") {
		t.Errorf("the claim is of %d units on %q", got.Units, got.Account)
	}
}

// A charge that is saved in the background counts, one of a claim that is gone does
// not.
func TestUnitsOfAClaimThatIsGone(t *testing.T) {
	inBubble(t, "saved later", func(t *testing.T) {
		store := &uncountable{Memory: &idem.Memory{}}
		c := newCounted(t, steps("201"), func(c *counted) {
			c.store, c.o.Idempotency.Runner, c.o.Quota.Organization.Units = store, idem.NewRunner(store, idem.Options{}), 5
		})
		store.settles.Store(true)
		if e, _ := c.send("a"); e.Status != 201 || e.Units != 5 {
			t.Errorf("got %d and %d units", e.Status, e.Units)
		}
		store.settles.Store(false)
		time.Sleep(time.Minute)
		if got := c.codes("b"); got != "quota_exceeded" || c.used("units") != 5 {
			t.Errorf("when it is saved: got %s and %d units", got, c.used("units"))
		}
	})
	store := &idem.Memory{}
	c := newCounted(t, func(w http.ResponseWriter, r *http.Request) { _, _ = store.Erase(r.Context(), "org_1") },
		func(c *counted) { c.store, c.o.Quota.Organization.Units = store, 5 })
	for range 2 {
		if e, a := c.send("a"); a.StatusCode != 409 || e.Units != 0 || c.used("units") != 0 {
			t.Errorf("erased: got %d %s and %d units", a.StatusCode, a.body, e.Units)
		}
	}
}

// uncountable is a counter that can be switched off.
type uncountable struct {
	*idem.Memory
	reads, counts, settles atomic.Bool
	claim                  idem.Claim // the last one
}

func (s *uncountable) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	s.claim = c
	return s.Memory.Begin(ctx, c)
}

func (s *uncountable) Settle(ctx context.Context, k idem.Key, c idem.ClaimToken, settlement idem.Settlement) error {
	if s.settles.Load() {
		return errDown
	}
	return s.Memory.Settle(ctx, k, c, settlement)
}

func (s *uncountable) Used(ctx context.Context, a idem.Account, since time.Time) (int64, time.Time, error) {
	if s.reads.Load() {
		return 0, time.Time{}, errDown
	}
	return s.Memory.Used(ctx, a, since)
}

func (s *uncountable) Count(ctx context.Context, a idem.Account, units int64) error {
	if s.counts.Load() || ctx.Err() != nil {
		return cmp.Or(ctx.Err(), errDown)
	}
	return s.Memory.Count(ctx, a, units)
}

// The client's leaving does not save it the units.
func TestUnitsOfAClientThatLeaves(t *testing.T) {
	store := &uncountable{Memory: &idem.Memory{}}
	var leave context.CancelFunc
	c := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
		leave()
		adds(3, sayOK)(w, r)
	}, func(c *counted) { c.store = store })
	for i, method := range []string{"GET", "POST"} {
		r := request(method, "/api/v1/x", c.token, "", "Idempotency-Key: a")
		ctx, cancel := context.WithCancel(t.Context())
		leave = cancel
		if serve(c, r.WithContext(ctx)); c.used("units") != int64(8*(i+1)) {
			t.Errorf("%s: %d units", method, c.used("units"))
		}
	}
}

// The pieces of a Guard count as an API does.
func TestGuardQuota(t *testing.T) {
	var runs atomic.Int64
	c := newCounted(t, sayOK, func(c *counted) { c.o.Quota.Organization.Units = 14; c.route.Units = 0 })
	g := middleware.New(c.ring.keys, c.o)
	outside := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.Enforce(middleware.AnyCaller()))
	mux := http.NewServeMux()
	mux.Handle("/api/v1/x", middleware.Chain(outside, g.Quota(5))(numbered(&runs, nil)))
	c.Handler = mux
	if got := c.codes("a", "", "a", "b", "", "a"); got != "201 201 201 quota_exceeded quota_exceeded 201" ||
		runs.Load() != 2 || c.used("units") != 10 {
		t.Errorf("got %s after %d runs, and %d units", got, runs.Load(), c.used("units"))
	}
}

// A Quota around a router counts for all its routes, and an Idempotent on one of
// them does nothing more.
func TestGuardQuotaAroundIdempotent(t *testing.T) {
	var runs atomic.Int64
	c := newCounted(t, sayOK, func(c *counted) { c.route.Units, c.o.Hooks = 0, quiet() })
	g := middleware.New(c.ring.keys, c.o)
	mux := http.NewServeMux()
	mux.Handle("/api/v1/x", g.Idempotent(numbered(&runs, nil)))
	h := middleware.Chain(g.RequestID, g.Recover, anyCaller(g), g.Quota(5))(mux)
	for range 2 {
		a := serve(h, request("POST", "/api/v1/x", c.token, "{}", "Idempotency-Key: a"))
		if a.StatusCode != 201 || c.used("units") != 5 || runs.Load() != 1 {
			t.Errorf("got %d after %d runs, and %d units", a.StatusCode, runs.Load(), c.used("units"))
		}
	}
}

// Stages in another order answer every request with 500, and charge nothing.
func TestMisplacedQuota(t *testing.T) {
	c := newCounted(t, sayOK, func(c *counted) { c.route.Units = 0 })
	log := newLogged()
	c.o.Hooks = log.hooks()
	g := middleware.New(c.ring.keys, c.o)
	outside := middleware.Chain(g.RequestID, g.Recover, g.Authenticate)
	enforce, count := g.Enforce(middleware.AnyCaller()), g.Quota(5)
	for i, stages := range []func(http.Handler) http.Handler{
		middleware.Chain(outside, count),
		middleware.Chain(outside, enforce, g.Idempotent, count),
		middleware.Chain(outside, enforce, count, count),
	} {
		want := []string{"Quota has no Enforce before it", "Quota stands inside an Idempotent"}[min(i, 1)]
		a := serve(stages(sayOK), request("POST", "/api/v1/x", c.token, "{}", "Idempotency-Key: a"))
		if wantRefusal(t, want, a, 500, "internal", ""); !strings.Contains(log.String(), want) || c.used("units") != 0 {
			t.Errorf("%s: %d units and\n%s", want, c.used("units"), log)
		}
	}
}

// A request that a handler makes of its own adds to no operation but its own.
func TestUnitsWithinARequest(t *testing.T) {
	var c *counted
	inner, depth := "", 0
	c = newCounted(t, func(w http.ResponseWriter, r *http.Request) {
		if depth++; depth == 1 {
			r := request("POST", "/api/v1/x", c.token, "{}", "Idempotency-Key: inner"+inner).WithContext(r.Context())
			r.RequestURI = ""
			c.ServeHTTP(httptest.NewRecorder(), r)
		}
		_ = middleware.AddUnits(r.Context(), 1)
		_, _ = io.WriteString(w, "ok")
	}, func(c *counted) { c.o.Hooks = quiet() })
	for i, method := range []string{"GET", "POST"} {
		inner, depth = method, 0
		serve(c, request(method, "/api/v1/x", c.token, "{}", "Idempotency-Key: outer"))
		if got, want := c.used("units"), int64(12*(i+1)); got != want || depth != 2 {
			t.Errorf("%s: %d units after %d runs, want %d", method, got, depth, want)
		}
	}
}

// A plan that panics leaves the key free and no execution behind.
func TestPlanThatPanics(t *testing.T) {
	broken := true
	c := newCounted(t, sayOK, func(c *counted) {
		c.o.Idempotency.Runner = idem.NewRunner(c.store, idem.Options{Wait: -1})
		c.o.Quota.Plan = func(context.Context, *keystore.Caller) (*idem.Quota, *idem.Quota, error) {
			if broken {
				panic("no plan")
			}
			return nil, nil, nil
		}
	})
	c.send("a")
	broken = false
	if got := c.codes("a"); got != "200" || c.used("units") != 5 {
		t.Errorf("after the panic: %s and %d units", got, c.used("units"))
	}
}

// A Guard whose quotas nothing asks says so.
func TestUnusedQuota(t *testing.T) {
	for _, uses := range []string{"", "Quota", "API"} {
		log := newLogged()
		c := newCounted(t, sayOK, func(c *counted) { c.o.Hooks = log.hooks() })
		g := middleware.New(c.ring.keys, c.o)
		if uses == "API" {
			g = c.Handler.(*middleware.API).Guard()
		}
		h := middleware.Chain(g.RequestID, anyCaller(g), g.Idempotent)(sayOK)
		if uses == "Quota" {
			g.Quota(1)
		}
		for range 2 {
			serve(h, request("GET", "/", c.token, ""))
		}
		if n := strings.Count(log.String(), "nothing counts units"); n != map[string]int{"": 1}[uses] {
			t.Errorf("units are counted by %q, and the log says %d times that it is not:\n%s", uses, n, log)
		}
	}
}

// Mistakes are found before a request comes.
func TestQuotaMistakes(t *testing.T) {
	ring := newKeyring()
	type options = middleware.QuotaOptions
	other := keyedOptions{Runner: idem.NewRunner(struct{ idem.Store }{&idem.Memory{}}, idem.Options{})}
	for want, o := range map[string]middleware.Options{
		`two quotas are named "x"`:                {Quota: options{Organization: quota("x", 1), Key: quota("x", 2)}},
		`Options.Quota: idem: quota "x" has 0`:    {Quota: options{Organization: quota("x", 0)}},
		`Options.Quota: idem: quota "unlimited"`:  {Quota: options{Key: idem.Unlimited}},
		"and Idempotency is Off":                  {Quota: options{Key: quota("x", 1)}, Idempotency: keyedOptions{Off: true}},
		"idemsql and idempgx do":                  {Quota: options{Plan: bought(nil, nil)}, Idempotency: other},
		"a struct { idem.Store }, does not count": {Quota: options{Key: quota("x", 1)}, Idempotency: other},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		wantPanic(t, want, func() { middleware.New(ring.keys, o) })
	}
	with := middleware.Options{Hooks: quiet(), Quota: options{Organization: quota("x", 1)}}
	type route = middleware.RouteOptions
	for _, row := range []struct {
		want string
		o    middleware.Options
		r    route
	}{
		{"Units is negative", with, route{Units: -1}},
		{"and Units is 0", with, route{Quota: quota("y", 1)}},
		{"neither Options.Quota nor RouteOptions.Quota", middleware.Options{Hooks: quiet()}, route{Units: 1}},
		{"Idempotency is Off or its store does not count", middleware.Options{Idempotency: keyedOptions{Off: true}},
			route{Units: 1, Quota: quota("y", 1)}},
		{"Idempotency is Off or its store does not count", middleware.Options{Idempotency: other},
			route{Units: 1, Quota: quota("y", 1)}},
		{"another store", with, route{Units: 1, Idempotency: keyedOptions{Runner: replies()}}},
		{`more than the quota "x" allows`, with, route{Units: 2}},
		{`more than the quota "y" allows`, with, route{Units: 2, Quota: quota("y", 1)}},
		{`the name "x" is taken`, with, route{Units: 1, Quota: quota("x", 1)}},
		{`the name "units" is taken`, with, route{Units: 1, Quota: quota("units", 1)}},
		{`RouteOptions.Quota: idem: quota "y"`, with, route{Units: 1, Quota: quota("y", 0)}},
		{`a different quota of the name "z"`, with, route{Units: 1, Quota: quota("z", 1)}},
	} {
		api := middleware.NewAPI(ring.keys, row.o)
		if row.o.Quota.Organization != nil {
			for _, path := range []string{"1", "2"} {
				api.Handle("GET /api/v1/"+path, middleware.AnyCaller(), sayOK, route{Units: 1, Quota: quota("z", 2)})
			}
		}
		wantPanic(t, row.want, func() { api.Handle("POST /api/v1/x", middleware.AnyCaller(), sayOK, row.r) })
	}
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet()})
	wantPanic(t, "Quota: there is no quota in Options.Quota", func() { g.Quota(1) })
	wantPanic(t, `2 units are more than the quota "x" allows`, func() { middleware.New(nil, with).Quota(2) })
	wantPanic(t, "must be positive", func() { middleware.New(ring.keys, with).Quota(0) })
}

// The next period is no help where the units are more than the quota of a plan.
func TestQuotaThatNeverSuffices(t *testing.T) {
	for units, want := range map[int64]bool{3: false, 5: true} {
		c := newCounted(t, sayOK, func(c *counted) { c.o.Quota.Plan = bought(quota("plan", units), nil) })
		c.send("a")
		e, a := c.send("b")
		if e.Outcome != "quota_exceeded" || strings.Contains(a.body, `"resets_at":`) != want {
			t.Errorf("a quota of %d: got %s %s", units, e.Outcome, a.body)
		}
	}
}
