package middleware_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"regexp"
	"slices"
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

// TestValidate: a configuration hears of all its mistakes at once, and New and
// NewAPI panic with the same text.
func TestValidate(t *testing.T) {
	bad := &ratelimit.Policy{Name: "same", Limit: ratelimit.Limit{Count: -1, Period: time.Second}}
	o := middleware.Options{
		Base:            "api",
		RequestIDHeader: "Content-Type",
		Service:         keystore.Service{Prefix: "No!"},
		Environment:     "staging",
		TrustedProxies:  trust("10.0.0.0/8", "::/0", "0.0.0.0/0", "::ffff:10.0.0.0/104"),
		Failures:        ratelimit.Limit{Count: -1},
		RateLimit:       rateOptions{Organization: bad, Key: bad, Concurrent: -1},
		Idempotency: keyedOptions{
			Off: true, Methods: []string{"GET", "post", "", "PO ST"}, MaxBody: 2, MaxBodies: 1, Timeout: -1,
			FreeOn: []int{200}, Streaming: []string{"text/x-log; charset=utf-8"},
		},
	}
	err := o.Validate()
	if err == nil {
		t.Fatal("got no error")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, want := range []string{
		`Options.Base: "api" is not a path`,
		`Options.RequestIDHeader: "Content-Type" is a standard header`,
		`prefix "No!"`, `unknown environment "staging"`, "Options.Failures: ratelimit:",
		"Options.TrustedProxies: ::/0 is every address", "0.0.0.0/0 is every", "::ffff:10.0.0.0/104 matches no address",
		`two policies are named "same"`, "there is a policy or a Plan, and Store is nil", "Concurrent is negative",
		"leave GET out of Methods", `"post" in Methods`, `"" in Methods`, `"PO ST" in Methods`,
		"MaxBody, MaxBodies, MaxResponse or Timeout is negative", "is smaller than twice MaxBody", "FreeOn has 200",
		`charset=utf-8" in Streaming`, "Options.Idempotency: it is Off, and another field is set",
	} {
		n := 0
		for _, line := range lines {
			if strings.Contains(line, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("got %d lines about %q, want one, in\n%s", n, want, err)
		}
	}
	if got := strings.Count(err.Error(), "ratelimit: policy"); got != 3 {
		t.Errorf("got %d lines about policies that are not valid, want 3, in\n%s", got, err)
	}
	wantPanic(t, err.Error(), func() { middleware.New(nil, o) })
	wantPanic(t, err.Error(), func() { middleware.NewAPI(nil, o) })
}

func TestValidateAccepts(t *testing.T) {
	for name, o := range map[string]middleware.Options{
		"nothing":  {},
		"statuses": {Idempotency: keyedOptions{Runner: replies(), FreeOn: []int{400, 599}}},
		"one name for organization and sandbox": {RateLimit: rateOptions{
			Store:        &ratelimit.Memory{},
			Organization: &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("9-S")},
			Sandbox:      &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("1-S")},
		}},
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestRequestIDHeadersWithAMeaning: the id may not take the place of a header
// that clients or proxies read.
func TestRequestIDHeadersWithAMeaning(t *testing.T) {
	for header, ok := range map[string]bool{
		"X-Request-Id": true, "Contents": true, "content-length": false, "Access-Control-Allow-Origin": false,
		"Set-Cookie": false, "X-RateLimit-Reset": false, "RateLimit": false, "Idempotent-Replayed": false, "LOCATION": false,
		"two words": false, "Transfer-Encoding": false, "Trailer": false, "Retry-After": false,
	} {
		err := middleware.Options{RequestIDHeader: header}.Validate()
		if (err == nil) != ok {
			t.Errorf("%s: got %v", header, err)
		}
	}
}

// probed is what TestEveryOption changes.
type probed struct {
	o        middleware.Options
	route    middleware.RouteOptions
	uncached bool // NewAPI gets a key store that has no Service of its own
	lastUsed *keystore.Uses
	uses     *uses
	log      bytes.Buffer
}

// TestEveryOption: each option changes what a fixed list of requests sees. A
// field that nobody has written a row for fails.
func TestEveryOption(t *testing.T) {
	one := func(name string) *ratelimit.Policy { return policy(name, "1-H", 0) }
	rows := map[string]func(*probed){
		"Options.Base":                  func(p *probed) { p.o.Base = "/v2" },
		"Options.Service":               func(p *probed) { p.o.Service.Prefix, p.uncached = "acme", true },
		"Options.Authenticate":          func(p *probed) { p.o.Authenticate = session(by(t, "user")) },
		"Options.Failures":              func(p *probed) { p.o.Failures = ratelimit.MustParse("1-H") },
		"Options.TrustedProxies":        func(p *probed) { p.o.TrustedProxies = trust("192.0.2.0/24") }, // the peer
		"Options.TrustUnixSocket":       func(p *probed) { p.o.TrustUnixSocket = true },
		"Options.Hooks":                 func(p *probed) { p.o.Hooks = &middleware.Hooks{Logger: quiet().Logger} },
		"Options.RequestIDHeader":       func(p *probed) { p.o.RequestIDHeader = "Acme-Request-Id" },
		"Options.TrustRequestID":        func(p *probed) { p.o.TrustRequestID = func(*http.Request) bool { return true } },
		"Options.KeyHeader":             func(p *probed) { p.o.KeyHeader = "X-API-Key" },
		"Options.Environment":           func(p *probed) { p.o.Environment = keystore.Sandbox },
		"Options.RejectBrowsers":        func(p *probed) { p.o.RejectBrowsers = true },
		"Options.Uses":                  func(p *probed) { p.o.Uses = p.lastUsed },
		"RateLimitOptions.Store":        func(p *probed) { p.o.RateLimit.Store = failing },
		"RateLimitOptions.Organization": func(p *probed) { p.o.RateLimit.Organization = one("x") },
		"RateLimitOptions.Sandbox":      func(p *probed) { p.o.RateLimit.Sandbox = one("x") },
		"RateLimitOptions.Plan":         func(p *probed) { p.o.RateLimit.Plan = planned(one("x"), nil) },
		"RateLimitOptions.Key":          func(p *probed) { p.o.RateLimit.Key = one("x") },
		"RateLimitOptions.Client":       func(p *probed) { p.o.RateLimit.Client = one("x") },
		"RateLimitOptions.Concurrent":   func(p *probed) { p.o.RateLimit.Concurrent = 1 },
		"RateLimitOptions.Fields":       func(p *probed) { p.o.RateLimit.Fields = middleware.FieldsGitHub },
		"QuotaOptions.Organization":     func(p *probed) { p.o.Quota.Organization, p.route.Units = quota("x", 5), 5 },
		"QuotaOptions.Key":              func(p *probed) { p.o.Quota.Key, p.route.Units = quota("x", 5), 5 },
		"QuotaOptions.Plan":             func(p *probed) { p.o.Quota.Plan, p.route.Units = bought(quota("x", 5), nil), 5 },
		"RouteOptions.Quota":            func(p *probed) { p.route.Quota, p.route.Units = quota("x", 5), 5 },
		"RouteOptions.Units":            func(p *probed) { p.route.Quota, p.route.Units = quota("x", 5), 2 },
		"IdempotencyOptions.Runner":     func(p *probed) { p.o.Idempotency.Runner = nil },
		"IdempotencyOptions.Off":        func(p *probed) { p.o.Idempotency = keyedOptions{Off: true} },
		"IdempotencyOptions.Methods":    func(p *probed) { p.o.Idempotency.Methods = []string{"PUT"} },
		"IdempotencyOptions.Required":   func(p *probed) { p.o.Idempotency.Required = true },
		"IdempotencyOptions.Partition": func(p *probed) {
			p.o.Idempotency.Partition = func(r *http.Request) string { return r.Header.Get("X-Part") }
		},
		"IdempotencyOptions.CanonicalHost": func(p *probed) {
			p.o.Idempotency.CanonicalHost = func(string) string { return "one" }
		},
		"IdempotencyOptions.JSONByValue":    func(p *probed) { p.o.Idempotency.JSONByValue = true },
		"IdempotencyOptions.MismatchStatus": func(p *probed) { p.o.Idempotency.MismatchStatus = 409 },
		"IdempotencyOptions.EchoKey":        func(p *probed) { p.o.Idempotency.EchoKey = true },
		"IdempotencyOptions.MaxBody":        func(p *probed) { p.o.Idempotency.MaxBody = 1 },
		"IdempotencyOptions.MaxBodies":      func(p *probed) { p.o.Idempotency.MaxBodies = 1 },
		"IdempotencyOptions.MaxResponse":    func(p *probed) { p.o.Idempotency.MaxResponse = 1 },
		"IdempotencyOptions.Streaming":      func(p *probed) { p.o.Idempotency.Streaming = []string{"text/x-log"} },
		"IdempotencyOptions.Timeout":        func(p *probed) { p.o.Idempotency.Timeout = time.Minute },
		"IdempotencyOptions.FreeOn":         func(p *probed) { p.o.Idempotency.FreeOn = []int{418} },
		"Options.ResourceMetadata":          func(p *probed) { p.o.ResourceMetadata = "https://example.com/meta" },
		"Options.NoShouldRetry":             func(p *probed) { p.o.NoShouldRetry = true },
		"Options.ReportOnly":                func(p *probed) { p.o.ReportOnly = true },
		"RouteOptions.Policy":               func(p *probed) { p.route.Policy = one("x") },
		"RouteOptions.Cost":                 func(p *probed) { p.route.Cost = 600 },
		"RouteOptions.Idempotency":          func(p *probed) { p.route.Idempotency = keyedOptions{Required: true} },
		"RouteOptions.Deprecated":           func(p *probed) { p.route.Deprecated = time.Unix(1e9, 0) },
		"RouteOptions.Sunset":               func(p *probed) { p.route.Sunset = time.Unix(1e9, 0) },
		"RouteOptions.Successor":            func(p *probed) { p.route.Successor, p.route.Sunset = "/v2", time.Unix(2e9, 0) },
		"Hooks.Logger":                      func(p *probed) { p.o.Hooks.Logger = p.o.Hooks.Logger.With("own", true) },
		"Hooks.ProblemBody": func(p *probed) {
			p.o.Hooks.ProblemBody = func(*http.Request, middleware.Problem) (string, []byte) {
				return "text/plain", []byte("no")
			}
		},
		"Hooks.Observe": func(p *probed) { p.o.Hooks.Observe = nil },
		"Hooks.Pattern": func(p *probed) {
			p.o.Hooks.Pattern = func(*http.Request) string { return "a pattern of another router" }
		},
	}
	synctest.Test(t, func(t *testing.T) {
		usual := transcript(t, func(*probed) {})
		if again := transcript(t, func(*probed) {}); again != usual || strings.HasPrefix(usual, "refused") {
			t.Fatalf("the requests see different things without a change:\n%s\n%s", usual, again)
		}
		for name, set := range rows {
			got, refusal := transcript(t, set), ""
			if name == "IdempotencyOptions.MaxBodies" { // no bodies that take so long are sent here
				refusal = "refused: middleware: Options.Idempotency: MaxBodies, which is 256 MiB if it is 0, " +
					"is smaller than twice MaxBody"
			}
			if got == usual || strings.HasPrefix(got, "refused") && got != refusal {
				t.Errorf("%s has no effect, or is refused: %.200s", name, got)
			}
		}
	})
	own := []reflect.Type{
		reflect.TypeFor[middleware.Options](),
		reflect.TypeFor[rateOptions](), reflect.TypeFor[keyedOptions](), reflect.TypeFor[middleware.QuotaOptions](),
		reflect.TypeFor[middleware.RouteOptions](), reflect.TypeFor[middleware.Hooks](),
	}
	for _, options := range own {
		for _, field := range reflect.VisibleFields(options) {
			name := options.Name() + "." + field.Name
			if rows[name] == nil && field.IsExported() && !slices.Contains(own, field.Type) {
				t.Errorf("no row says what %s does", name)
			}
			delete(rows, name)
		}
	}
	for name := range rows {
		t.Errorf("there is no field %s", name)
	}
}

// transcript returns what requests to an API and a Guard see, and what is
// logged, observed and recorded; or the text of the panic that refuses the
// options.
func transcript(t *testing.T, set func(*probed)) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint("refused: ", p)
		}
	}()
	ring := newKeyring()
	full := ring.issue(t, scope.TasksWrite)
	poor := ring.issue(t)
	sandbox, _ := ring.grant(t, keystore.Key{Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksWrite}})
	bound, _ := ring.grant(t, keystore.Key{Scopes: []scope.Name{scope.TasksWrite}, Networks: trust("198.51.100.0/24")})

	p := &probed{uses: new(uses)}
	p.lastUsed = keystore.NewUses(p.uses, keystore.UsesOptions{})
	p.o = middleware.Options{
		RateLimit:   middleware.PerOrganization("1000-H"),
		Idempotency: keyedOptions{Runner: replies()},
		Hooks:       &middleware.Hooks{Logger: slog.New(slog.NewTextHandler(&p.log, nil))},
	}
	p.o.Hooks.Observe = func(_ context.Context, e middleware.Event) {
		fmt.Fprintf(&p.log, "event %s %d %s %s %s\n", e.Pattern, e.Status, e.Outcome, e.Policy, e.ReportedCode)
	}
	set(p)
	var keys keystore.Store = ring.keys
	if p.uncached {
		keys = ring.memory
	}
	api := middleware.NewAPI(keys, p.o)
	runs := 0
	handler := func(w http.ResponseWriter, r *http.Request) {
		runs++
		deadline, _ := r.Context().Deadline()
		left := time.Until(deadline).Round(time.Second)
		switch do := r.Header.Get("X-Do"); do {
		case "panic":
			panic("boom")
		case "refuse":
			w.WriteHeader(418)
		case "stream":
			w.Header().Set("Content-Type", "text/x-log")
			_ = http.NewResponseController(w).Flush()
			_, held := r.Context().Deadline()
			fmt.Fprint(w, "held back ", held, " ")
		case "nest":
			fmt.Fprint(w, "inside ", serve(api, request("POST", "/api/v1/tasks", full, "{}")).StatusCode)
		}
		fmt.Fprint(w, "run ", runs, ", ends in ", left)
	}
	path := cmp.Or(p.o.Base, "/api/v1") + "/tasks"
	api.Handle("POST "+path, middleware.Require(scope.TasksWrite), http.HandlerFunc(handler), p.route)
	api.HandleFunc("PUT "+path, middleware.Require(scope.TasksWrite), handler)
	p.o.Base = ""
	g := middleware.New(keys, p.o)
	piece := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.Enforce(middleware.AnyCaller()))(sayOK)

	var b strings.Builder
	send := func(h http.Handler, method, token string, lines ...string) {
		res := serve(h, request(method, "/api/v1/tasks", token, "{}", lines...))
		fmt.Fprintf(&b, "%s %q: %d %s\n", method, lines, res.StatusCode, res.body)
		_ = res.Header.WriteSubset(&b, map[string]bool{"Date": true})
	}
	for _, token := range []string{"", full, poor, sandbox, sandbox, bound, "wrong", "wrong"} {
		send(api, "POST", token, "X-Forwarded-For: 198.51.100.1")
	}
	send(api, "POST", "wrong", "X-Forwarded-For: 198.51.100.2")
	send(api, "POST", "", "X-API-Key: "+full)
	send(api, "POST", full, "Origin: https://example.com")
	send(api, "POST", full, "Svc-Request-Id: chosen")
	send(api, "POST", "", "Cookie: session=1")
	for _, lines := range [][]string{{"X-Part: 1"}, {"X-Part: 2"}, {"X-Do: refuse"}, {"X-Do: stream"}, {"X-Do: panic"},
		{"X-Do: nest"}} {
		for _, method := range []string{"POST", "PUT"} {
			for range 2 {
				send(api, method, full, append(lines, "Idempotency-Key: "+strings.TrimPrefix(lines[0], "X-Part: "))...)
			}
		}
	}
	send(api, "POST", full, "X-Part: 2", "Idempotency-Key: 1")
	for _, body := range []string{"{}", "{ }"} {
		r := request("POST", "/api/v1/tasks", full, body, "Idempotency-Key: json", "Content-Type: application/json")
		fmt.Fprintln(&b, serve(api, r).StatusCode)
	}
	r := request("POST", "/api/v1/tasks", full, "{}", "Idempotency-Key: 1", "X-Part: 1")
	r.Host = "another.example"
	fmt.Fprintln(&b, serve(api, r).StatusCode)
	r = request("PUT", "/api/v1/tasks", bound, "{}", "X-Forwarded-For: 198.51.100.1")
	r.RemoteAddr = "@" // on a unix socket
	fmt.Fprintln(&b, serve(api, r).StatusCode)
	send(piece, "GET", full)
	_ = flush(p.lastUsed)
	fmt.Fprint(&b, p.log.String(), len(*p.uses))
	return changing.ReplaceAllString(b.String(), "…")
}

