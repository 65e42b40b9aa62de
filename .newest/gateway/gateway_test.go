// Package gateway_test asks a Gateway through real proxies, by the
// configurations that the guide shows.
package gateway_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/contracttest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

var (
	secret  = bytes.Repeat([]byte("s"), 32)
	proxies = []string{"nginx", "caddy"}
)

// A fleet is a proxy, the Gateway that it asks and the service behind it.
type fleet struct {
	address string // of the proxy
	gateway *httptest.Server
	keys    map[string]string
	asked   atomic.Int64       // how often the Gateway was
	slow    atomic.Bool        // the Gateway does not answer
	tasks   atomic.Int64       // that the service has made
	seen    chan *http.Request // by the service
}

// newFleet starts a proxy by its configuration, in front of the service at an
// address, or of one in Go.
func newFleet(t testing.TB, proxy, service string, limits map[string]string) *fleet {
	f := &fleet{keys: map[string]string{}, seen: make(chan *http.Request, 1000)}
	keys, issuer := issuing.InMemory(keystore.Service{})
	for name, scopes := range map[string][]scope.Name{
		"full": {scope.TasksRead, scope.TasksWrite}, "read": {scope.TasksRead}, "none": nil,
	} {
		token, _, err := issuer.Issue(t.Context(), keystore.Key{
			Organization: "org é", Environment: keystore.Sandbox, Name: name, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		f.keys[name] = token.Reveal()
	}
	o := middleware.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Hooks:          &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)},
	}
	if limit := limits["organization"]; limit != "" {
		o.RateLimit = middleware.PerOrganization(limit)
	}
	if limit := limits["failures"]; limit != "" {
		o.Failures = ratelimit.MustParse(limit)
	}
	lifetime, _ := time.ParseDuration(limits["lifetime"]) // else the usual
	verify := middleware.New(keys, o).Gateway(middleware.GatewayOptions{
		AuthRequest: proxy == "nginx", Secrets: [][]byte{secret}, Lifetime: lifetime,
		Requirements: map[string]middleware.Requirement{
			"tasks-read": middleware.Require(scope.TasksRead), "tasks-write": middleware.Require(scope.TasksWrite)},
	})
	f.gateway = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		if f.slow.Load() {
			<-r.Context().Done()
			return
		}
		verify.ServeHTTP(w, r)
	}))
	t.Cleanup(f.gateway.Close)
	if service == "" {
		s := httptest.NewServer(f.service())
		t.Cleanup(s.Close)
		service = s.Listener.Addr().String()
	}
	f.address = free(t)
	f.start(t, proxy, service)
	return f
}

// each tests every proxy, each in front of a fleet of its own.
func each(t *testing.T, limits map[string]string, test func(t *testing.T, f *fleet)) {
	for _, proxy := range proxies {
		t.Run(proxy, func(t *testing.T) {
			t.Parallel()
			test(t, newFleet(t, proxy, "", limits))
		})
	}
}

// service is one in Go, without a key store.
func (f *fleet) service() http.Handler {
	api := middleware.NewAPI(nil, middleware.Options{
		Authenticate:   middleware.FromGateway(nil, secret),
		TrustRequestID: func(r *http.Request) bool { return r.Header.Get("Svc-Caller-Signature") != "" },
		Hooks:          &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)},
	})
	serve := func(w http.ResponseWriter, r *http.Request) {
		select {
		case f.seen <- r:
		default: // of a benchmark
		}
		if r.Method == http.MethodPost {
			if body, err := io.ReadAll(r.Body); err == nil && (len(body) == 14 || len(body) == 0) {
				f.tasks.Add(1)
			}
			w.WriteHeader(http.StatusCreated)
		}
		fmt.Fprintf(w, "%s of %s\n", r.Method, middleware.CallerFrom(r.Context()).Organization())
	}
	api.HandleFunc("GET /api/v1/tasks/{rest...}", middleware.Require(scope.TasksRead), serve)
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), serve)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), serve)
	api.HandleFunc("DELETE /api/v1/tasks/{id}", middleware.Require(scope.TasksWrite), serve)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bare" { // for a benchmark
			_, _ = io.WriteString(w, "GET of org é\n")
			return
		}
		api.ServeHTTP(w, r)
	})
}

