package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
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

var (
	gatewaySecret = bytes.Repeat([]byte("a"), 32)
	gatewayOther  = bytes.Repeat([]byte("b"), 32)
	byProxy       = trust("192.0.2.1/32") // of httptest.NewRequest
)

// asked is a subrequest of a proxy for a client's request.
func asked(target, token string, lines ...string) *http.Request {
	return request("GET", target, token, "", append(lines, "X-Forwarded-For: 198.51.100.7")...)
}

// gatewayOf returns a gateway for any caller, unless g says otherwise.
func gatewayOf(keys keystore.Store, o middleware.Options, g middleware.GatewayOptions) http.Handler {
	if o.TrustedProxies = byProxy; o.Hooks == nil {
		o.Hooks = quiet()
	}
	if g.Secrets == nil {
		g.Secrets = [][]byte{gatewaySecret}
	}
	if g.Requirements == nil {
		g.Requirements = map[string]middleware.Requirement{"any": middleware.AnyCaller()}
	}
	return middleware.New(keys, o).Gateway(g)
}

// newGateway returns a gateway for tasks, a key that may read and one that may
// do nothing, and its log.
func newGateway(t *testing.T, o middleware.Options, g middleware.GatewayOptions) (
	gateway http.Handler, reader, nothing string, out *logged,
) {
	t.Helper()
	ring, out := newKeyring(), newLogged()
	o.Hooks = out.hooks()
	g.Requirements = map[string]middleware.Requirement{
		"tasks-read": middleware.Require(scope.TasksRead), "tasks-write": middleware.Require(scope.TasksWrite),
	}
	k := keystore.Key{Organization: "org 1\n", Environment: keystore.Sandbox}
	nothing, _ = ring.grant(t, k)
	k.Scopes = []scope.Name{scope.TasksRead}
	reader, _ = ring.grant(t, k)
	return gatewayOf(ring.keys, o, g), reader, nothing, out
}

// TestGateway: what the proxy asks decides by its own path alone, and each answer
// is one for the client.
func TestGateway(t *testing.T) {
	gateway, reader, nothing, out := newGateway(t, middleware.Options{}, middleware.GatewayOptions{})
	for name, tt := range map[string]struct {
		r    *http.Request
		want int
		code string
	}{
		"reads":             {asked("/verify/tasks-read", reader), 200, ""},
		"by Envoy":          {asked("/verify/tasks-read//a/%2e%2e/../b?c=d", reader), 200, ""},
		"no scope":          {asked("/verify/tasks-write", reader), 403, "insufficient_scope"},
		"scope in the rest": {asked("/verify/tasks-write/verify/tasks-read", reader), 403, "insufficient_scope"},
		"scope by a field": {asked("/verify/tasks-write", reader, "X-Forwarded-Uri: /verify/tasks-read",
			"X-Original-Url: /tasks-read", "X-Forwarded-Method: GET"), 403, "insufficient_scope"},
		"nobody's key":       {asked("/verify/tasks-read", "svc_test_nonsense"), 401, "api_key_invalid"},
		"no key":             {asked("/verify/tasks-read", ""), 401, "api_key_missing"},
		"no scopes":          {asked("/verify/tasks-read", nothing), 403, "insufficient_scope"},
		"unknown name":       {asked("/verify/tasks", reader), 500, "internal"},
		"encoded name":       {asked("/verify/tasks%2Dread", reader), 500, "internal"},
		"encoded slash":      {asked("/verify%2Ftasks-read", reader), 500, "internal"},
		"no name":            {asked("/verify/", reader), 500, "internal"},
		"not below the path": {asked("/tasks-read", reader), 500, "internal"},
		"another path":       {asked("//verify/tasks-read", reader), 500, "internal"},
	} {
		w := serve(gateway, tt.r)
		if w.StatusCode != tt.want || !strings.Contains(w.body, tt.code) ||
			w.Header.Get("Cache-Control") != "no-store" || len(w.Header.Get("Svc-Request-Id")) != 20 {
			t.Errorf("%s: got %d %v %s, want %d %s", name, w.StatusCode, w.Header, w.body, tt.want, tt.code)
		}
		for _, field := range []string{"Organization", "Environment", "Key", "Subject", "Scopes", "Request", "Signature"} {
			if values, set := w.Header["Svc-Caller-"+field]; set != (tt.want == 200) || set && len(values) != 1 {
				t.Errorf("%s: got %d with %s %q", name, w.StatusCode, field, values)
			}
		}
	}
	w := serve(gateway, asked("/verify/tasks-read", reader))
	h := w.Header
	if h.Get("Svc-Caller-Organization") != "org%201%0A" || h.Get("Svc-Caller-Environment") != "sandbox" ||
		h.Get("Svc-Caller-Key") == "" || h.Get("Svc-Caller-Subject") != "" || h.Get("Svc-Caller-Scopes") != "tasks:read" ||
		h.Get("Svc-Caller-Request") != h.Get("Svc-Request-Id") || w.body != "" {
		t.Errorf("got %v %s", h, w.body)
	}
	if !strings.Contains(out.String(), `the proxy asks for \"tasks\", which is none of Requirements`) {
		t.Errorf("the log does not name the requirement:\n%s", out)
	}
	if serve(gateway, asked("/verify/"+reader, "")); strings.Contains(out.String(), reader) {
		t.Errorf("the log has a key:\n%s", out)
	}
}