// changing matches what differs from run to run: ids, times and the addresses
// and numbers of a stack.
var changing = regexp.MustCompile(`[0-9a-v]{20}|time=\S+|stack=.*|svc_(live|test)_\w+`)

// uses are those that a Uses has written.
type uses []keystore.Use

func (*uses) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, keystore.ErrNotFound
}

func (u *uses) AddUses(_ context.Context, batch []keystore.Use) error {
	*u = append(*u, batch...)
	return nil
}

// TestOneService: an API takes the service of the keys below it, and does not
// start when it is given another one.
func TestOneService(t *testing.T) {
	definition := scope.Definition{Name: "parcels:read", Meaning: "See parcels."}
	acme := keystore.Service{Prefix: "acme", Scopes: scope.New(definition)}
	memory := issuing.NewMemory()
	contract, own := keystore.NewCached(memory, keystore.CacheOptions{}),
		keystore.NewCached(memory, keystore.CacheOptions{Service: acme})
	for name, api := range map[string]*middleware.API{
		"a Cached":      middleware.NewAPI(own, middleware.Options{}),
		"both the same": middleware.NewAPI(own, middleware.Options{Service: acme}),
	} {
		if got := api.Guard().Options().Service; got.Prefix != "acme" || got.Scopes != acme.Scopes {
			t.Errorf("%s: got the service %+v", name, got)
		}
	}
	wantPanic(t, "Options.Service: keystore: two services meet: one has tokens acme_live_",
		func() { middleware.NewAPI(contract, middleware.Options{Service: acme}) })
	wantPanic(t, "the Cached below it has tokens svc_live_",
		func() { middleware.New(contract, middleware.Options{Service: acme}) })
}