// free returns an address that nothing listens at, with a port below those that
// the system gives to connections.
func free(t testing.TB) string {
	for range 100 {
		address := fmt.Sprint("127.0.0.1:", 22_000+rand.IntN(10_000))
		if ln, err := net.Listen("tcp", address); err == nil {
			ln.Close()
			return address
		}
	}
	t.Fatal("found no free port")
	return ""
}

func (f *fleet) start(t testing.TB, proxy, service string) {
	dir := t.TempDir()
	name := map[string]string{"nginx": "nginx.conf", "caddy": "Caddyfile"}[proxy]
	sample, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(f.address)
	text := strings.NewReplacer("127.0.0.1:8080", f.address, ":8080", ":"+port, "_timeout 6s", "_timeout 2s",
		"127.0.0.1:9000", f.gateway.Listener.Addr().String(), "127.0.0.1:9001", service).Replace(string(sample))
	arguments := []string{"run", "--config", name, "--adapter", "caddyfile"}
	if proxy == "nginx" {
		text = strings.Replace(text, "	location = /verify {", "	location = /bare { proxy_pass http://tasks; "+
			"proxy_http_version 1.1; proxy_set_header Connection ''; }\n	location = /verify {", 1)
		text = "daemon off; pid nginx.pid; events {}\nhttp { access_log off; client_body_temp_path body; " +
			"proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n" + text + "}\n"
		arguments = []string{"-p", dir, "-c", name, "-e", "error.log"}
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, dir, f.address, servers.Program(t, proxy, proxy), arguments...)
}

// start runs a program until the test ends, once it listens.
func start(t testing.TB, dir, address, program string, arguments ...string) {
	said := new(bytes.Buffer)
	cmd := exec.Command(program, arguments...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, said, said
	cmd.Env = append(os.Environ(), "GATEWAY_SECRET="+hex.EncodeToString(secret), "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // nginx has workers
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	})
	for range 600 {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s has ended: %v\n%s", program, err, said)
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("%s does not listen at %s", program, address)
}

// request returns one to the proxy with a key of the fleet, or "" for none.
func (f *fleet) request(t testing.TB, method, path, key string, header ...string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+f.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+max(f.keys[key], key))
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1])
	}
	return r
}

type answer struct {
	*http.Response
	text string
}

func send(t testing.TB, r *http.Request) answer {
	t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res, string(body)}
}

// wantRefusal checks a refusal: once each field, the id of the field in the body.
func (a answer) wantRefusal(t *testing.T, what string, status int, code string) {
	t.Helper()
	var problem struct {
		Code string
		ID   string `json:"request_id"`
	}
	err := json.Unmarshal([]byte(a.text), &problem)
	id := a.Header["Svc-Request-Id"]
	if a.StatusCode != status || err != nil || problem.Code != code || len(id) != 1 || problem.ID != id[0] ||
		a.Header.Get("Content-Type") != "application/problem+json" || a.Header.Get("Cache-Control") != "no-store" ||
		(len(a.Header["Www-Authenticate"]) == 1) != (status == 401 || status == 403) ||
		(a.Header.Get("Retry-After") != "") != (status == 429 || status == 503) {
		t.Errorf("%s: got %s %v %s, want %d %s", what, a.Status, a.Header, a.text, status, code)
	}
}

