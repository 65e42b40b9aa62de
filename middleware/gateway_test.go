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
	"log/slog"
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
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

var (
	gatewaySecret = bytes.Repeat([]byte("a"), 32)
	gatewayOther  = bytes.Repeat([]byte("b"), 32)
	byProxy       = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} // of httptest.NewRequest
)

// asked is a subrequest of a proxy for a client's request.
func asked(target, token string, header ...string) *http.Request {
	r := httptest.NewRequest("GET", target, nil)
	r.Header.Set("X-Forwarded-For", "198.51.100.7")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1])
	}
	return r
}

func answered(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// newGateway returns a gateway for tasks, a key that may read and one that may
// do nothing. Its log is in out.
func newGateway(t *testing.T, o middleware.Options, g middleware.GatewayOptions, out *bytes.Buffer) (
	gateway http.Handler, reader, nothing string,
) {
	t.Helper()
	keys, issuer := issuing.InMemory(keystore.Service{})
	o.TrustedProxies, o.Hooks = byProxy, &middleware.Hooks{Logger: slog.New(slog.NewTextHandler(out, nil))}
	g.Secrets = [][]byte{gatewaySecret}
	g.Requirements = map[string]middleware.Requirement{
		"tasks-read": middleware.Require(scope.TasksRead), "tasks-write": middleware.Require(scope.TasksWrite),
	}
	for i, scopes := range [][]scope.Name{{scope.TasksRead}, nil} {
		secret, _, err := issuer.Issue(t.Context(), keystore.Key{
			Organization: "org 1\n", Environment: keystore.Sandbox, Name: "k", Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		*[]*string{&reader, &nothing}[i] = secret.Reveal()
	}
	return middleware.New(keys, o).Gateway(g), reader, nothing
}

// TestGateway: what the proxy asks decides by its own path alone, and each answer
// is one for the client.
func TestGateway(t *testing.T) {
	var out bytes.Buffer
	gateway, reader, nothing := newGateway(t, middleware.Options{}, middleware.GatewayOptions{}, &out)
	for name, tt := range map[string]struct {
		r    *http.Request
		want int
		code string
	}{
		"reads":             {asked("/verify/tasks-read", reader), 200, ""},
		"by Envoy":          {asked("/verify/tasks-read//a/%2e%2e/../b?c=d", reader), 200, ""},
		"no scope":          {asked("/verify/tasks-write", reader), 403, "insufficient_scope"},
		"scope in the rest": {asked("/verify/tasks-write/verify/tasks-read", reader), 403, "insufficient_scope"},
		"scope by a field": {asked("/verify/tasks-write", reader,
			"X-Forwarded-Uri", "/verify/tasks-read", "X-Original-Url", "/tasks-read", "X-Forwarded-Method", "GET"),
			403, "insufficient_scope"},
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
		w := answered(gateway, tt.r)
		if w.Code != tt.want || !strings.Contains(w.Body.String(), tt.code) ||
			w.Header().Get("Cache-Control") != "no-store" || len(w.Header().Get("Svc-Request-Id")) != 20 {
			t.Errorf("%s: got %d %v %s, want %d %s", name, w.Code, w.Header(), w.Body, tt.want, tt.code)
		}
		for _, field := range []string{"Organization", "Environment", "Key", "Subject", "Scopes", "Request", "Signature"} {
			if values, set := w.Header()["Svc-Caller-"+field]; set != (tt.want == 200) || set && len(values) != 1 {
				t.Errorf("%s: got %d with %s %q", name, w.Code, field, values)
			}
		}
	}
	w := answered(gateway, asked("/verify/tasks-read", reader))
	h := w.Header()
	if h.Get("Svc-Caller-Organization") != "org%201%0A" || h.Get("Svc-Caller-Environment") != "sandbox" ||
		h.Get("Svc-Caller-Key") == "" || h.Get("Svc-Caller-Subject") != "" || h.Get("Svc-Caller-Scopes") != "tasks:read" ||
		h.Get("Svc-Caller-Request") != h.Get("Svc-Request-Id") || w.Body.Len() != 0 {
		t.Errorf("got %v %s", h, w.Body)
	}
	if !strings.Contains(out.String(), `the proxy asks for \"tasks\", which is none of Requirements`) {
		t.Errorf("the log does not name the requirement:\n%s", &out)
	}
	if answered(gateway, asked("/verify/"+reader, "")); strings.Contains(out.String(), reader) {
		t.Errorf("the log has a key:\n%s", &out)
	}
}

// TestGatewayNeedsTheClient: a proxy that does not say who the client is would
// make all failures those of one address.
func TestGatewayNeedsTheClient(t *testing.T) {
	var out bytes.Buffer
	gateway, reader, _ := newGateway(t, middleware.Options{}, middleware.GatewayOptions{}, &out)
	unsaid := asked("/verify/tasks-read", reader)
	unsaid.Header.Del("X-Forwarded-For")
	untrusted := asked("/verify/tasks-read", reader)
	untrusted.RemoteAddr = "203.0.113.9:1234"
	socket := asked("/verify/tasks-read", reader)
	socket.RemoteAddr = "@"
	empty, unix := asked("/verify/tasks-read", reader), asked("/verify/tasks-read", reader)
	cut := asked("/verify/tasks-read", reader)
	empty.Header.Set("X-Forwarded-For", "")
	unix.Header.Set("X-Forwarded-For", "unix:") // $remote_addr of an nginx on a socket
	cut.Header["X-Forwarded-For"] = []string{"198.51.100.7", "198.51.100.7, unknown"}
	for name, r := range map[string]*http.Request{"unsaid": unsaid, "untrusted": untrusted, "a socket": socket,
		"empty": empty, "no address": unix, "no address at the end": cut} {
		out.Reset()
		w := answered(gateway, r)
		if w.Code != 500 || !strings.Contains(out.String(), "no X-Forwarded-For of one of Options.TrustedProxies") {
			t.Errorf("%s: got %d %s\n%s", name, w.Code, w.Body, &out)
		}
	}
	trusting, reader, _ := newGateway(t, middleware.Options{TrustUnixSocket: true}, middleware.GatewayOptions{}, &out)
	socket = asked("/verify/tasks-read", reader)
	socket.RemoteAddr = "@"
	if w := answered(trusting, socket); w.Code != 200 {
		t.Errorf("a trusted socket: got %d %s", w.Code, w.Body)
	}
}

// TestGatewayCharges: once for each request, failures included, by the client's
// address. For auth_request the whole refusal is in two fields.
func TestGatewayCharges(t *testing.T) {
	for _, authRequest := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			gateway, reader, _ := newGateway(t, middleware.Options{
				RateLimit: middleware.PerOrganization("2-M"), Failures: ratelimit.MustParse("1-M"),
			}, middleware.GatewayOptions{AuthRequest: authRequest}, &out)
			for n, tt := range []struct {
				token string
				want  string
			}{
				{reader, ""}, {reader, ""}, {reader, "429"}, {"svc_test_wrong", "401"}, {"svc_test_wrong", "429"},
			} {
				w := answered(gateway, asked("/verify/tasks-read", tt.token))
				h, status, body := w.Header(), w.Result().Status[:3], strings.TrimSpace(w.Body.String())
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
			if w := answered(gateway, other); w.Code != 401 {
				t.Errorf("another client: got %d %s", w.Code, w.Body)
			}
		})
	}
}

// TestGatewayFailsClosed: a store that fails, a body that is too long for a
// field, and a key store that panics.
func TestGatewayFailsClosed(t *testing.T) {
	long := strings.Repeat("x", 2049)
	_, token, _ := newGateway(t, middleware.Options{}, middleware.GatewayOptions{}, new(bytes.Buffer))
	o := middleware.Options{TrustedProxies: byProxy, Hooks: &middleware.Hooks{
		Logger:      slog.New(slog.DiscardHandler),
		ProblemBody: func(*http.Request, middleware.Problem) (string, []byte) { return "text/plain", []byte(long) },
	}}
	for name, lookup := range map[string]lookupFunc{
		"503": func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errors.New("away") },
		"500": func(context.Context, keystore.Digest) (*keystore.Key, error) { panic("broken") },
	} {
		gateway := middleware.New(lookup, o).Gateway(middleware.GatewayOptions{AuthRequest: true,
			Secrets:      [][]byte{gatewaySecret},
			Requirements: map[string]middleware.Requirement{"any": middleware.AnyCaller()}})
		w := answered(gateway, asked("/verify/any", token))
		if h := w.Header(); w.Code != 403 || h.Get("Svc-Refusal-Status") != name || h.Get("Svc-Refusal-Body") != "" {
			t.Errorf("got %d %v, want 403 for %s and no body", w.Code, h, name)
		}
	}
}

