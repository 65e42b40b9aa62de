package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// policy is a limit in the notation of ratelimit.Parse with its burst.
func policy(name, limit string, burst int64) *ratelimit.Policy {
	l := ratelimit.MustParse(limit)
	l.Burst = burst
	return &ratelimit.Policy{Name: name, Limit: l}
}

// limited is an API with limits and the tokens of two keys of org_1, production
// and sandbox, and of one of org_2.
func limited(t testing.TB, l middleware.RateLimitOptions) (api *middleware.API, live, test, other string) {
	t.Helper()
	ring := newKeyring()
	if l.Store == nil {
		l.Store = ratelimit.NewMemory()
	}
	live = ring.issue(t, scope.TasksRead)
	test, _ = ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead}})
	other, _ = ring.grant(t, keystore.Grant{Organization: "org_2", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksRead}})
	return testAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: l}), live, test, other
}

var wholeSeconds = regexp.MustCompile(`^[1-9][0-9]*$`)

// wait is what Retry-After tells, which has to be a whole number of seconds.
func wait(t testing.TB, res answer) time.Duration {
	t.Helper()
	text := res.Header.Get("Retry-After")
	if !wholeSeconds.MatchString(text) {
		t.Errorf("got Retry-After %q with %d", text, res.StatusCode)
	}
	n, _ := strconv.Atoi(text)
	return time.Duration(n) * time.Second
}

// TestRetryAfterHelps: whoever waits as long as it says is admitted, if nobody
// else spends, and whoever comes a second earlier is not.
func TestRetryAfterHelps(t *testing.T) {
	for _, tt := range []struct {
		limit string
		burst int64
		want  string
	}{
		{"10-S", 0, "1"}, {"10-S", 1, "1"}, {"1-S", 0, "1"}, {"100-M", 0, "1"}, {"7-M", 3, "9"}, {"3-M", 0, "20"}, {"1-M", 0, "60"}, {"25-H", 2, "144"}, {"1-D", 0, "86400"}, {"900-S", 5, "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			api, live, _, _ := limited(t, middleware.RateLimitOptions{Organization: policy("organization", tt.limit, tt.burst)})
			ask := func() answer { return serve(api, request("GET", "/api/v1/tasks", live, "")) }
			spend := func() answer {
				for {
					res := ask()
					if res.StatusCode == 429 {
						return res
					}
					if res.StatusCode != 200 || res.Header.Get("Retry-After") != "" {
						t.Fatalf("%s: got %d with Retry-After %q", tt.limit, res.StatusCode, res.Header.Get("Retry-After"))
					}
				}
			}
			for i := range 3 {
				res := spend()
				first := res.Header.Get("Retry-After")
				if i == 0 && first != tt.want {
					t.Errorf("%s: got Retry-After %q, want %q", tt.limit, first, tt.want)
				}
				for range 100 { // a refusal costs nothing
					if again := ask().Header.Get("Retry-After"); again != first {
						t.Fatalf("%s: got Retry-After %q after more refusals, %q before", tt.limit, again, first)
					}
				}
				time.Sleep(wait(t, res) - time.Second)
				if early := ask(); wait(t, res) > time.Second && early.StatusCode != 429 {
					t.Errorf("%s: got %d a second early", tt.limit, early.StatusCode)
				}
				time.Sleep(time.Second)
				if late := ask(); late.StatusCode != 200 {
					t.Errorf("%s: got %d after the wait", tt.limit, late.StatusCode)
				}
			}
		})
	}
}