// TestProxies: what a client gets through a proxy is what an API gives.
func TestProxies(t *testing.T) {
	each(t, nil, func(t *testing.T, f *fleet) {
		get := func(key string, header ...string) answer {
			return send(t, f.request(t, "GET", "/api/v1/tasks", key, header...))
		}
		post := func(key string, header ...string) answer {
			r := f.request(t, "POST", "/api/v1/tasks", key, header...)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`{"title": "x"}`)), 14
			return send(t, r)
		}

		get("").wantRefusal(t, "no key", 401, "api_key_missing")
		get("svc_test_wrong").wantRefusal(t, "a wrong key", 401, "api_key_invalid")
		get("none").wantRefusal(t, "no scope", 403, "insufficient_scope")
		post("read").wantRefusal(t, "no scope to write", 403, "insufficient_scope")
		post("read", "X-Http-Method-Override", "GET", "X-Forwarded-Method", "GET", "X-Original-Url", "/api/v1/tasks/1").
			wantRefusal(t, "another method by a field", 403, "insufficient_scope")
		if n := len(f.seen); n != 0 {
			t.Fatalf("the service was sent %d requests that were refused", n)
		}

		got := get("read", "Svc-Caller-Organization", "org_2", "Svc-Caller-Scopes", "tasks:write",
			"Svc-Caller-Subject", "ada", "Svc-Caller-Signature", "1.ab", "Svc-Caller-Signature", "2.cd",
			"Svc_caller_subject", "ada",
			"svc-caller_key", "key_1", "Svc-Request-Id", "chosen-by-the-client")
		if got.StatusCode != 200 || got.text != "GET of org é\n" || len(got.Header.Get("Svc-Request-Id")) != 20 {
			t.Errorf("got %s %v %s", got.Status, got.Header, got.text)
		}
		r := <-f.seen
		if c := middleware.CallerFrom(r.Context()); c.KeyID() == "" || c.Subject() != "" || c.Has(scope.TasksWrite) ||
			len(r.Header["Authorization"]) > 0 {
			t.Errorf("the service got %v %v", c, r.Header)
		}

		first, again := post("full", "Idempotency-Key", "1"), post("full", "Idempotency-Key", "1")
		if first.StatusCode != 201 || again.StatusCode != 201 || again.Header.Get("Idempotent-Replayed") != "true" ||
			f.tasks.Load() != 1 || again.Header.Get("Svc-Original-Request-Id") != first.Header.Get("Svc-Request-Id") {
			t.Errorf("got %s, then %s %v; %d tasks", first.Status, again.Status, again.Header, f.tasks.Load())
		}

		f.slow.Store(true)
		get("read").wantRefusal(t, "a slow Gateway", 503, "key_store_unavailable")
		f.slow.Store(false)
		f.gateway.CloseClientConnections()
		f.gateway.Close()
		get("read").wantRefusal(t, "no Gateway", 503, "key_store_unavailable")
	})
}

// TestLimits: a request is asked about and charged once, also one that a proxy
// cannot refuse by itself.
func TestLimits(t *testing.T) {
	each(t, map[string]string{"organization": "2-H", "failures": "1-H"}, func(t *testing.T, f *fleet) {
		get := func(key string) answer { return send(t, f.request(t, "GET", "/api/v1/tasks", key)) }
		for n, want := range []int{200, 200} {
			if got := get("read"); got.StatusCode != want {
				t.Errorf("request %d: got %s %s, want %d", n, got.Status, got.text, want)
			}
		}
		get("read").wantRefusal(t, "over the limit", 429, "rate_limited")
		get("svc_test_wrong").wantRefusal(t, "a wrong key", 401, "api_key_invalid")
		get("svc_test_wrong").wantRefusal(t, "too many wrong keys", 429, "too_many_failures")
		if n := f.asked.Load(); n != 5 {
			t.Errorf("the Gateway was asked %d times, want 5", n)
		}
	})
}

// TestSlowUpload: a request is signed when its header has come, and reaches the
// service then, however late its body is.
func TestSlowUpload(t *testing.T) {
	each(t, map[string]string{"lifetime": "10s"}, func(t *testing.T, f *fleet) { // enough for a slow machine
		body, late := io.Pipe()
		go func() {
			_, _ = io.WriteString(late, `{"title"`)
			<-time.After(11 * time.Second)
			_, _ = io.WriteString(late, `: "x"}`)
			late.Close()
		}()
		r := f.request(t, "POST", "/api/v1/tasks", "full", "Idempotency-Key", "1")
		r.Body, r.ContentLength = body, 14
		if got := send(t, r); got.StatusCode != 201 || f.tasks.Load() != 1 {
			t.Errorf("got %s %s, and %d tasks", got.Status, got.text, f.tasks.Load())
		}
	})
}