// TestFromGateway: a service believes what its gateway signed for this request,
// and nothing else.
func TestFromGateway(t *testing.T) {
	var out bytes.Buffer
	gateway, reader, _ := newGateway(t, middleware.Options{}, middleware.GatewayOptions{}, &out)
	signed := func(method, uri string) http.Header {
		w := answered(gateway, asked("/verify/tasks-read", reader, "X-Forwarded-Method", method, "X-Forwarded-Uri", uri))
		h := make(http.Header)
		for name, values := range w.Header() {
			if strings.HasPrefix(name, "Svc-Caller-") {
				h[name] = values
			}
		}
		return h
	}
	const uri = "/api/v1/tasks//a%2Fb/..?n=1"
	for name, tt := range map[string]struct {
		change  func(r *http.Request)
		secrets [][]byte
		wrong   string
	}{
		"as signed":        {func(*http.Request) {}, nil, ""},
		"another secret":   {func(*http.Request) {}, [][]byte{gatewayOther}, "another method, path, caller or secret"},
		"a rotated secret": {func(*http.Request) {}, [][]byte{gatewayOther, gatewaySecret}, ""},
		"nothing":          {func(r *http.Request) { clear(r.Header) }, nil, "no signature"},
		"no signature":     {func(r *http.Request) { r.Header.Del("Svc-Caller-Signature") }, nil, "no signature"},
		"another method":   {func(r *http.Request) { r.Method = "DELETE" }, nil, "another method"},
		"a clean path":     {func(r *http.Request) { r.RequestURI = "/api/v1/tasks?n=1" }, nil, "path"},
		"another query":    {func(r *http.Request) { r.RequestURI += "&n=2" }, nil, "path"},
		"organization":     {func(r *http.Request) { r.Header.Set("Svc-Caller-Organization", "org_2") }, nil, "caller"},
		"a shifted field": {func(r *http.Request) {
			r.Header.Set("Svc-Caller-Subject", r.Header.Get("Svc-Caller-Scopes"))
			r.Header.Set("Svc-Caller-Scopes", "")
		}, nil, "caller"},
		"twice":         {func(r *http.Request) { r.Header.Add("Svc-Caller-Scopes", "tasks:write") }, nil, "twice"},
		"underscores":   {func(r *http.Request) { r.Header["Svc_caller_scopes"] = []string{"tasks"} }, nil, "remove it"},
		"half and half": {func(r *http.Request) { r.Header["Svc-Caller_Key"] = []string{"key_1"} }, nil, "remove it"},
		"expired":       {func(*http.Request) { time.Sleep(12 * time.Second) }, nil, "expired"},
		"prolonged": {func(r *http.Request) {
			_, mac, _ := strings.Cut(r.Header.Get("Svc-Caller-Signature"), ".")
			r.Header.Set("Svc-Caller-Signature", "99999999999."+mac)
		}, nil, "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				secrets := tt.secrets
				if secrets == nil {
					secrets = [][]byte{gatewaySecret}
				}
				var said bytes.Buffer
				api := middleware.NewAPI(nil, middleware.Options{Authenticate: middleware.FromGateway(nil, secrets...),
					Hooks: &middleware.Hooks{Logger: slog.New(slog.NewTextHandler(&said, nil))}})
				api.HandleFunc("POST /api/v1/tasks/{rest...}", middleware.Require(scope.TasksRead),
					func(w http.ResponseWriter, r *http.Request) {
						c := middleware.CallerFrom(r.Context())
						if c.Organization() != "org 1\n" || c.Environment() != keystore.Sandbox || c.KeyID() == "" ||
							c.Subject() != "" || c.Has(scope.TasksWrite) {
							t.Errorf("got %s", c)
						}
					})
				r := httptest.NewRequest("POST", "/api/v1/tasks/a", nil)
				r.RequestURI, r.Header = uri, signed("POST", uri)
				tt.change(r)
				w := answered(api, r)
				want := map[bool]int{true: 200, false: 401}[tt.wrong == ""]
				if r.Method == "DELETE" {
					want = 401
				}
				if w.Code != want {
					t.Errorf("got %d %s, want %d", w.Code, w.Body, want)
				}
				log := said.String()
				if tt.wrong != "" && (!strings.Contains(log, tt.wrong) || !strings.Contains(log, "/api/v1/tasks/a")) {
					t.Errorf("the log does not say %q:\n%s", tt.wrong, &said)
				}
			})
		})
	}
}