// TestRateLimitRefusal: what the 429 says.
func TestRateLimitRefusal(t *testing.T) {
	api, live, _, _ := limited(t, middleware.RateLimitOptions{Organization: policy("burst", "1-S", 0), Key: policy("daily", "1-D", 0)})
	srv := start(t, api)
	do(t, srv.Client(), get(t, srv, "/api/v1/tasks", live))
	res := do(t, srv.Client(), get(t, srv, "/api/v1/tasks", live))
	wantRefusal(t, "over two limits", res, 429, "rate_limited", "")
	// The longer wait decides, and its policy is the one that is named.
	if got := wait(t, res); got < 23*time.Hour || res.problem(t).Policy != "daily" {
		t.Errorf("got Retry-After %v for policy %q, want a day for daily", got, res.problem(t).Policy)
	}
	if strings.Contains(res.body, "127.0.0.1") || res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %v %s", res.Header, res.body)
	}
}

// TestAllOrNothing: a request that one limit refuses costs the others nothing.
func TestAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		busy, calm := ring.issue(t, scope.TasksRead), ring.issue(t, scope.TasksRead)
		api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{
			Store: ratelimit.NewMemory(), Organization: policy("organization", "10-H", 0), Key: policy("key", "2-H", 5), Client: policy("client", "100-H", 0),
		}})
		statuses := func(token string, n int) map[int]int {
			got := map[int]int{}
			for range n {
				got[serve(api, request("GET", "/api/v1/tasks", token, "")).StatusCode]++
			}
			return got
		}
		if got := statuses(busy, 50); got[200] != 5 {
			t.Errorf("the busy key: got %v, want 5 times 200", got)
		}
		if got := statuses(calm, 50); got[200] != 5 {
			t.Errorf("the other key: got %v, want the 5 that are left of 10", got)
		}
	})
}

// TestRateLimitBuckets: what is counted together.
func TestRateLimitBuckets(t *testing.T) {
	one := policy("one", "1-H", 0)
	tests := []struct {
		name   string
		limits middleware.RateLimitOptions
		want   string // of live, live, test, other; each twice, but for live
	}{
		{"organization", middleware.RateLimitOptions{Organization: one}, "200 429 200 429 200 429"},
		{"sandbox of its own", middleware.RateLimitOptions{Organization: one, Sandbox: policy("sandbox", "2-H", 0)}, "200 429 200 200 200 429"},
		{"sandbox of the same name", middleware.RateLimitOptions{Organization: one, Sandbox: policy("one", "2-H", 0)}, "200 429 200 200 200 429"},
		{"sandbox alone", middleware.RateLimitOptions{Sandbox: one}, "200 200 200 429 200 200"},
		{"key", middleware.RateLimitOptions{Key: one}, "200 429 200 429 200 429"},
		{"client", middleware.RateLimitOptions{Client: one}, "200 429 429 429 429 429"},
		{"plan", middleware.RateLimitOptions{Plan: func(_ context.Context, p middleware.Principal) (*ratelimit.Policy, error) {
			if p.Organization() == "org_2" {
				return ratelimit.Unlimited, nil
			}
			return one, nil
		}}, "200 429 200 429 200 200"},
		{"plan before the others", middleware.RateLimitOptions{Organization: one, Sandbox: one, Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) {
			return ratelimit.Unlimited, nil
		}}, "200 200 200 200 200 200"},
		{"none", middleware.RateLimitOptions{}, "200 200 200 200 200 200"},
	}
	for _, tt := range tests {
		api, live, test, other := limited(t, tt.limits)
		var got []string
		for _, token := range []string{live, live, test, test, other, other} {
			got = append(got, strconv.Itoa(serve(api, request("GET", "/api/v1/tasks", token, "")).StatusCode))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, strings.Join(got, " "), tt.want)
		}
	}
}