// TestGatewayNeedsTheClient: a proxy that does not say who the client is would
// make all failures those of one address.
func TestGatewayNeedsTheClient(t *testing.T) {
	gateway, reader, _, out := newGateway(t, middleware.Options{}, middleware.GatewayOptions{})
	const forwarded = "X-Forwarded-For"
	for name, change := range map[string]func(r *http.Request){
		"unsaid":          func(r *http.Request) { r.Header.Del(forwarded) },
		"untrusted":       func(r *http.Request) { r.RemoteAddr = "203.0.113.9:1234" },
		"a socket":        func(r *http.Request) { r.RemoteAddr = "@" },
		"empty":           func(r *http.Request) { r.Header.Set(forwarded, "") },
		"no address":      func(r *http.Request) { r.Header.Set(forwarded, "unix:") }, // of an nginx on a socket
		"none at the end": func(r *http.Request) { r.Header.Add(forwarded, "198.51.100.7, unknown") },
	} {
		r, before := asked("/verify/tasks-read", reader), len(out.String())
		change(r)
		w := serve(gateway, r)
		if said := out.String()[before:]; w.StatusCode != 500 ||
			!strings.Contains(said, "no X-Forwarded-For of one of Options.TrustedProxies") {
			t.Errorf("%s: got %d %s\n%s", name, w.StatusCode, w.body, said)
		}
	}
	trusting, reader, _, _ := newGateway(t, middleware.Options{TrustUnixSocket: true}, middleware.GatewayOptions{})
	wantAnswer(t, "a trusted socket", serve(trusting, from("@", asked("/verify/tasks-read", reader))), 200)
}

// TestGatewayCharges: once for each request, failures included, by the client's
// address. For auth_request the whole refusal is in two fields.
func TestGatewayCharges(t *testing.T) {
	for _, authRequest := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gateway, reader, _, _ := newGateway(t, middleware.Options{
				RateLimit: middleware.PerOrganization("2-M"), Failures: ratelimit.MustParse("1-M"),
			}, middleware.GatewayOptions{AuthRequest: authRequest})
			for n, tt := range []struct {
				token string
				want  string
			}{{reader, ""}, {reader, ""}, {reader, "429"}, {"svc_test_wrong", "401"}, {"svc_test_wrong", "429"}} {
				w := serve(gateway, asked("/verify/tasks-read", tt.token))
				h, status, body := w.Header, strconv.Itoa(w.StatusCode), strings.TrimSpace(w.body)
				if authRequest && tt.want != "" {
					if want := map[string]string{"429": "403", "401": "401"}[tt.want]; status != want {
						t.Errorf("%d: nginx gets %s, want %s", n, status, want)
					}
					status = h.Get("Svc-Refusal-Status")
					if h.Get("Svc-Refusal-Body") != body {
						t.Errorf("%d: got %q, want %s", n, h.Get("Svc-Refusal-Body"), body)
					}
				}
				if want := max(tt.want, "200"); status != want || want == "429" && h.Get("Retry-After") == "" ||
					!authRequest && h.Get("Svc-Refusal-Status") != "" {
					t.Errorf("%d: got %s %v, want %s", n, status, h, want)
				}
			}
			other := asked("/verify/tasks-read", "svc_test_wrong")
			other.Header.Set("X-Forwarded-For", "198.51.100.8")
			wantAnswer(t, "another client", serve(gateway, other), 401)
		})
	}
}