// TestFromGatewaySubject: a user of the gateway is one of the service.
func TestFromGatewaySubject(t *testing.T) {
	user, err := keystore.NewCaller(nil, keystore.Identity{
		Organization: "org_1", Subject: "ada l.", Scopes: []scope.Name{scope.TasksRead}})
	if err != nil {
		t.Fatal(err)
	}
	gateway := middleware.New(nil, middleware.Options{TrustedProxies: byProxy,
		Authenticate: func(*http.Request) (*keystore.Caller, error) { return user, nil }}).Gateway(middleware.GatewayOptions{
		Secrets: [][]byte{gatewaySecret}, Requirements: map[string]middleware.Requirement{"any": middleware.AnyCaller()}})
	r := httptest.NewRequest("GET", "/x", nil)
	r.Header = answered(gateway, asked("/verify/any/x", "")).Header()
	c, err := middleware.FromGateway(nil, gatewaySecret)(r)
	if err != nil || c.Subject() != "ada l." || c.KeyID() != "" || c.Tenant() != user.Tenant() || !c.Has(scope.TasksRead) {
		t.Errorf("got %v: %v, want %v", c, err, user)
	}
}

// TestFromGatewayBesideKeys: a service may have keys of its own too.
func TestFromGatewayBesideKeys(t *testing.T) {
	keys, issuer := issuing.InMemory(keystore.Service{})
	secret, _, err := issuer.Issue(t.Context(), keystore.Key{Organization: "org_1", Environment: keystore.Sandbox})
	if err != nil {
		t.Fatal(err)
	}
	guard := middleware.New(keys, middleware.Options{Authenticate: middleware.FromGateway(nil, gatewaySecret)})
	h := middleware.Chain(guard.RequestID, guard.Authenticate, guard.Enforce(middleware.AnyCaller()))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for want, r := range map[int]*http.Request{
		200: asked("/", secret.Reveal()), 400: asked("/", secret.Reveal(), "Svc-Caller-Key", "key_1"), 401: asked("/", ""),
	} {
		if w := answered(h, r); w.Code != want {
			t.Errorf("got %d %s, want %d", w.Code, w.Body, want)
		}
	}
	if w := answered(h, asked("/", secret.Reveal(), "Svc-Caller-Signature", "99999999999.00")); w.Code != 400 {
		t.Errorf("a key beside a wrong signature: got %d %s, want 400", w.Code, w.Body)
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
			gateway := middleware.New(nil, middleware.Options{TrustedProxies: byProxy,
				Authenticate: func(*http.Request) (*keystore.Caller, error) { return user, nil }}).Gateway(
				middleware.GatewayOptions{Secrets: [][]byte{gatewayOther, gatewaySecret}, Lifetime: lifetime,
					Requirements: map[string]middleware.Requirement{"any": middleware.AnyCaller()}})
			h := answered(gateway, asked("/verify/any/x?n=1", "", "X-Forwarded-Method", "PATCH")).Header()
			expires := strconv.FormatInt(time.Now().Add(want).Unix(), 10)
			mac := hmac.New(sha256.New, gatewayOther)
			fmt.Fprintf(mac, "%s\nPATCH\n/x?n=1\n%s\norg%%201\nsandbox\n\nada\ntasks:read tasks:write",
				expires, h.Get("Svc-Request-Id"))
			if got, want := h.Get("Svc-Caller-Signature"), expires+"."+hex.EncodeToString(mac.Sum(nil)); got != want {
				t.Errorf("got %s, want %s of %v", got, want, h)
			}
			sent := httptest.NewRequest("PATCH", "/x?n=1", nil)
			sent.Header = h
			time.Sleep(want)
			if _, err := middleware.FromGateway(nil, gatewayOther)(sent); err != nil {
				t.Errorf("after %s: %v", want, err)
			}
			time.Sleep(time.Second)
			if _, err := middleware.FromGateway(nil, gatewayOther)(sent); err == nil {
				t.Errorf("valid a second after %s", want)
			}
		}
	})
}