// TestWhatIsCharged: whatever passes Authenticate costs, known route or not,
// and the limit answers before the scope and the mux.
func TestWhatIsCharged(t *testing.T) {
	for _, tt := range []struct {
		method, path, token string
		status              int
		charged             bool
	}{
		{"GET", "/api/v1/tasks", "live", 200, true},
		{"GET", "/api/v1/account", "live", 403, true},
		{"GET", "/api/v1/none", "live", 404, true},
		{"DELETE", "/api/v1/tasks", "live", 405, true},
		{"GET", "//api/v1/tasks", "live", 307, true},
		{"GET", "/elsewhere", "live", 404, true},
		{"GET", "/api/v1/tasks", "", 401, false},
		{"GET", "/api/v1/tasks", "x", 401, false},
	} {
		api, live, _, _ := limited(t, middleware.RateLimitOptions{Organization: policy("organization", "1-H", 0)})
		token := strings.Replace(tt.token, "live", live, 1)
		if res := serve(api, request(tt.method, tt.path, token, "")); res.StatusCode != tt.status {
			t.Errorf("%s %s: got %d, want %d", tt.method, tt.path, res.StatusCode, tt.status)
		}
		if res := serve(api, request("GET", "/api/v1/tasks", live, "")); (res.StatusCode == 429) != tt.charged {
			t.Errorf("%s %s: got %d from the next request, charged: %v", tt.method, tt.path, res.StatusCode, tt.charged)
		}
		if res := serve(api, request(tt.method, tt.path, token, "")); tt.charged {
			wantRefusal(t, tt.method+" "+tt.path+" over the limit", res, 429, "rate_limited", "")
		}
	}
}

// TestPlanChange: the new plan holds from the next request on, with a budget of
// its own. What was spent of the old one is still spent if it comes back.
func TestPlanChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := policy("plan", "10-M", 0)
		api, live, _, _ := limited(t, middleware.RateLimitOptions{Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return plan, nil }})
		ask := func() answer { return serve(api, request("GET", "/api/v1/tasks", live, "")) }
		for range 10 {
			ask()
		}
		if got := wait(t, ask()); got != 6*time.Second {
			t.Errorf("got a wait of %v", got)
		}
		small := plan
		for _, limit := range []string{"100-M", "1-H", "9-S"} {
			plan = policy("plan", limit, 0)
			admitted := int64(0)
			for ask().StatusCode == 200 {
				admitted++
			}
			if admitted != plan.Limit.Count {
				t.Errorf("changed to %s: %d requests were admitted", limit, admitted)
			}
		}
		plan = small
		if got := wait(t, ask()); got != 6*time.Second {
			t.Errorf("changed back: got a wait of %v", got)
		}
	})
}

// TestConcurrent: the slot of a request is free again however the request ends.
func TestConcurrent(t *testing.T) {
	entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	ring := newKeyring()
	token := ring.issue(t)
	elsewhere, _ := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Sandbox})
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{Concurrent: 2}})
	api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		end := r.URL.Query().Get("end")
		switch end {
		case "stream":
			io.WriteString(w, "first")
			w.(http.Flusher).Flush()
		case "hijack":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Errorf("Hijack: %v", err)
				return
			}
			defer conn.Close()
		}
		entered <- struct{}{}
		select {
		case <-leave:
		case <-r.Context().Done():
		}
		if end == "panic" {
			panic("boom")
		}
	})
	api.HandleFunc("GET /api/v1/quick", middleware.AnyKey(), sayOK)
	srv := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("end") {
			defer func() { left <- struct{}{} }() // when the slot is free
		}
		api.ServeHTTP(w, r)
	}))
	quick := func(token string) answer { return do(t, srv.Client(), get(t, srv, "/api/v1/quick", token)) }
	for _, end := range []string{"return", "panic", "stream", "hijack", "disconnect"} {
		var clients [2]*wire
		for i := range clients {
			clients[i] = dial(t, srv)
			clients[i].send("GET /api/v1/x?end=" + end + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\n\r\n")
			<-entered
		}
		res := quick(token)
		wantRefusal(t, "a third while two wait to "+end, res, 429, "too_many_concurrent", "")
		if got := wait(t, res); got != time.Second {
			t.Errorf("got a wait of %v", got)
		}
		if res := quick(elsewhere); res.StatusCode != 200 {
			t.Errorf("another environment: got %d", res.StatusCode)
		}
		for _, c := range clients {
			if end == "disconnect" {
				c.Close()
			} else {
				leave <- struct{}{}
			}
		}
		<-left
		<-left
		if res := quick(token); res.StatusCode != 200 {
			t.Errorf("%s: got %d after both have ended", end, res.StatusCode)
		}
	}
}