// TestGatewayFailsClosed: a store that fails, a body that is too long for a
// field, and a key store that panics.
func TestGatewayFailsClosed(t *testing.T) {
	hooks := quiet()
	hooks.ProblemBody = func(*http.Request, middleware.Problem) (string, []byte) {
		return "text/plain", []byte(strings.Repeat("x", 2049))
	}
	for name, lookup := range map[string]lookupFunc{
		"503": func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errors.New("away") },
		"500": func(context.Context, keystore.Digest) (*keystore.Key, error) { panic("broken") },
	} {
		gateway := gatewayOf(lookup, middleware.Options{Hooks: hooks}, middleware.GatewayOptions{AuthRequest: true})
		w := serve(gateway, asked("/verify/any", wellFormed()))
		if h := w.Header; w.StatusCode != 403 || h.Get("Svc-Refusal-Status") != name || h.Get("Svc-Refusal-Body") != "" {
			t.Errorf("got %d %v, want 403 for %s and no body", w.StatusCode, h, name)
		}
	}
}

// TestFromGateway: a service believes what its gateway signed for this request,
// and nothing else.
func TestFromGateway(t *testing.T) {
	gateway, reader, _, _ := newGateway(t, middleware.Options{}, middleware.GatewayOptions{})
	const uri = "/api/v1/tasks//a%2Fb/..?n=1"
	right := [][]byte{gatewaySecret}
	for name, tt := range map[string]struct {
		change  func(r *http.Request)
		secrets [][]byte
		wrong   string
	}{
		"as signed":        {func(*http.Request) {}, right, ""},
		"another secret":   {func(*http.Request) {}, [][]byte{gatewayOther}, "another method, path, caller or secret"},
		"a rotated secret": {func(*http.Request) {}, [][]byte{gatewayOther, gatewaySecret}, ""},
		"nothing":          {func(r *http.Request) { clear(r.Header) }, right, "no signature"},
		"no signature":     {func(r *http.Request) { r.Header.Del("Svc-Caller-Signature") }, right, "no signature"},
		"another method":   {func(r *http.Request) { r.Method = "DELETE" }, right, "another method"},
		"a clean path":     {func(r *http.Request) { r.RequestURI = "/api/v1/tasks?n=1" }, right, "path"},
		"another query":    {func(r *http.Request) { r.RequestURI += "&n=2" }, right, "path"},
		"organization":     {func(r *http.Request) { r.Header.Set("Svc-Caller-Organization", "org_2") }, right, "caller"},
		"a shifted field": {func(r *http.Request) {
			r.Header.Set("Svc-Caller-Subject", r.Header.Get("Svc-Caller-Scopes"))
			r.Header.Set("Svc-Caller-Scopes", "")
		}, right, "caller"},
		"twice":         {func(r *http.Request) { r.Header.Add("Svc-Caller-Scopes", "tasks:write") }, right, "twice"},
		"underscores":   {func(r *http.Request) { r.Header["Svc_caller_scopes"] = []string{"tasks"} }, right, "remove it"},
		"half and half": {func(r *http.Request) { r.Header["Svc-Caller_Key"] = []string{"key_1"} }, right, "remove it"},
		"expired":       {func(*http.Request) { time.Sleep(12 * time.Second) }, right, "expired"},
		"prolonged": {func(r *http.Request) {
			_, mac, _ := strings.Cut(r.Header.Get("Svc-Caller-Signature"), ".")
			r.Header.Set("Svc-Caller-Signature", "99999999999."+mac)
		}, right, "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := newLogged()
				api := middleware.NewAPI(nil, middleware.Options{Authenticate: middleware.FromGateway(nil, tt.secrets...),
					Hooks: said.hooks()})
				api.HandleFunc("POST /api/v1/tasks/{rest...}", middleware.Require(scope.TasksRead),
					func(w http.ResponseWriter, r *http.Request) {
						c := middleware.CallerFrom(r.Context())
						if c.Organization() != "org 1\n" || c.Environment() != keystore.Sandbox || c.KeyID() == "" ||
							c.Subject() != "" || c.Has(scope.TasksWrite) {
							t.Errorf("got %s", c)
						}
					})
				r := httptest.NewRequest("POST", "/api/v1/tasks/a", nil)
				r.RequestURI, r.Header = uri, serve(gateway, asked("/verify/tasks-read", reader, "X-Forwarded-Method: POST",
					"X-Forwarded-Uri: "+uri)).Header
				tt.change(r)
				w := serve(api, r)
				if want := map[bool]int{true: 200, false: 401}[tt.wrong == ""]; w.StatusCode != want {
					t.Errorf("got %d %s, want %d", w.StatusCode, w.body, want)
				}
				log := said.String()
				if tt.wrong != "" && (!strings.Contains(log, tt.wrong) || !strings.Contains(log, "/api/v1/tasks/a")) {
					t.Errorf("the log does not say %q:\n%s", tt.wrong, log)
				}
			})
		})
	}
}

