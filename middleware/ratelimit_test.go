package middleware_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestRateLimitBuckets: what is counted together.
func TestRateLimitBuckets(t *testing.T) {
	one := policy("one", "1-H", 0)
	tests := []struct {
		name   string
		limits rateOptions
		want   string // of live, live, test, other; each twice, but for live
	}{
		{"organization", rateOptions{Organization: one}, "200 429 200 429 200 429"},
		{"sandbox of its own", rateOptions{Organization: one, Sandbox: policy("sandbox", "2-H", 0)},
			"200 429 200 200 200 429"},
		{"sandbox of the same name", rateOptions{Organization: one, Sandbox: policy("one", "2-H", 0)},
			"200 429 200 200 200 429"},
		{"sandbox alone", rateOptions{Sandbox: one}, "200 200 200 429 200 200"},
		{"key", rateOptions{Key: one}, "200 429 200 429 200 429"},
		{"client", rateOptions{Client: one}, "200 429 429 429 429 429"},
		{"plan", rateOptions{Plan: planned(one, nil)}, "200 429 200 429 200 429"},
		{"plan before the others", rateOptions{Organization: one, Sandbox: one, Plan: planned(ratelimit.Unlimited, nil)},
			"200 200 200 200 200 200"},
		{"none", rateOptions{}, "200 200 200 200 200 200"},
	}
	for _, tt := range tests {
		api, live, test, other := limited(t, tt.limits)
		if got := statusesOf(api, live, live, test, test, other, other); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// statusesOf are those of requests with these tokens to GET /api/v1/any.
func statusesOf(h http.Handler, tokens ...string) string {
	var got []string
	for _, token := range tokens {
		got = append(got, strconv.Itoa(serve(h, request("GET", "/api/v1/any", token, "")).StatusCode))
	}
	return strings.Join(got, " ")
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
		api, live, _, _ := limited(t, rateOptions{Organization: policy("organization", "1-H", 0)})
		token := strings.Replace(tt.token, "live", live, 1)
		wantAnswer(t, fmt.Sprintf("%s %s", tt.method, tt.path), serve(api, request(tt.method, tt.path, token, "")), tt.status)
		if res := serve(api, request("GET", "/api/v1/tasks", live, "")); (res.StatusCode == 429) != tt.charged {
			t.Errorf("%s %s: got %d from the next request, charged: %v", tt.method, tt.path, res.StatusCode, tt.charged)
		}
		if res := serve(api, request(tt.method, tt.path, token, "")); tt.charged {
			wantRefusal(t, tt.method+" "+tt.path+" over the limit", res, 429, "rate_limited", "")
		}
	}
}

// TestConcurrent: the slot of a request is free again however the request ends.
func TestConcurrent(t *testing.T) {
	entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	ring, token := oneKey(t)
	elsewhere := ring.plant(t, keystore.Key{Environment: keystore.Sandbox})
	routes := http.NewServeMux()
	routes.HandleFunc("GET /api/v1/x", func(w http.ResponseWriter, r *http.Request) {
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
	routes.HandleFunc("GET /api/v1/quick", sayOK)
	o := middleware.Options{Hooks: quiet(), RateLimit: rateOptions{Concurrent: 2}}
	api, g := middleware.NewAPI(ring.keys, o), middleware.New(ring.keys, o)
	api.Handle("GET /api/v1/{path}", middleware.AnyCaller(), routes)
	for form, h := range map[string]http.Handler{"API": api,
		"pieces": middleware.Chain(g.RequestID, g.Recover, anyCaller(g), g.RateLimit)(routes)} {
		srv := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("end") {
				defer func() { left <- struct{}{} }() // when the slot is free
			}
			h.ServeHTTP(w, r)
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
				t.Errorf("%s: got a wait of %v", form, got)
			}
			wantAnswer(t, fmt.Sprintf("%s, another environment", form), quick(elsewhere), 200)
			for _, c := range clients {
				if end == "disconnect" {
					c.Close()
				} else {
					leave <- struct{}{}
				}
			}
			<-left
			<-left
			wantAnswer(t, fmt.Sprintf("%s, %s", form, end), quick(token), 200)
		}
	}
}

func TestLimitsMistakes(t *testing.T) {
	store := &ratelimit.Memory{}
	p, q := policy("p", "1-S", 0), policy("p", "2-S", 0)
	for want, l := range map[string]rateOptions{
		"Options.RateLimit: there is a policy": {Organization: p},
		"a Plan, and Store is nil":             {Plan: planned(p, nil)},
		`two policies are named "p"`:           {Store: store, Organization: p, Key: q},
		`policies are named "p"`:               {Store: store, Sandbox: p, Client: q},
		"Concurrent is negative":               {Concurrent: -1},
		"unknown Fields \"draft-9\"":           {Fields: "draft-9"},
		`name "" is not a token`:               {Store: store, Key: &ratelimit.Policy{Limit: p.Limit}},
		`policy "p"`:                           {Store: store, Key: &ratelimit.Policy{Name: "p"}},
		`is not a token`:                       {Key: &ratelimit.Policy{Name: "a b", Limit: p.Limit}, Concurrent: -1},
	} {
		wantPanic(t, want, func() { middleware.New(nil, middleware.Options{RateLimit: l}) })
		wantPanic(t, want, func() { middleware.NewAPI(issuing.NewMemory(), middleware.Options{RateLimit: l}) })
	}
	unlimited := middleware.New(nil, middleware.Options{RateLimit: rateOptions{Store: store}})
	wantPanic(t, "RateLimit: a field of Options.RateLimit is set, and there is no limit",
		func() { unlimited.RateLimit(http.NotFoundHandler()) })
}

// TestRateLimitByClient: by address alone it needs no Authenticate, and the API
// finds the address behind its proxies.
func TestRateLimitByClient(t *testing.T) {
	ring, token := oneKey(t)
	options := func() middleware.Options {
		return middleware.Options{TrustedProxies: trust("10.0.0.0/8"),
			RateLimit: rateOptions{Store: &ratelimit.Memory{}, Client: policy("client", "1-H", 0)}}
	}
	for name, h := range map[string]http.Handler{
		"piece": middleware.New(nil, options()).RateLimit(sayOK),
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
	ring, token := oneKey(t)
	for _, name := range []string{"limit first", "idempotency first"} {
		synctest.Test(t, func(t *testing.T) {
			g := middleware.New(ring.keys, middleware.Options{
				Hooks:       quiet(),
				RateLimit:   rateOptions{Store: &ratelimit.Memory{}, Organization: policy("organization", "1-H", 0)},
				Idempotency: keyedOptions{Runner: replies()},
			})
			inner := middleware.Chain(g.RateLimit, g.Idempotent)
			if name == "idempotency first" {
				inner = middleware.Chain(g.Idempotent, g.RateLimit)
			}
			runs := 0
			h := middleware.Chain(g.RequestID, anyCaller(g), inner)(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { runs++ }))
			post := func(key string, status int, replayed string) answer {
				t.Helper()
				res := serve(h, request("POST", "/", token, "", "Idempotency-Key: "+key))
				if res.StatusCode != status || res.Header.Get("Idempotent-Replayed") != replayed {
					t.Errorf("%s: got %d, replayed %q; want %d, %q", name, res.StatusCode, res.Header.Get("Idempotent-Replayed"),
						status, replayed)
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
	says := func(p *ratelimit.Policy, err error) plan {
		return func(context.Context, *keystore.Caller) (_, _ *ratelimit.Policy, _ error) { return p, nil, err }
	}
	for _, tt := range []struct {
		name string
		plan plan
		want string // of two requests with a live key, and two with a test key
		log  string
	}{
		{"a policy", says(policy("plan", "1-H", 0), nil), "200 429 200 429", ""},
		{"nil", says(nil, nil), "200 200 200 429", ""},
		{"nil where there is no other", says(nil, nil), "503 503 503 503", "return ratelimit.Unlimited"},
		{"unlimited", says(ratelimit.Unlimited, nil), "200 200 200 200", ""},
		{"an error", says(nil, errors.New("billing is down")), "503 503 503 503", "billing is down"},
		{"an error and a policy", says(ratelimit.Unlimited, errors.New("billing is down")), "503 503 503 503",
			"billing is down"},
		{"a policy without a name", says(&ratelimit.Policy{Limit: ratelimit.MustParse("1-S")}, nil), "503 503 503 503",
			"is not a token"},
		{"a policy without a limit", says(&ratelimit.Policy{Name: "p"}, nil), "503 503 503 503", `policy \"p\"`},
	} {
		ring, log := newKeyring(), newLogged()
		live, test := ring.issue(t), ring.plant(t, keystore.Key{Environment: keystore.Sandbox})
		limits := rateOptions{Store: &ratelimit.Memory{}, Plan: tt.plan, Client: policy("client", "9-H", 0)}
		if tt.name != "nil where there is no other" {
			limits.Organization, limits.Sandbox = policy("organization", "2-H", 0), policy("sandbox", "1-H", 0)
		}
		api := testAPI(ring.keys, middleware.Options{Hooks: log.hooks(), RateLimit: limits})
		if got := statusesOf(api, live, live, test, test); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		if strings.HasPrefix(tt.want, "503") {
			wantRefusal(t, tt.name, serve(api, request("GET", "/api/v1/any", live, "")), 503, "rate_store_unavailable", "")
		}
		if text := log.String(); tt.log == "" && text != "" || tt.log != "" &&
			!(strings.Contains(text, "RateLimit.Plan gave no usable policy") && strings.Contains(text, tt.log)) ||
			strings.Contains(text, "store does not answer") {
			t.Errorf("%s: the log has %q, want %q in it", tt.name, text, tt.log)
		}
	}
}

// A fleet of children is no way round the limit of their key, and its plan is
// theirs.
func TestLimitOfChildren(t *testing.T) {
	for _, plan := range []bool{false, true} {
		ring := newKeyring()
		o := rateOptions{Store: &ratelimit.Memory{}, Key: &ratelimit.Policy{Name: "key", Limit: ratelimit.MustParse("5-H")}}
		if plan {
			o.Plan = func(_ context.Context, c *keystore.Caller) (_, _ *ratelimit.Policy, _ error) {
				limit, err := ratelimit.Parse(c.Attribute("rate"))
				return nil, &ratelimit.Policy{Name: "plan", Limit: limit}, err
			}
		}
		api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: o})
		tokens := []string{ring.plant(t, keystore.Key{ID: "root", Attributes: map[string]string{"rate": "5-H"}})}
		for _, k := range []keystore.Key{{ID: "one", Parent: "root"}, {ID: "two", Parent: "one"},
			{ID: "three", Parent: "two"}, {ID: "four", Parent: "root", Attributes: map[string]string{"rate": "99-H"}}} {
			tokens = append(tokens, ring.plant(t, k))
		}
		other := ring.plant(t, keystore.Key{Attributes: map[string]string{"rate": "5-H"}})
		for i := range 10 {
			want := 200
			if i >= 5 {
				want = 429
			}
			if res := serve(api, request("GET", "/api/v1/any", tokens[i%5], "")); res.StatusCode != want {
				t.Errorf("plan %v: request %d: got %d %s, want %d", plan, i, res.StatusCode, res.body, want)
			}
		}
		wantAnswer(t, fmt.Sprintf("plan %v: another key", plan), serve(api, request("GET", "/api/v1/any", other, "")), 200)
	}
}

// TestPlanOfKeys: each key has the limit of its own record, beside that of the
// organization, whose policy may have the same name.
func TestPlanOfKeys(t *testing.T) {
	ring := newKeyring()
	token := func(rate string) string {
		token, _ := ring.grant(t, keystore.Key{Attributes: map[string]string{"rate": rate}})
		return token
	}
	whole := &ratelimit.Policy{Name: "plan", Limit: ratelimit.MustParse("9-H")}
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: rateOptions{
		Store: &ratelimit.Memory{},
		Key:   &ratelimit.Policy{Name: "key", Limit: ratelimit.MustParse("2-H")},
		Plan: func(_ context.Context, p *keystore.Caller) (_, _ *ratelimit.Policy, _ error) {
			switch rate := p.Attribute("rate"); rate {
			case "usual":
				return whole, nil, nil
			case "none":
				return whole, ratelimit.Unlimited, nil
			default:
				limit, err := ratelimit.Parse(rate)
				return whole, &ratelimit.Policy{Name: "plan", Limit: limit}, err
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
	alike := keystore.Key{Organization: "org_2", Environment: keystore.Production,
		Attributes: map[string]string{"rate": "9-H"}}
	alike.ID = alike.Bind(scope.Default()).Tenant()
	mixed := ring.plant(t, alike)
	for range 9 {
		if res := serve(api, request("GET", "/api/v1/any", mixed, "")); res.StatusCode != 200 {
			t.Errorf("with the name of an organization's counter as its id: got %d", res.StatusCode)
		}
	}
}

// TestRouteLimit: a route's policy and cost are part of the one decision.
func TestRouteLimit(t *testing.T) {
	ring, token := oneKey(t)
	log := newLogged()
	api := middleware.NewAPI(ring.keys,
		middleware.Options{Hooks: log.hooks(), Idempotency: keyedOptions{Runner: replies()}, RateLimit: rateOptions{
			Store: &ratelimit.Memory{}, Fields: middleware.FieldsDraft11,
			Key: policy("key", "99-S", 0), Client: policy("client", "99-S", 0),
			// A plan, because a cost over the burst of a fixed policy is a mistake.
			Plan: planned(policy("organization", "10-H", 0), nil),
		}})
	exports := policy("exports", "1-H", 3)
	ok := sayOK
	api.Handle("GET /api/v1/export", middleware.AnyCaller(), ok, middleware.RouteOptions{Policy: exports})
	api.Handle("GET /api/v1/export/large", middleware.AnyCaller(), ok, middleware.RouteOptions{Policy: exports, Cost: 2})
	api.Handle("GET /api/v1/dear", middleware.AnyCaller(), ok, middleware.RouteOptions{Cost: 5})
	api.Handle("GET /api/v1/impossible", middleware.AnyCaller(), ok, middleware.RouteOptions{Cost: 11})
	steps := []struct {
		path, policy string
		status       int
		left, shared int64 // of organization and exports, -1: no such item
	}{
		{"/api/v1/export", "", 200, 9, 2},
		{"/api/v1/export/large", "", 200, 7, 0},
		{"/api/v1/export", "exports", 429, 7, 0},
		{"/api/v1/impossible", "", 400, 0, 0},
		{"/api/v1/dear", "", 200, 2, -1},
		{"/api/v1/dear", "organization", 429, 2, -1},
	}
	for _, tt := range steps {
		res := serve(api, request("GET", tt.path, token, ""))
		wantAnswer(t, tt.path, res, tt.status)
		if tt.status == 400 {
			if p := res.problem(t); p.Code != "bad_request" || res.Header.Get("Retry-After") != "" ||
				!strings.Contains(p.Detail, "more at once") {
				t.Errorf("%s: got %s", tt.path, res.body)
			}
			continue
		}
		names, left := "organization key client", map[string]int64{"exports": -1} // in one order
		if tt.shared >= 0 {
			names = "organization key exports client"
		}
		for _, field := range []string{"RateLimit-Policy", "RateLimit"} {
			var got []string
			for _, item := range items(t, res.Header, field) {
				got, left[item.name] = append(got, item.name), item.params["r"]
			}
			if strings.Join(got, " ") != names {
				t.Errorf("%s: %s names %q, want %s", tt.path, field, got, names)
			}
		}
		if left["organization"] != tt.left || left["exports"] != tt.shared {
			t.Errorf("%s: got %v, want %d and %d left", tt.path, left, tt.left, tt.shared)
		}
		if tt.status == 429 && res.problem(t).Policy != tt.policy {
			t.Errorf("%s: got %s, want policy %s", tt.path, res.body, tt.policy)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "a route costs more") ||
		!strings.Contains(text, `policy \"organization\", cost 11, burst 10`) {
		t.Errorf("got the log %s, want one line", text)
	}
	sandbox, _ := ring.grant(t, keystore.Key{Environment: keystore.Sandbox})
	wantAnswer(t, "sandbox of the same organization", serve(api, request("GET", "/api/v1/export", sandbox, "")), 200)
}

func TestRouteLimitMistakes(t *testing.T) {
	p := policy("p", "1-S", 3)
	store := rateOptions{Store: &ratelimit.Memory{}}
	taken := store
	taken.Key = p
	each := func(set func(o *rateOptions)) rateOptions {
		o := store
		o.Organization, o.Sandbox, o.Key, o.Client = policy("org", "9-S", 0), policy("sandbox", "9-S", 0),
			policy("key", "9-S", 0), policy("client", "9-S", 0)
		set(&o)
		return o
	}
	small := policy("small", "9-S", 3)
	plan := planned(nil, nil)
	for want, row := range map[string]struct {
		api   rateOptions
		route middleware.RouteOptions
	}{
		"Cost is negative":                  {store, middleware.RouteOptions{Cost: -1}},
		"Cost is set and no policy applies": {store, middleware.RouteOptions{Cost: 2}},
		"RouteOptions.Policy: ratelimit":    {store, middleware.RouteOptions{Policy: &ratelimit.Policy{Name: "x"}}},
		`more than the burst of policy "p"`: {store, middleware.RouteOptions{Policy: p, Cost: 4}},
		`more than the burst of policy "q"`: {store, middleware.RouteOptions{Policy: policy("q", "3-S", 0), Cost: 4}},
		`more than the burst of policy "observed"`: {store,
			middleware.RouteOptions{Policy: reportOnly("observed", "3-S"), Cost: 4}},
		`of policy "small", so no request under it would`: {
			each(func(o *rateOptions) { o.Organization = small }), middleware.RouteOptions{Cost: 4}},
		`burst of policy "small", so no request under it would`: {
			each(func(o *rateOptions) { o.Sandbox = small }), middleware.RouteOptions{Cost: 4}},
		`the burst of policy "small", so no request under it would`: {
			each(func(o *rateOptions) { o.Key = small }), middleware.RouteOptions{Cost: 4}},
		`than the burst of policy "small", so no request under it would`: {
			each(func(o *rateOptions) { o.Client, o.Plan = small, plan }), middleware.RouteOptions{Cost: 4}},
		"a rate limit and RateLimit.Store is nil": {rateOptions{}, middleware.RouteOptions{Policy: p}},
		`has the name "p" of one of the API's`:    {taken, middleware.RouteOptions{Policy: p}},
	} {
		api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{RateLimit: row.api})
		wantPanic(t, want, func() {
			api.Handle("GET /api/v1/x", middleware.AnyCaller(), sayOK, row.route)
		})
	}
	api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{RateLimit: store})
	add := func(path, limit string) {
		route := middleware.RouteOptions{Policy: policy("reports", limit, 0)}
		api.Handle("GET /api/v1/"+path, middleware.AnyCaller(), sayOK, route)
	}
	wantPanic(t, "RouteOptions are given more than once", func() {
		api.HandleFunc("GET /api/v1/two", middleware.AnyCaller(), sayOK, middleware.RouteOptions{}, middleware.RouteOptions{})
	})
	add("a", "100-H")
	add("b", "100-H")
	wantPanic(t, `a different rate limit of the name "reports"`, func() { add("c", "4-H") })
	// Some requests may pass where a plan chooses, and all where a limit only
	// reports.
	for _, o := range []rateOptions{
		each(func(o *rateOptions) { o.Organization, o.Sandbox, o.Plan = small, small, plan }),
		each(func(o *rateOptions) { o.Key, o.Plan = small, plan }),
		each(func(o *rateOptions) { o.Organization = reportOnly("organization", "1-S") }),
	} {
		middleware.NewAPI(issuing.NewMemory(), middleware.Options{RateLimit: o}).Handle(
			"GET /api/v1/x", middleware.AnyCaller(), sayOK, middleware.RouteOptions{Cost: 4})

	}
	// A cost of the whole burst passes once.
	middleware.NewAPI(issuing.NewMemory(), middleware.Options{RateLimit: store}).Handle(
		"GET /api/v1/x", middleware.AnyCaller(), sayOK, middleware.RouteOptions{Policy: p, Cost: 3})

}

// TestRateStores: behind a Failover each policy's mode decides. A store alone that
// fails, or breaks its contract, is an error of ours, and for a report-only limit
// no more than a line in the log.
func TestRateStores(t *testing.T) {
	mode := func(m ratelimit.Fallback) *ratelimit.Policy {
		p := policy("organization", "2-H", 0)
		p.Fallback = m
		return p
	}
	failover := func() ratelimit.Store {
		return ratelimit.NewFailover(failing, ratelimit.FailoverOptions{Logger: quiet().Logger})
	}
	says := func(d ratelimit.Decision) ratelimit.Store {
		return takeFunc(func(context.Context, []ratelimit.Charge) (ratelimit.Decision, error) { return d, nil })
	}
	type row struct {
		name      string
		limits    rateOptions
		want, log string
	}
	enforced, reported := policy("key", "1-H", 0), reportOnly("organization", "1-H")
	rows := []row{
		{"alone", rateOptions{Store: failing, Organization: mode(ratelimit.Open)}, "503", "store is down"},
		{"Local", rateOptions{Store: failover(), Organization: mode(ratelimit.Local)}, "200 200 429 429", ""},
		{"Closed", rateOptions{Store: failover(), Organization: mode(ratelimit.Closed)}, "503 503 503 503", ""},
		{"report-only", rateOptions{Store: failing, Organization: reported}, "200", "store is down"},
		{"report-only beside another", rateOptions{Store: failing, Organization: reported, Key: enforced},
			"503", "store is down"},
		{"a denial without a wait", rateOptions{Store: says(ratelimit.Decision{}), Key: enforced}, "429", ""},
	}
	for _, charge := range []int{-1, 1, 99} { // which does not exist
		store, name := says(ratelimit.Decision{Limiting: charge}), fmt.Sprint("a decision by charge ", charge)
		rows = append(rows, row{name, rateOptions{Store: store, Key: enforced}, "503", "broke its contract"},
			row{name + ", report-only", rateOptions{Store: store, Key: reported}, "200", "broke its contract"})
	}
	for _, tt := range rows {
		ring, token := oneKey(t)
		log := newLogged()
		tt.limits.Fields = middleware.FieldsDraft11
		api := testAPI(ring.keys, middleware.Options{Hooks: log.hooks(), RateLimit: tt.limits})
		for i, want := range strings.Fields(tt.want) {
			res := serve(api, request("GET", "/api/v1/any", token, ""))
			switch {
			case strconv.Itoa(res.StatusCode) != want:
				t.Errorf("%s, request %d: got %d, want %s", tt.name, i+1, res.StatusCode, want)
			case want == "503":
				wantRefusal(t, tt.name, res, 503, "rate_store_unavailable", "")
				if strings.Contains(res.body, errDown.Error()) {
					t.Errorf("%s: the cause is in the body: %s", tt.name, res.body)
				}
			case tt.name == "a denial without a wait":
				if got := wait(t, res); got != time.Second {
					t.Errorf("%s: got a wait of %v", tt.name, got)
				}
			case tt.log == "":
				items(t, res.Header, "RateLimit")
			}
		}
		if text := log.String(); !strings.Contains(text, tt.log) || strings.Contains(text, "panic") || tt.log != "" &&
			strings.Count(text, "\n") != 1 {
			t.Errorf("%s: got the log %q, want one line about %q", tt.name, text, tt.log)
		}
	}
}

// TestRateLimitFields reads the fields of draft-11 through a run of requests.
func TestRateLimitFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, live, _, _ := limited(t, rateOptions{
			Fields: middleware.FieldsDraft11, Organization: policy("organization", "4-M", 0), Key: policy("key", "100-S", 50),
		})
		for i := range 6 {
			path := []string{"/api/v1/tasks", "/api/v1/account", "/api/v1/none"}[i%3]
			res := serve(api, request("GET", path, live, ""))
			policies, states := items(t, res.Header, "RateLimit-Policy"), items(t, res.Header, "RateLimit")
			if got := fmt.Sprint(policies); got != "[{organization map[q:4 w:60]} {key map[q:100 w:1]}]" {
				t.Errorf("got policies %s", got)
			}
			if len(states) != 2 || states[0].name != "organization" || states[1].name != "key" {
				t.Fatalf("got states %v", states)
			}
			left := max(3-int64(i), 0)
			if got := states[0].params["r"]; got != left {
				t.Errorf("request %d: got %d left, want %d", i, got, left)
			}
			if (res.StatusCode == 429) != (i >= 4) {
				t.Errorf("request %d: got %d", i, res.StatusCode)
			}
			reset := min(int64(i)+1, 4) * 15 // until the bucket is full again
			if i >= 4 {
				reset = int64(wait(t, res).Seconds()) // or until the request may be repeated
			} else if res.Header.Get("Retry-After") != "" {
				t.Errorf("request %d: got Retry-After %q", i, res.Header.Get("Retry-After"))
			}
			if got := states[0].params["t"]; got != reset {
				t.Errorf("request %d: got t=%d, want %d", i, got, reset)
			}
			if got := states[1].params; got["r"] != 50-min(int64(i)+1, 4) || got["t"] != 1 {
				t.Errorf("request %d: got %v for the key", i, got)
			}
		}
	})
}

func TestRateLimitFieldsOfOddLimits(t *testing.T) {
	tests := []struct {
		name  string
		limit ratelimit.Limit
		want  string
	}{
		{"sub-second window", ratelimit.Limit{Count: 5, Period: 500 * time.Millisecond}, `"p";q=5 "p";r=4;t=1`},
		{"fraction of a second", ratelimit.Limit{Count: 5, Period: 1500 * time.Millisecond}, `"p";q=5 "p";r=4;t=1`},
		{"two seconds", ratelimit.Limit{Count: 5, Period: 2 * time.Second}, `"p";q=5;w=2 "p";r=4;t=1`},
		{"beyond fifteen digits", ratelimit.Limit{Count: 4e15, Period: 4e18 / 1e9 * time.Second},
			`"p";q=999999999999999;w=4000000000 "p";r=999999999999999;t=1`},
	}
	for _, tt := range tests {
		api, live, _, _ := limited(t, rateOptions{Fields: middleware.FieldsDraft11,
			Organization: &ratelimit.Policy{Name: "p", Limit: tt.limit}})
		res := serve(api, request("GET", "/api/v1/tasks", live, ""))
		items(t, res.Header, "RateLimit-Policy")
		items(t, res.Header, "RateLimit")
		if got := res.Header.Get("RateLimit-Policy") + " " + res.Header.Get("RateLimit"); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	api, live, _, _ := limited(t, rateOptions{Organization: policy("p", "5-S", 0)})
	if res := serve(api, request("GET", "/api/v1/tasks", live, "")); res.Header["Ratelimit"] != nil ||
		res.Header["Ratelimit-Policy"] != nil {
		t.Errorf("without the option: got %v", res.Header)
	}
}

// TestRateLimitFieldsOfGitHub: the fields tell of the limiting policy. After a
// refusal nothing is left, also where a cost is more than what is left.
func TestRateLimitFieldsOfGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, token := oneKey(t)
		api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: rateOptions{
			Store: &ratelimit.Memory{}, Fields: middleware.FieldsGitHub, Organization: policy("organization", "4-M",
				0), Key: policy("key", "100-S", 50),
		}})
		api.Handle("GET /api/v1/one", middleware.AnyCaller(), sayOK, middleware.RouteOptions{})
		api.Handle("GET /api/v1/two", middleware.AnyCaller(), sayOK, middleware.RouteOptions{Cost: 2})
		time.Sleep(300 * time.Millisecond)
		began := time.Now().Add(-300 * time.Millisecond).Unix()
		for _, tt := range []struct {
			path   string
			status int
			want   string
			reset  int64 // seconds after began, rounded up
		}{
			{"one", 200, "4 3 1 organization", 16},
			{"two", 200, "4 1 3 organization", 46},
			{"two", 429, "4 0 4 organization", 16},
			{"one", 200, "4 0 4 organization", 61},
			{"one", 429, "4 0 4 organization", 16},
		} {
			h := serve(api, request("GET", "/api/v1/"+tt.path, token, "")).Header
			var got []string
			for _, name := range []string{"Limit", "Remaining", "Used", "Resource"} {
				got = append(got, h.Get("X-RateLimit-"+name))
			}
			if text := strings.Join(got, " "); text != tt.want || h.Get("X-RateLimit-Reset") != fmt.Sprint(began+tt.reset) ||
				h["Ratelimit"] != nil {
				t.Errorf("%s: got %v, want %s and a reset at %d", tt.path, h, tt.want, began+tt.reset)
			}
			if (h.Get("Retry-After") == "") != (tt.status == 200) {
				t.Errorf("%s: got Retry-After %q, want status %d", tt.path, h.Get("Retry-After"), tt.status)
			}
		}
	})
}