// TestConcurrentPiece: the stage by itself holds a slot while its handler runs,
// and frees it also when the handler panics.
func TestConcurrentPiece(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{Concurrent: 1}})
	var h http.Handler
	h = middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.RateLimit)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wantRefusal(t, "a second request", serve(h, request("GET", "/", token, "")), 429, "too_many_concurrent", "")
		if r.Method == "PUT" {
			panic("boom")
		}
	}))
	for _, tt := range []struct {
		method string
		status int
	}{{"GET", 200}, {"PUT", 500}, {"PUT", 500}, {"GET", 200}} {
		if res := serve(h, request(tt.method, "/", token, "")); res.StatusCode != tt.status {
			t.Errorf("%s: got %d %s, want %d", tt.method, res.StatusCode, res.body, tt.status)
		}
	}
}

func TestLimitsMistakes(t *testing.T) {
	store := ratelimit.NewMemory()
	p, q := policy("p", "1-S", 0), policy("p", "2-S", 0)
	for want, l := range map[string]middleware.RateLimitOptions{
		"Options.RateLimit: there is a policy and Store is nil": {Organization: p},
		"there is a policy and Store is nil":                    {Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return p, nil }},
		`two policies are named "p"`:                            {Store: store, Organization: p, Key: q},
		`policies are named "p"`:                                {Store: store, Sandbox: p, Client: q},
		"Concurrent is negative":                                {Concurrent: -1},
		"unknown Fields 3":                                      {Fields: 3},
		`name "" is not a token`:                                {Store: store, Key: &ratelimit.Policy{Limit: p.Limit}},
		`policy "p"`:                                            {Store: store, Key: &ratelimit.Policy{Name: "p"}},
		`is not a token`:                                        {Key: &ratelimit.Policy{Name: "a b", Limit: p.Limit}, Concurrent: -1},
	} {
		wantPanic(t, want, func() { middleware.New(nil, middleware.Options{RateLimit: l}) })
		wantPanic(t, want, func() { middleware.NewAPI(keystore.NewMemory(), middleware.Options{RateLimit: l}) })
	}
}

// TestRateLimitByClient: by address alone it needs no Authenticate, and the API
// finds the address behind its proxies.
func TestRateLimitByClient(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	options := func() middleware.Options {
		return middleware.Options{ClientIP: trust(t, "10.0.0.0/8"), RateLimit: middleware.RateLimitOptions{Store: ratelimit.NewMemory(), Client: policy("client", "1-H", 0)}}
	}
	for name, h := range map[string]http.Handler{
		"piece": middleware.New(nil, options()).RateLimit(http.HandlerFunc(sayOK)),
		"API":   testAPI(ring.keys, options()),
	} {
		var got []string
		for _, forwarded := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::1", "2001:db8::2"} {
			r := from("10.0.0.1:1", request("GET", "/api/v1/any", token, "", "X-Forwarded-For: "+forwarded))
			got = append(got, strconv.Itoa(serve(h, r).StatusCode))
		}
		if want := "200 200 429 200 429"; strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, want %s", name, strings.Join(got, " "), want)
		}
	}
}