// TestGatewayLeavesIdempotencyKeys: they are the service's, which is nothing to
// warn of.
func TestGatewayLeavesIdempotencyKeys(t *testing.T) {
	var out bytes.Buffer
	gateway, reader, _ := newGateway(t, middleware.Options{}, middleware.GatewayOptions{}, &out)
	r := asked("/verify/tasks-read/x", reader, "Idempotency-Key", "1")
	r.Method = "POST"
	if w := answered(gateway, r); w.Code != 200 || out.Len() > 0 {
		t.Errorf("got %d %s\n%s", w.Code, w.Body, &out)
	}
}

// TestGatewayOptions: mistakes show when the program starts.
func TestGatewayOptions(t *testing.T) {
	keys, _ := issuing.InMemory(keystore.Service{})
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
		o, g := middleware.Options{Hooks: &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)}}, right
		change(&o, &g)
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, want) {
					t.Errorf("got %q, want %q", text, want)
				}
			}()
			middleware.New(keys, o).Gateway(g)
		}()
	}
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "at least 32 bytes") {
			t.Errorf("got %q", text)
		}
	}()
	middleware.FromGateway(nil)
}

// TestGatewayRecordsUse: what a key was used for is known as in an API.
func TestGatewayRecordsUse(t *testing.T) {
	store := issuing.NewMemory()
	keys := keystore.NewCached(store, keystore.CacheOptions{})
	uses := keystore.NewUses(keys, keystore.UsesOptions{})
	issuer := issuing.New(keys, issuing.Options{})
	secret, key, err := issuer.Issue(t.Context(), keystore.Key{Organization: "org_1", Environment: keystore.Sandbox,
		Name: "k", Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}})
	if err != nil {
		t.Fatal(err)
	}
	gateway := middleware.New(keys, middleware.Options{TrustedProxies: byProxy, Uses: uses}).Gateway(
		middleware.GatewayOptions{Secrets: [][]byte{gatewaySecret},
			Requirements: map[string]middleware.Requirement{"tasks-read": middleware.Require(scope.TasksRead)}})
	if w := answered(gateway, asked("/verify/tasks-read", secret.Reveal())); w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_ = uses.Run(ended) // writes what it has, and ends
	usage, err := issuer.Usage(t.Context(), "org_1", key.ID)
	if err != nil || usage.LastUsedFrom != netip.MustParseAddr("198.51.100.7") || len(usage.Scopes) != 1 ||
		usage.Scopes[scope.TasksRead].IsZero() {
		t.Errorf("got %+v: %v", usage, err)
	}
}