// TestFromGatewaySubject: a user of the gateway is one of the service.
func TestFromGatewaySubject(t *testing.T) {
	user := by(t, "ada l.", scope.TasksRead)
	gateway := gatewayOf(nil, middleware.Options{Authenticate: always(user, nil)}, middleware.GatewayOptions{})
	r := httptest.NewRequest("GET", "/x", nil)
	r.Header = serve(gateway, asked("/verify/any/x", "")).Header
	c, err := middleware.FromGateway(nil, gatewaySecret)(r)
	if err != nil || c.Subject() != "ada l." || c.KeyID() != "" || c.Tenant() != user.Tenant() || !c.Has(scope.TasksRead) {
		t.Errorf("got %v: %v, want %v", c, err, user)
	}
}

// TestFromGatewayBesideKeys: a service may have keys of its own too.
func TestFromGatewayBesideKeys(t *testing.T) {
	ring, token := oneKey(t)
	guard := middleware.New(ring.keys, middleware.Options{Authenticate: middleware.FromGateway(nil, gatewaySecret)})
	h := middleware.Chain(guard.RequestID, anyCaller(guard))(sayOK)
	for name, tt := range map[string]struct {
		r    *http.Request
		want int
	}{
		"a key":                      {asked("/", token), 200},
		"a key beside a field":       {asked("/", token, "Svc-Caller-Key: key_1"), 400},
		"a key beside a wrong proof": {asked("/", token, "Svc-Caller-Signature: 99999999999.00"), 400},
		"nothing":                    {asked("/", ""), 401},
	} {
		wantAnswer(t, name, serve(h, tt.r), tt.want)
	}
}