// TestRateLimitTwice: two pieces, one by address before authentication and one
// behind it, make one field with an item of each.
func TestRateLimitTwice(t *testing.T) {
	ring, token := oneKey(t)
	limit := func(o rateOptions) *middleware.Guard {
		o.Store, o.Fields = &ratelimit.Memory{}, middleware.FieldsDraft11
		return middleware.New(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: o})
	}
	client, organization := limit(rateOptions{Client: policy("client", "9-S", 0)}),
		limit(rateOptions{Organization: policy("organization", "1-H", 0)})
	h := middleware.Chain(client.RequestID, client.RateLimit, anyCaller(organization), organization.RateLimit)(sayOK)
	for i, want := range []int{200, 429} {
		res := serve(h, request("GET", "/", token, ""))
		states, policies := items(t, res.Header, "RateLimit"), items(t, res.Header, "RateLimit-Policy")
		if res.StatusCode != want || len(states) != 2 || len(policies) != 2 || states[0].name != "client" ||
			states[1].name != "organization" || states[0].params["r"] != int64(8-i) {
			t.Errorf("got %d %v %v, want %d with an item of each stage", res.StatusCode, policies, states, want)
		}
	}
	if res := serve(h, request("GET", "/", "", "")); res.StatusCode != 401 || len(items(t, res.Header, "RateLimit")) != 1 {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
}