// TestHostile: bytes that a proxy and a service may read differently. Whatever a
// client sends, the service runs nothing that the Gateway did not sign for it.
func TestHostile(t *testing.T) {
	each(t, nil, func(t *testing.T, f *fleet) {
		authorization := "Authorization: Bearer " + f.keys["read"] + "\r\n"
		tasks := "GET /api/v1/tasks HTTP/1.1\r\nHost: a\r\n" + authorization
		get := func(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + authorization }
		for what, text := range map[string]string{
			"encoded slash":        get("/api/v1/tasks/a%2Fb"),
			"encoded dots":         get("/api/v1/tasks/%2e%2e/tasks/1"),
			"dots":                 get("/api/v1/tasks/../tasks/1"),
			"double slash":         get("//api/v1//tasks"),
			"out of the location":  get("/api/v1/tasks/../../../verify"),
			"the location itself":  get("/verify"),
			"another name":         get("/api/v1/tasks/%2e%2e/%2e%2e/%2e%2e/verify/tasks-read"),
			"absolute form":        get("http://other/api/v1/tasks"),
			"a NUL":                get("/api/v1/tasks/%00"),
			"line ends":            get("/api/v1/tasks/%0d%0aSvc-Caller-Key:x"),
			"second Authorization": tasks + "Authorization: Bearer " + f.keys["full"] + "\r\n",
			"delete":               "DELETE /api/v1/tasks/1" + tasks[len("GET /api/v1/tasks"):],
			"small letters":        "get" + tasks[3:],
			"unknown method":       "MAKE" + tasks[3:],
			"h2c": tasks + "Connection: Upgrade, HTTP2-Settings\r\n" +
				"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
			"websocket":            tasks + "Connection: Upgrade\r\nUpgrade: websocket\r\n",
			"connection fields":    tasks + "Connection: Svc-Caller-Key, Svc-Caller-Signature, Authorization\r\n",
			"a megabyte of header": tasks + "X-A: " + strings.Repeat("a", 1<<20) + "\r\n",
			"X-Forwarded-Uri": "POST" + tasks[3:] +
				"X-Forwarded-Uri: /api/v1/tasks\r\nX-Forwarded-Method: GET\r\nContent-Length: 0\r\n",
		} {
			raw := exchange(t, f.address, text+"Connection: close\r\n\r\n")
			status, _, _ := strings.Cut(raw, "\r\n")
			for len(f.seen) > 0 {
				r := <-f.seen
				if c := middleware.CallerFrom(r.Context()); r.Method != "GET" || !strings.HasPrefix(r.URL.Path, "/api/v1/tasks") ||
					c.Has(scope.TasksWrite) {
					t.Errorf("%s: the service ran %s %s as %s: %s", what, r.Method, r.RequestURI, c, status)
				}
			}
			if strings.Contains(raw, "Svc-Caller-") || strings.HasPrefix(raw, "HTTP/1.1 101") ||
				strings.Contains(status, " 500") || strings.Contains(status, " 201") {
				t.Errorf("%s: got %.600s", what, raw)
			}
			t.Logf("%s: %s", what, status)
		}

		// Two requests on one connection, the second of another key.
		raw := exchange(t, f.address, tasks+"\r\n"+"POST"+strings.Replace(tasks[3:], f.keys["read"], f.keys["none"], 1)+
			"Content-Length: 0\r\nConnection: close\r\n\r\n")
		if !strings.Contains(raw, "HTTP/1.1 200") || !strings.Contains(raw, "HTTP/1.1 403") || len(f.seen) != 1 {
			t.Errorf("pipelined: got %s", raw)
		}
	})
}