// TestGatewaySignature: it is what the comment of Gateway says, by the first
// secret, until Lifetime is over.
func TestGatewaySignature(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user, err := keystore.NewCaller(nil, keystore.Identity{Organization: "org 1", Subject: "ada",
			Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}})
		if err != nil {
			t.Fatal(err)
		}
		for lifetime, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Minute: time.Minute} {
			gateway := gatewayOf(nil, middleware.Options{Authenticate: always(user, nil)},
				middleware.GatewayOptions{Secrets: [][]byte{gatewayOther, gatewaySecret}, Lifetime: lifetime})
			h := serve(gateway, asked("/verify/any/x?n=1", "", "X-Forwarded-Method: PATCH")).Header
			expires := strconv.FormatInt(time.Now().Add(want).Unix(), 10)
			mac := hmac.New(sha256.New, gatewayOther)
			fmt.Fprintf(mac, "%s\nPATCH\n/x?n=1\n%s\norg%%201\nsandbox\n\nada\ntasks:read tasks:write",
				expires, h.Get("Svc-Request-Id"))
			if got, want := h.Get("Svc-Caller-Signature"), expires+"."+hex.EncodeToString(mac.Sum(nil)); got != want {
				t.Errorf("got %s, want %s of %v", got, want, h)
			}
			sent := httptest.NewRequest("PATCH", "/x?n=1", nil)
			sent.Header = h
			for _, after := range []time.Duration{want, time.Second} {
				time.Sleep(after)
				if _, err := middleware.FromGateway(nil, gatewayOther)(sent); (err == nil) != (after == want) {
					t.Errorf("lifetime %s, %s later: %v", want, after, err)
				}
			}
		}
	})
}

// TestGatewayLeavesIdempotencyKeys: they are the service's, which is nothing to
// warn of.
func TestGatewayLeavesIdempotencyKeys(t *testing.T) {
	gateway, reader, _, out := newGateway(t, middleware.Options{}, middleware.GatewayOptions{})
	r := asked("/verify/tasks-read/x", reader, "Idempotency-Key: 1")
	r.Method = "POST"
	if w := serve(gateway, r); w.StatusCode != 200 || out.String() != "" {
		t.Errorf("got %d %s\n%s", w.StatusCode, w.body, out)
	}
}

// TestGatewayOptions: mistakes show when the program starts.
func TestGatewayOptions(t *testing.T) {
	keys := newKeyring().keys
	right := middleware.GatewayOptions{Secrets: [][]byte{gatewaySecret},
		Requirements: map[string]middleware.Requirement{"any": middleware.AnyCaller()}}
	for want, change := range map[string]func(*middleware.Options, *middleware.GatewayOptions){
		"ReportOnly":           func(o *middleware.Options, _ *middleware.GatewayOptions) { o.ReportOnly = true },
		"RateLimit.Concurrent": func(o *middleware.Options, _ *middleware.GatewayOptions) { o.RateLimit.Concurrent = 1 },
		"no Requirements":      func(_ *middleware.Options, g *middleware.GatewayOptions) { g.Requirements = nil },
		`"a/b" has no name`: func(_ *middleware.Options, g *middleware.GatewayOptions) {
			g.Requirements = map[string]middleware.Requirement{"a/b": middleware.AnyCaller()}
		},
		"empty": func(_ *middleware.Options, g *middleware.GatewayOptions) {
			g.Requirements = map[string]middleware.Requirement{"a": {}}
		},
		"at least 32 bytes": func(_ *middleware.Options, g *middleware.GatewayOptions) {
			g.Secrets = [][]byte{gatewaySecret[1:]}
		},
		"begin with a slash": func(_ *middleware.Options, g *middleware.GatewayOptions) { g.Path = "verify" },
		"Lifetime":           func(_ *middleware.Options, g *middleware.GatewayOptions) { g.Lifetime = time.Millisecond },
	} {
		o, g := middleware.Options{Hooks: quiet()}, right
		change(&o, &g)
		wantPanic(t, want, func() { middleware.New(keys, o).Gateway(g) })
	}
	wantPanic(t, "at least 32 bytes", func() { middleware.FromGateway(nil) })
}

// TestGatewayRecordsUse: what a key was used for is known as in an API.
func TestGatewayRecordsUse(t *testing.T) {
	ring := newKeyring()
	uses := keystore.NewUses(ring.keys, keystore.UsesOptions{})
	token, key := ring.grant(t, keystore.Key{Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}})
	gateway := gatewayOf(ring.keys, middleware.Options{Uses: uses}, middleware.GatewayOptions{
		Requirements: map[string]middleware.Requirement{"tasks-read": middleware.Require(scope.TasksRead)}})
	if w := serve(gateway, asked("/verify/tasks-read", token)); w.StatusCode != 200 {
		t.Fatalf("got %d %s", w.StatusCode, w.body)
	}
	if err := flush(uses); err != nil {
		t.Fatal(err)
	}
	usage, err := ring.issuer.Usage(t.Context(), "org_1", key.ID)
	if err != nil || usage.LastUsedFrom != netip.MustParseAddr("198.51.100.7") || len(usage.Scopes) != 1 ||
		usage.Scopes[scope.TasksRead].IsZero() {
		t.Errorf("got %+v: %v", usage, err)
	}
}