// TestRateLimitThenIdempotency: a refusal is never taken for the operation's
// response, in either order of the two pieces.
func TestRateLimitThenIdempotency(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	guard := func() *middleware.Guard {
		return middleware.New(ring.keys, middleware.Options{
			Hooks:       quiet(),
			RateLimit:   middleware.RateLimitOptions{Store: ratelimit.NewMemory(), Organization: policy("organization", "1-H", 0)},
			Idempotency: middleware.IdempotencyOptions{Runner: replies()},
		})
	}
	for name, chain := range map[string]func() func(http.Handler) http.Handler{
		"limit first": func() func(http.Handler) http.Handler {
			g := guard()
			return middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey, g.RateLimit, g.Idempotent)
		},
		"idempotency first": func() func(http.Handler) http.Handler {
			g := guard()
			return middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey, g.Idempotent, g.RateLimit)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			h := chain()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { runs++ }))
			post := func(key string, status int, replayed string) answer {
				t.Helper()
				res := serve(h, request("POST", "/", token, "", "Idempotency-Key: "+key))
				if res.StatusCode != status || res.Header.Get("Idempotent-Replayed") != replayed {
					t.Errorf("%s: got %d, replayed %q; want %d, %q", name, res.StatusCode, res.Header.Get("Idempotent-Replayed"), status, replayed)
				}
				return res
			}
			post("first", 200, "")
			post("second", 429, "")
			time.Sleep(wait(t, post("second", 429, "")))
			post("second", 200, "")
			time.Sleep(time.Hour) // a replay costs too, where the limit is first
			post("second", 200, "true")
			if runs != 2 {
				t.Errorf("%s: got %d runs, want one for each key", name, runs)
			}
		})
	}
}

// TestPlan: what a plan's answer means.
func TestPlan(t *testing.T) {
	type plan = func(context.Context, middleware.Principal) (*ratelimit.Policy, error)
	says := func(p *ratelimit.Policy, err error) plan {
		return func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return p, err }
	}
	for _, tt := range []struct {
		name string
		plan plan
		want string // of two requests with a live key, and two with a test key
		log  string
	}{
		{"a policy", says(policy("plan", "1-H", 0), nil), "200 429 200 429", ""},
		{"nil", says(nil, nil), "200 200 200 429", ""},
		{"unlimited", says(ratelimit.Unlimited, nil), "200 200 200 200", ""},
		{"a miss of a map", func(_ context.Context, p middleware.Principal) (*ratelimit.Policy, error) {
			return map[string]*ratelimit.Policy{"org_9": ratelimit.Unlimited}[p.Organization()], nil
		}, "200 200 200 429", ""},
		{"an error", says(nil, errors.New("billing is down")), "503 503 503 503", "billing is down"},
		{"an error and a policy", says(ratelimit.Unlimited, errors.New("billing is down")), "503 503 503 503", "billing is down"},
		{"a policy without a name", says(&ratelimit.Policy{Limit: ratelimit.MustParse("1-S")}, nil), "503 503 503 503", "is not a token"},
		{"a policy without a limit", says(&ratelimit.Policy{Name: "p"}, nil), "503 503 503 503", `policy \"p\"`},
	} {
		ring, log := newKeyring(), newLogged()
		live := ring.issue(t)
		test, _ := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Sandbox})
		api := testAPI(ring.keys, middleware.Options{Hooks: log.hooks(), RateLimit: middleware.RateLimitOptions{
			Store: ratelimit.NewMemory(), Plan: tt.plan, Organization: policy("organization", "2-H", 0), Sandbox: policy("sandbox", "1-H", 0),
		}})
		var got []string
		for _, token := range []string{live, live, test, test} {
			res := serve(api, request("GET", "/api/v1/any", token, ""))
			got = append(got, strconv.Itoa(res.StatusCode))
			if res.StatusCode == 503 {
				wantRefusal(t, tt.name, res, 503, "rate_store_unavailable", "")
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, strings.Join(got, " "), tt.want)
		}
		if text := log.String(); tt.log == "" && text != "" || tt.log != "" && !(strings.Contains(text, "RateLimit.Plan or KeyPlan gave no usable policy") && strings.Contains(text, tt.log)) || strings.Contains(text, "store does not answer") {
			t.Errorf("%s: the log has %q, want %q in it", tt.name, text, tt.log)
		}
	}
}