// TestPaths: what the proxy decided on is what the service gets, also one that
// goes by the first bytes of the path.
func TestPaths(t *testing.T) {
	for _, proxy := range proxies {
		t.Run(proxy, func(t *testing.T) {
			t.Parallel()
			service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if _, err := middleware.FromGateway(nil, secret)(r); err != nil {
					t.Errorf("the service got %s: %v", r.RequestURI, err)
				}
			}))
			defer service.Close()
			f := newFleet(t, proxy, service.Listener.Addr().String(), nil)
			for path, want := range map[string]string{
				"/api/v1/tasks": "200", "/api/v1/tasks?n=1": "200", "/api/v1/tasks/a|b": "200", "/api/v1/tasks/é": "200",
				"/api/v1/tasks/a%2Fb": "200", "/api/v1/tasks/x/../y": "200",
				"/api/v1/secrets/../tasks": "404", "/admin/%2e%2e/api/v1/tasks": "404", "/admin%2f..%2fapi/v1/tasks": "404",
				"/admin/..//api/v1/tasks": "404", "/api/v1/tasks/../secrets": "404", "/api/v1/tasks/%2e%2e/secrets": "404",
				"/api/v1/tasks-of-others": "404",
			} {
				raw := exchange(t, f.address, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+
					"Authorization: Bearer "+f.keys["read"]+"\r\n\r\n")
				if !strings.HasPrefix(raw, "HTTP/1.1 "+want) {
					t.Errorf("%s: got %.200s, want %s", path, raw, want)
				}
			}
		})
	}
}

// TestManyScopes: the fields of a caller may be longer than 4 KiB.
func TestManyScopes(t *testing.T) {
	definitions := []scope.Definition{{Name: scope.TasksRead, Meaning: "Read."}}
	names := []scope.Name{scope.TasksRead}
	for n := range 60 {
		name := scope.Name(fmt.Sprintf("%s-%d:read", strings.Repeat("resource-", 7), n))
		names, definitions = append(names, name), append(definitions, scope.Definition{Name: name, Meaning: "Read."})
	}
	own := scope.New(definitions...)
	caller, err := keystore.NewCaller(own, keystore.Identity{Organization: "org é", Subject: "ada", Scopes: names})
	if err != nil {
		t.Fatal(err)
	}
	each(t, nil, func(t *testing.T, f *fleet) {
		f.gateway.Config.Handler = middleware.New(nil, middleware.Options{
			Service:        keystore.Service{Scopes: own},
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
			Authenticate:   func(*http.Request) (*keystore.Caller, error) { return caller, nil },
		}).Gateway(middleware.GatewayOptions{Secrets: [][]byte{secret},
			Requirements: map[string]middleware.Requirement{"tasks-read": middleware.Require(scope.TasksRead)}})
		if got := send(t, f.request(t, "GET", "/api/v1/tasks", "")); got.StatusCode != 200 {
			t.Errorf("got %s %s", got.Status, got.text)
		}
	})
}

// exchange sends bytes and returns what comes until the connection ends.
func exchange(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go func() { _, _ = io.WriteString(conn, text) }()
	raw, _ := io.ReadAll(conn) // a reset is an answer too
	return string(raw)
}

// TestOtherLanguages: services in Python and Node check the signature, and the
// kit finds the contract at a proxy in front of one. It cannot see creates.
func TestOtherLanguages(t *testing.T) {
	for program, file := range map[string]string{"python3": "service.py", "node": "service.mjs"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			address := free(t)
			_, port, _ := net.SplitHostPort(address)
			start(t, "services", address, servers.Program(t, program, program), file, port)
			f := newFleet(t, "nginx", address, map[string]string{"organization": "40-S"})
			got := send(t, f.request(t, "GET", "/api/v1/tasks?n=1", "read"))
			var who struct{ Organization, Scopes, Subject, Environment string }
			err := json.Unmarshal([]byte(got.text), &who)
			if got.StatusCode != 200 || err != nil || who.Organization != "org é" || who.Scopes != "tasks:read" ||
				who.Environment != "sandbox" {
				t.Errorf("got %s %s", got.Status, got.text)
			}
			direct := f.request(t, "GET", "/api/v1/tasks", "read",
				"Svc-Caller-Organization", "org_1", "Svc-Caller-Signature", "99999999999.00")
			direct.URL.Host = address
			if got := send(t, direct); got.StatusCode != 401 {
				t.Errorf("without the proxy: got %s %s", got.Status, got.text)
			}
			raw := exchange(t, address, "POST / HTTP/1.1\r\nHost: a\r\nSvc-Caller-Signature: 1.é\r\n"+
				"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n")
			if strings.Count(raw, "HTTP/1.1 ") != 1 || !strings.HasPrefix(raw, "HTTP/1.1 401 ") {
				t.Errorf("with other bytes in the signature: got %s", raw)
			}
			contracttest.Run(t, contracttest.Target{
				URL: "http://" + f.address, Read: "/api/v1/tasks",
				Keys: contracttest.Keys{Full: f.keys["full"], Reader: f.keys["read"], None: f.keys["none"]},
				Without: []string{"worker", "writer", "second", "revoked", "other", "sandbox", "sandbox-none",
					"create", "second-create", "list", "second-list"},
			})
		})
	}
}