// TestReportOnlyLimits: a report-only policy refuses nothing, the Event says
// what it would have refused, and no enforced limit depends on it.
func TestReportOnlyLimits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits rateOptions
		steps  []string // a path, the status, what is reported and the policy of the Event
	}{
		{"a policy", rateOptions{Organization: reportOnly("organization", "1-H")},
			[]string{"/any 200 - -", "/any 200 rate_limited organization", "/any 200 rate_limited organization"}},
		{"beside one that is enforced",
			rateOptions{Organization: reportOnly("organization", "1-H"), Key: policy("key", "3-H", 0)},
			[]string{"/any 200 - key", "/any 200 rate_limited organization", "/any 200 rate_limited organization",
				"/any 429 - key"}},
		{"the other way round", rateOptions{Organization: policy("organization", "3-H", 0),
			Key: reportOnly("key", "1-H"), Client: reportOnly("client", "1-H")},
			[]string{"/any 200 - organization", "/any 200 rate_limited key", "/any 200 rate_limited key",
				"/any 429 - organization"}},
		{"chosen by the plan", rateOptions{Plan: planned(reportOnly("plan", "1-H"), nil)},
			[]string{"/any 200 - -", "/any 200 rate_limited plan"}},
		{"a route with a limit of its own", rateOptions{Organization: policy("organization", "9-H", 0)},
			[]string{"/own 200 - organization", "/own 200 rate_limited own", "/any 200 - organization"}},
		{"a cost over the burst", rateOptions{Organization: reportOnly("organization", "1-H")},
			[]string{"/five 200 bad_request -", "/any 200 - -"}},
		{"an unknown path", rateOptions{Organization: reportOnly("organization", "1-H")},
			[]string{"/none 404 - -", "/none 404 rate_limited organization"}},
	} {
		ring, token := oneKey(t)
		o, log := &observed{t: t}, newLogged()
		tt.limits.Store = &ratelimit.Memory{}
		api := testAPI(ring.keys, middleware.Options{Hooks: log.hooks(o.note), RateLimit: tt.limits})
		api.Handle("GET /api/v1/own", middleware.AnyCaller(), sayOK,
			middleware.RouteOptions{Policy: reportOnly("own", "1-H")})
		if tt.name == "a cost over the burst" { // elsewhere this is a panic
			api.Handle("GET /api/v1/five", middleware.AnyCaller(), sayOK, middleware.RouteOptions{Cost: 5})
		}
		for i, want := range tt.steps {
			path, _, _ := strings.Cut(want, " ")
			e, res := o.ask(api, request("GET", "/api/v1"+path, token, ""))
			got := fmt.Sprint(path, " ", res.StatusCode, " ", cmp.Or(e.ReportedCode, "-"), " ", cmp.Or(e.Policy, "-"))
			if got != want || e.Outcome == "" || e.Outcome == e.ReportedCode {
				t.Errorf("%s, request %d: got %s with the outcome %q, want %s", tt.name, i+1, got, e.Outcome, want)
			}
		}
		if log.String() != "" {
			t.Errorf("%s: got the log %s", tt.name, log)
		}
	}
}