// TestPlanAndRouteOfOneName: they do not share a counter.
func TestPlanAndRouteOfOneName(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{
		Store: ratelimit.NewMemory(),
		Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) {
			return policy("exports", "4-H", 0), nil
		},
	}})
	api.HandleWith("GET /api/v1/x", middleware.AnyKey(), middleware.RouteOptions{Limit: policy("exports", "4-H", 0)}, http.HandlerFunc(sayOK))
	var got []string
	for range 5 {
		got = append(got, strconv.Itoa(serve(api, request("GET", "/api/v1/x", token, "")).StatusCode))
	}
	if want := "200 200 200 200 429"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, " "), want)
	}
}

// TestKeyPlan: each key has the limit of its own record, beside that of the
// organization, whose plan may have the same name.
func TestKeyPlan(t *testing.T) {
	ring := newKeyring()
	token := func(rate string) string {
		token, _ := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Production, Attributes: map[string]string{"rate": rate}})
		return token
	}
	plan := &ratelimit.Policy{Name: "plan", Limit: ratelimit.MustParse("9-H")}
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{
		Store: ratelimit.NewMemory(),
		Plan:  func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return plan, nil },
		Key:   &ratelimit.Policy{Name: "key", Limit: ratelimit.MustParse("2-H")},
		KeyPlan: func(_ context.Context, p middleware.Principal) (*ratelimit.Policy, error) {
			switch rate := p.Attribute("rate"); rate {
			case "usual":
				return nil, nil
			case "none":
				return ratelimit.Unlimited, nil
			default:
				limit, err := ratelimit.Parse(rate)
				return &ratelimit.Policy{Name: "plan", Limit: limit}, err
			}
		},
	}})
	one, another, usual, none, broken := token("1-H"), token("1-H"), token("usual"), token("none"), token("nonsense")
	for i, tt := range []struct {
		token  string
		status int
		policy string
	}{
		{one, 200, ""}, {one, 429, "plan"}, {another, 200, ""}, // 2 of the organization's 9
		{usual, 200, ""}, {usual, 200, ""}, {usual, 429, "key"},
		{broken, 503, ""},
		{none, 200, ""}, {none, 200, ""}, {none, 200, ""}, {none, 200, ""}, {none, 200, ""},
		{none, 429, "plan"}, {usual, 429, "key"},
	} {
		res := serve(api, request("GET", "/api/v1/any", tt.token, ""))
		if res.StatusCode != tt.status || tt.status == 429 && res.problem(t).Policy != tt.policy {
			t.Errorf("request %d: got %d %s, want %d by %q", i+1, res.StatusCode, res.body, tt.status, tt.policy)
		}
	}
	// Counters of a key and of an organization stay apart, whatever the key's id.
	alike := keystore.Key{Organization: "org_2", Environment: keystore.Production, Attributes: map[string]string{"rate": "9-H"}}
	alike.ID = alike.Tenant()
	mixed := ring.plant(t, alike)
	for range 9 {
		if res := serve(api, request("GET", "/api/v1/any", mixed, "")); res.StatusCode != 200 {
			t.Errorf("with the name of an organization's counter as its id: got %d", res.StatusCode)
		}
	}
	guard := middleware.New(ring.keys, middleware.Options{RateLimit: middleware.RateLimitOptions{
		Store: ratelimit.NewMemory(), KeyPlan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return nil, nil },
	}})
	if res := serve(guard.RateLimit(http.HandlerFunc(sayOK)), request("GET", "/", "", "")); res.StatusCode != 500 {
		t.Errorf("by KeyPlan without Authenticate: got %d, want 500", res.StatusCode)
	}
	if err := (middleware.Options{RateLimit: middleware.RateLimitOptions{KeyPlan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return nil, nil }}}).Validate(); err == nil {
		t.Error("a KeyPlan without a Store was accepted")
	}
}