// TestDocumentedRequests: Traefik and Envoy do not run here. These are the
// requests that their documentation shows.
func TestDocumentedRequests(t *testing.T) {
	f := newFleet(t, "nginx", "", nil)
	for proxy, r := range map[string]*http.Request{
		// doc.traefik.io, ForwardAuth: a GET with these fields, at the address as it is.
		"Traefik": f.request(t, "GET", "/verify/tasks-write", "full", "X-Forwarded-Method", "POST",
			"X-Forwarded-Uri", "/api/v1/tasks?n=1", "X-Forwarded-Proto", "http", "X-Forwarded-Host", "a",
			"X-Forwarded-For", "192.0.2.1"),
		// envoyproxy.io, ext_authz with an HTTP service: the client's method, and its path behind path_prefix.
		"Envoy": f.request(t, "POST", "/verify/tasks-write/api/v1/tasks?n=1", "full", "X-Forwarded-For", "192.0.2.1"),
	} {
		r.URL.Host = f.gateway.Listener.Addr().String()
		verdict := send(t, r)
		direct := httptest.NewRequest("POST", "/api/v1/tasks?n=1", nil)
		direct.Header = verdict.Header
		w := httptest.NewRecorder()
		f.service().ServeHTTP(w, direct)
		if verdict.StatusCode != 200 || w.Code != 201 {
			t.Errorf("%s: got %s %v, and the service %d %s", proxy, verdict.Status, verdict.Header, w.Code, w.Body)
		}
	}
}

// TestForgottenField: a proxy that lets one of the client's fields through gets
// its clients refused, and gives nobody another name.
func TestForgottenField(t *testing.T) {
	f := newFleet(t, "nginx", "", nil)
	service := httptest.NewServer(f.service())
	defer service.Close()
	r := httptest.NewRequest("GET", "/verify/tasks-read", nil)
	r.Header = http.Header{"X-Forwarded-For": {"192.0.2.1"}, "Authorization": {"Bearer " + f.keys["read"]},
		"X-Forwarded-Uri": {"/api/v1/tasks"}}
	r.RequestURI, r.URL.Host, r.URL.Scheme = "", f.gateway.Listener.Addr().String(), "http"
	signed := send(t, r).Header
	for name, change := range map[string]func(http.Header){
		"":            func(http.Header) {},
		"twice":       func(h http.Header) { h.Add("Svc-Caller-Subject", "ada") },
		"underscores": func(h http.Header) { h["Svc_Caller_Subject"] = []string{"ada"} },
		"kept":        func(h http.Header) { h.Set("Svc-Caller-Subject", "ada") },
	} {
		direct := f.request(t, "GET", "/api/v1/tasks", "")
		direct.URL.Host = service.Listener.Addr().String()
		for field, values := range signed {
			if strings.HasPrefix(field, "Svc-Caller-") {
				direct.Header[field] = values
			}
		}
		change(direct.Header)
		want := map[bool]int{true: 200, false: 401}[name == ""]
		if got := send(t, direct); got.StatusCode != want {
			t.Errorf("%s: got %s %s, want %d", name, got.Status, got.text, want)
		}
	}
}