type plan = func(context.Context, *keystore.Caller) (organization, key *ratelimit.Policy, err error)

// planned is a plan with the same policies for all.
func planned(organization, key *ratelimit.Policy) plan {
	return func(context.Context, *keystore.Caller) (_, _ *ratelimit.Policy, _ error) {
		return organization, key, nil
	}
}

// TestReportOnlyCharges: an enforced refusal charges no report-only policy, and
// the fields of the response tell of no report-only policy.
func TestReportOnlyCharges(t *testing.T) {
	ring, token := oneKey(t)
	store := &ratelimit.Memory{}
	reported, enforced := reportOnly("organization", "9-H"), policy("key", "2-H", 0)
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet(),
		RateLimit: rateOptions{Store: store, Organization: reported, Key: enforced, Fields: middleware.FieldsDraft11}})
	for i, status := range []int{200, 200, 429, 429} {
		res := serve(api, request("GET", "/api/v1/any", token, ""))
		wantAnswer(t, fmt.Sprint("request ", i+1), res, status)
		if fields := res.Header.Get("RateLimit-Policy") + res.Header.Get("RateLimit"); strings.Contains(fields,
			"organization") || !strings.Contains(fields, "key") {
			t.Errorf("request %d: got the fields %s", i+1, fields)
		}
	}
	d, err := store.Take(t.Context(), []ratelimit.Charge{{Policy: reported, Bucket: callerOf(t, ring).Tenant()}})
	if err != nil || d.States[0].Remaining != 7 {
		t.Errorf("got %+v, %v; want 7 of 9 left after two requests that were let through", d.States[0], err)
	}
}