// TestGatewaySignsThePathAsSent: Envoy appends the client's path, which may have
// bytes that url.URL would encode.
func TestGatewaySignsThePathAsSent(t *testing.T) {
	gateway, reader, _, _ := newGateway(t, middleware.Options{}, middleware.GatewayOptions{})
	read := func(target string) *http.Request {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, uri := range []string{"/a|b", "/a\"b", "/{a}", "/\u00e9", "/a#b", "/a\\b", "/a?", "/a?b|c", "//a;b", "/%7c",
		"/verify/tasks-read"} {
		r, sent := read("/verify/tasks-read"+uri), read(uri)
		r.RemoteAddr, r.Header = "192.0.2.1:1", asked("/", reader).Header
		sent.Header = serve(gateway, r).Header
		if _, err := middleware.FromGateway(nil, gatewaySecret)(sent); err != nil {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// TestGatewayScopes: a scope that the service does not know grants nothing, also
// of a key that was stored with bytes that separate scopes.
func TestGatewayScopes(t *testing.T) {
	for _, name := range []scope.Name{"old tasks:write", "old\ntasks:write", "old\u00a0tasks:write", "old%20tasks:write",
		"\xff"} {
		stored := lookupFunc(func(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
			return &keystore.Key{ID: "key_1", Digest: d, Organization: "org_1", Environment: keystore.Production,
				Scopes: []scope.Name{scope.TasksRead, name}}, nil
		})
		gateway := gatewayOf(stored, middleware.Options{}, middleware.GatewayOptions{})
		srv := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			gateway.ServeHTTP(w, from("192.0.2.1:1", r))
		}))
		sent := httptest.NewRequest("GET", "/x", nil)
		sent.Header = do(t, srv.Client(), asked(srv.URL+"/verify/any/x", wellFormed())).Header
		c, err := middleware.FromGateway(nil, gatewaySecret)(sent)
		if err != nil || !c.Has(scope.TasksRead) || c.Has(scope.TasksWrite) || !slices.Contains(c.Scopes(), name) {
			t.Errorf("%q: got %v with %q: %v", name, c, c.Scopes(), err)
		}
	}
}

// TestGatewayEvents: each Event names what the proxy asked for, also that of a
// refusal.
func TestGatewayEvents(t *testing.T) {
	o := &observed{t: t}
	gateway := gatewayOf(nil, middleware.Options{Authenticate: nobody, Hooks: o.hooks()},
		middleware.GatewayOptions{Path: "/ask/", AuthRequest: true})
	if e, _ := o.ask(gateway, asked("/ask/any/x", "")); e.Pattern != "/ask/any" || e.Status != 401 {
		t.Errorf("got %+v", e)
	}
}

// TestGatewayStatuses: for auth_request each refusal but 401 is 403, also one of
// Options.Authenticate.
func TestGatewayStatuses(t *testing.T) {
	for status, want := range map[int]int{400: 403, 401: 401, 402: 403, 403: 403, 451: 403, 599: 403} {
		refuses := always(nil, &middleware.Problem{Status: status, Code: "no"})
		gateway := gatewayOf(nil, middleware.Options{Authenticate: refuses}, middleware.GatewayOptions{AuthRequest: true})
		w := serve(gateway, asked("/verify/any", ""))
		if w.StatusCode != want || w.Header.Get("Svc-Refusal-Status") != strconv.Itoa(status) {
			t.Errorf("%d: got %d %v, want %d", status, w.StatusCode, w.Header, want)
		}
	}
}