// TestGatewaySignsThePathAsSent: Envoy appends the client's path, which may have
// bytes that url.URL would encode.
func TestGatewaySignsThePathAsSent(t *testing.T) {
	var out bytes.Buffer
	gateway, reader, _ := newGateway(t, middleware.Options{}, middleware.GatewayOptions{}, &out)
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
		sent.Header = answered(gateway, r).Header()
		if _, err := middleware.FromGateway(nil, gatewaySecret)(sent); err != nil {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// TestGatewayScopes: a scope that the service does not know grants nothing, also
// of a key that was stored with bytes that separate scopes.
func TestGatewayScopes(t *testing.T) {
	_, token, _ := newGateway(t, middleware.Options{}, middleware.GatewayOptions{}, new(bytes.Buffer))
	for _, name := range []scope.Name{"old tasks:write", "old\ntasks:write", "old\u00a0tasks:write", "old%20tasks:write",
		"\xff"} {
		stored := lookupFunc(func(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
			return &keystore.Key{ID: "key_1", Digest: d, Organization: "org_1", Environment: keystore.Sandbox,
				Scopes: []scope.Name{scope.TasksRead, name}}, nil
		})
		gateway := httptest.NewServer(middleware.New(stored, middleware.Options{
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}).Gateway(middleware.GatewayOptions{
			Secrets: [][]byte{gatewaySecret}, Requirements: map[string]middleware.Requirement{"any": middleware.AnyCaller()}}))
		r := asked("/verify/any/x", token)
		r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", gateway.Listener.Addr().String()
		res, err := gateway.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		gateway.Close()
		sent := httptest.NewRequest("GET", "/x", nil)
		sent.Header = res.Header
		c, err := middleware.FromGateway(nil, gatewaySecret)(sent)
		if err != nil || !c.Has(scope.TasksRead) || c.Has(scope.TasksWrite) || !slices.Contains(c.Scopes(), name) {
			t.Errorf("%q: got %v with %q: %v", name, c, c.Scopes(), err)
		}
	}
}

// TestGatewayEvents: each Event names what the proxy asked for, also that of a
// refusal.
func TestGatewayEvents(t *testing.T) {
	var events []middleware.Event
	gateway := middleware.New(nil, middleware.Options{TrustedProxies: byProxy,
		Authenticate: func(*http.Request) (*keystore.Caller, error) { return nil, middleware.ErrNoCredentials },
		Hooks: &middleware.Hooks{Logger: slog.New(slog.DiscardHandler),
			Observe: func(_ context.Context, e middleware.Event) { events = append(events, e) }},
	}).Gateway(middleware.GatewayOptions{Path: "/ask/", AuthRequest: true, Secrets: [][]byte{gatewaySecret},
		Requirements: map[string]middleware.Requirement{"any": middleware.AnyCaller()}})
	answered(gateway, asked("/ask/any/x", ""))
	if len(events) != 1 || events[0].Pattern != "/ask/any" || events[0].Status != 401 {
		t.Errorf("got %+v", events)
	}
}

// TestGatewayStatuses: for auth_request each refusal but 401 is 403, also one of
// Options.Authenticate.
func TestGatewayStatuses(t *testing.T) {
	for status, want := range map[int]int{400: 403, 401: 401, 402: 403, 403: 403, 451: 403, 599: 403} {
		gateway := middleware.New(nil, middleware.Options{TrustedProxies: byProxy,
			Authenticate: func(*http.Request) (*keystore.Caller, error) {
				return nil, &middleware.Problem{Status: status, Code: "no"}
			}}).Gateway(middleware.GatewayOptions{AuthRequest: true, Secrets: [][]byte{gatewaySecret},
			Requirements: map[string]middleware.Requirement{"any": middleware.AnyCaller()}})
		w := answered(gateway, asked("/verify/any", ""))
		if w.Code != want || w.Header().Get("Svc-Refusal-Status") != strconv.Itoa(status) {
			t.Errorf("%d: got %d %v, want %d", status, w.Code, w.Header(), want)
		}
	}
}