// TestReportOnlyOrder: taking report-only policies out of a decision changes
// the order of no others. ratelimitredis keeps counters by the first of a
// decision.
func TestReportOnlyOrder(t *testing.T) {
	ring, token := oneKey(t)
	store := &lists{Store: &ratelimit.Memory{}}
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: rateOptions{
		Store: store, Organization: reportOnly("organization", "9-H"), Key: reportOnly("key",
			"9-H"), Client: policy("client", "9-H", 0),
	}})
	api.Handle("GET /api/v1/x", middleware.AnyCaller(), sayOK, middleware.RouteOptions{Policy: policy("route", "9-H", 0)})
	api.HandleFunc("GET /api/v1/y", middleware.AnyCaller(), sayOK)
	for path, want := range map[string]string{"/api/v1/x": "route client, organization key",
		"/api/v1/y": "client, organization key"} {
		store.first = nil
		serve(api, request("GET", path, token, ""))
		if got := strings.Join(store.first, ", "); got != want {
			t.Errorf("%s: got the decisions %s, want %s", path, got, want)
		}
	}
}

// TestFreeRoute: a route with ratelimit.Unlimited is charged to nothing, and
// the other routes are.
func TestFreeRoute(t *testing.T) {
	ring, token := oneKey(t)
	limits := middleware.PerOrganization("1-H")
	limits.Client, limits.Fields = policy("client", "1-H", 1), middleware.FieldsDraft11
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: limits})
	for _, path := range []string{"/free", "/gratis"} {
		api.HandleFunc("GET /api/v1"+path, middleware.AnyCaller(), sayOK,
			middleware.RouteOptions{Policy: ratelimit.Unlimited})
	}
	api.HandleFunc("GET /api/v1/charged", middleware.AnyCaller(), sayOK)
	for i, want := range []struct {
		path   string
		status int
	}{{"free", 200}, {"free", 200}, {"gratis", 200}, {"charged", 200}, {"charged", 429}, {"free", 200}} {
		a := serve(api, request("GET", "/api/v1/"+want.path, token, ""))
		if told := a.Header["Ratelimit"] != nil; a.StatusCode != want.status || told != (want.path == "charged") {
			t.Errorf("%d: %s got %d, RateLimit %t, want %d", i, want.path, a.StatusCode, told, want.status)
		}
	}
	wantPanic(t, "unlimited", func() {
		api.HandleFunc("GET /api/v1/costly", middleware.AnyCaller(), sayOK,
			middleware.RouteOptions{Policy: ratelimit.Unlimited, Cost: 2})
	})
	limits = rateOptions{Store: limits.Store, Concurrent: 1}
	api = middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: limits})
	api.HandleFunc("GET /api/v1/nested", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(serve(api, request("GET", "/api/v1/nested", token, "")).StatusCode)
	}, middleware.RouteOptions{Policy: ratelimit.Unlimited})
	wantAnswer(t, "a second request at once", serve(api, request("GET", "/api/v1/nested", token, "")), 429)
}

// TestQuotaExceeded: with the fields of the draft a refusal has its type too.
func TestQuotaExceeded(t *testing.T) {
	for fields, want := range map[string]string{
		middleware.FieldsDraft11: `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
			`"title":"Quota Exceeded","status":429,`,
		middleware.FieldsGitHub: `{"type":"about:blank","title":"Too Many Requests","status":429,`,
		"":                      `{"type":"about:blank",`,
	} {
		limits := middleware.PerOrganization("1-H")
		limits.Fields = fields
		ring, token := oneKey(t)
		api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: limits})
		serve(api, request("GET", "/api/v1/any", token, ""))
		a := serve(api, request("GET", "/api/v1/any", token, ""))
		violated := strings.Contains(a.body, `"policy":"organization","violated-policies":["organization"]`)
		if p := a.problem(t); !strings.HasPrefix(a.body, want) || violated != (fields == middleware.FieldsDraft11) ||
			p.Code != "rate_limited" {
			t.Errorf("with the fields %q: got %s, want %s", fields, a.body, want)
		}
	}
}
