package middleware_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

const (
	jwt     = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1c2VyXzEifQ.c2lnbmF0dXJl"
	oldKey  = "acme_0123456789abcdef0123456789abcdef01234567"
	oldKey2 = "acme_fedcba9876543210fedcba9876543210fedcba98"
	bareKey = "00112233445566778899aabbccddeeff00112233" // nothing says that it is a key
)

func mac(pepper, token string) (d keystore.Digest) {
	h := hmac.New(sha256.New, []byte(pepper))
	h.Write([]byte(token))
	h.Sum(d[:0])
	return d
}

// acme is a service with keys of an older system, hashed with one of two
// peppers.
func acme() keystore.Service {
	return keystore.Service{Legacy: []keystore.LegacyFormat{{
		Name: "acme", Prefix: "acme_", Match: func(token string) bool { return len(token) == 45 },
		Digests: keystore.HMACDigests([]byte("the new pepper"), []byte("the old pepper")),
	}}}
}

// importOld stores the key of an older system under the digest of a pepper.
func importOld(t *testing.T, ring *keyring, token, pepper string, e keystore.Environment) *keystore.Key {
	t.Helper()
	issuer := issuing.New(ring.memory, issuing.Options{Service: acme()})
	key, err := issuer.Import(t.Context(), keystore.Key{
		Organization: "org_1", CreatedBy: "import", Name: "old", Environment: e,
		Legacy: "acme", Digest: mac(pepper, token), Hint: token[len(token)-4:],
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func swapLast(token string) string {
	last := byte('a')
	if token[len(token)-1] == last {
		last = 'b'
	}
	return token[:len(token)-1] + string(last)
}

// countedStore counts lookups, and can be switched off.
type countedStore struct {
	issuing.Store
	lookups atomic.Int64
	down    atomic.Bool
}

func (s *countedStore) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	if s.lookups.Add(1); s.down.Load() {
		return nil, errDown
	}
	return s.Store.Lookup(ctx, d)
}

// lookupFunc is a store of keys in one function, takeFunc one of counters.
type (
	lookupFunc func(context.Context, keystore.Digest) (*keystore.Key, error)
	takeFunc   func(context.Context, []ratelimit.Charge) (ratelimit.Decision, error)
)

func (f lookupFunc) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	return f(ctx, d)
}

func (f takeFunc) Take(ctx context.Context, c []ratelimit.Charge) (ratelimit.Decision, error) {
	return f(ctx, c)
}

// failing is a store of counters that is away.
var failing = takeFunc(func(context.Context, []ratelimit.Charge) (ratelimit.Decision, error) {
	return ratelimit.Decision{}, errDown
})

// tapped is a store of replies that tells of each claim and settlement before it
// does what it is asked.
type tapped struct {
	idem.Store
	begins  func()
	settles func(idem.Settlement)
}

func (s tapped) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	if s.begins != nil {
		s.begins()
	}
	return s.Store.Begin(ctx, c)
}

func (s tapped) Settle(ctx context.Context, k idem.Key, c idem.ClaimToken, settlement idem.Settlement) error {
	if s.settles != nil {
		s.settles(settlement)
	}
	return s.Store.Settle(ctx, k, c, settlement)
}

const (
	missing = `Bearer realm="api"`
	invalid = `Bearer realm="api", error="invalid_token"`
)

// wantRefusal checks status, code, challenge and what every refusal carries.
func wantRefusal(t testing.TB, what string, res answer, status int, code, challenge string) {
	t.Helper()
	p := res.problem(t)
	if res.StatusCode != status || p.Code != code || p.Status != status || p.RequestID != wantID(t, res.Response) {
		t.Errorf("%s: got %d %s, want %d %q with the id of the header", what, res.StatusCode, res.body, status, code)
	}
	if got := strings.Join(res.Header.Values("Www-Authenticate"), "|"); got != challenge {
		t.Errorf("%s: got challenge %q, want %q", what, got, challenge)
	}
	if got := res.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("%s: got Cache-Control %q", what, got)
	}
	if (res.Header.Get("Retry-After") != "") != (status == 429 || status == 503) {
		t.Errorf("%s: got Retry-After %q with %d", what, res.Header.Get("Retry-After"), status)
	}
}

type authenticate = func(*http.Request) (*keystore.Caller, error)

// wantAnswer checks the status of an answer, and its body where it is given.
func wantAnswer(t testing.TB, what string, a answer, status int, body ...string) {
	t.Helper()
	if a.StatusCode != status || len(body) > 0 && a.body != body[0] {
		t.Errorf("%s: got %d %q, want %d %q", what, a.StatusCode, a.body, status, body)
	}
}

// always is an Options.Authenticate that gives one answer.
func always(caller *keystore.Caller, err error) authenticate {
	return func(*http.Request) (*keystore.Caller, error) { return caller, err }
}

// nobody is an Options.Authenticate that knows no caller.
var nobody = always(nil, middleware.ErrNoCredentials)

// by returns a caller of org_1 that was made by hand.
func by(t testing.TB, subject string, scopes ...scope.Name) *keystore.Caller {
	t.Helper()
	p, err := keystore.NewCaller(nil, keystore.Identity{Organization: "org_1", Subject: subject, Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// session finds callers by a cookie, whose value says how it answers.
func session(p *keystore.Caller) authenticate {
	return func(r *http.Request) (*keystore.Caller, error) {
		cookie, err := r.Cookie("session")
		switch {
		case err != nil:
			return nil, fmt.Errorf("no session: %w", middleware.ErrNoCredentials)
		case cookie.Value == "ended":
			return nil, &middleware.Problem{Status: 401, Code: "session_ended"}
		case cookie.Value == "down":
			return nil, errors.New("sessions are down")
		case cookie.Value == "nobody":
			return nil, nil
		case cookie.Value == "nil":
			return nil, (*middleware.Problem)(nil)
		}
		return p, nil
	}
}

// bearerJWT finds callers by Bearer tokens with two dots.
func bearerJWT(p *keystore.Caller) authenticate {
	return func(r *http.Request) (*keystore.Caller, error) {
		if strings.Count(r.Header.Get("Authorization"), ".") != 2 {
			return nil, middleware.ErrNoCredentials
		}
		return p, nil
	}
}

// observed collects Events as Hooks.Observe gets them.
type observed struct {
	t      testing.TB
	events []middleware.Event
}

func (o *observed) note(e middleware.Event) { o.events = append(o.events, e) }

func (o *observed) hooks() *middleware.Hooks { return quiet(o.note) }

// ask sends a request and returns the one Event of it.
func (o *observed) ask(h http.Handler, r *http.Request) (middleware.Event, answer) {
	o.t.Helper()
	o.events = nil
	w := httptest.NewRecorder()
	aborts(h, w, r)
	if len(o.events) != 1 {
		o.t.Fatalf("%s %s: got %d Events, want 1: %+v", r.Method, r.URL, len(o.events), o.events)
	}
	res := w.Result()
	body, _ := io.ReadAll(res.Body)
	return o.events[0], answer{res, string(body)}
}

// keyring is a memory store with keys in it.
type keyring struct {
	keys   *keystore.Cached
	memory issuing.Store
	issuer *issuing.Issuer
}

func newKeyring(options ...keystore.CacheOptions) *keyring {
	var o keystore.CacheOptions
	if len(options) > 0 {
		o = options[0]
	}
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second) // a slow machine may need more than the default
	memory := issuing.NewMemory()
	keys := keystore.NewCached(memory, o)
	return &keyring{keys: keys, memory: memory, issuer: issuing.New(keys, issuing.Options{})}
}

// oneKey is a keyring with one key, whose token it returns too.
func oneKey(t testing.TB, scopes ...scope.Name) (*keyring, string) {
	t.Helper()
	ring := newKeyring()
	return ring, ring.issue(t, scopes...)
}

// issue returns the token of a new production key of org_1.
func (k *keyring) issue(t testing.TB, scopes ...scope.Name) string {
	t.Helper()
	token, _ := k.grant(t, keystore.Key{Scopes: scopes})
	return token
}

// grant issues a key, of org_1 and production unless it says otherwise.
func (k *keyring) grant(t testing.TB, g keystore.Key) (string, *keystore.Key) {
	t.Helper()
	g.Name = cmp.Or(g.Name, "test")
	g.Organization, g.Environment = cmp.Or(g.Organization, "org_1"), cmp.Or(g.Environment, keystore.Production)
	secret, key, err := k.issuer.Issue(context.Background(), g)
	if err != nil {
		t.Fatalf("Issue(%+v): %v", g, err)
	}
	return secret.Reveal(), key
}

// expire makes the key expired in the past.
func (k *keyring) expire(t testing.TB, key *keystore.Key) {
	t.Helper()
	changed := key.Clone()
	changed.ExpiresAt = time.Now().Add(-time.Hour)
	k.update(t, changed)
}

// update stores a change as another process does, which this one hears of.
func (k *keyring) update(t testing.TB, changed *keystore.Key) {
	t.Helper()
	if err := k.memory.Update(context.Background(), changed, issuing.AuditEntry{}); err != nil {
		t.Fatalf("Update: %v", err)
	}
	k.keys.Invalidate(changed.Digest)
}

// logged collects log records as text.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// hooks log here, and notes get each Event.
func (l *logged) hooks(notes ...func(middleware.Event)) *middleware.Hooks {
	hooks := &middleware.Hooks{Logger: slog.New(slog.NewTextHandler(l, nil))}
	for _, note := range notes {
		hooks.Observe = func(_ context.Context, e middleware.Event) { note(e) }
	}
	return hooks
}

func newLogged() *logged { return &logged{} }

// answer is a response read to its end.
type answer struct {
	*http.Response
	body string
}

func (a answer) problem(t testing.TB) problemBody {
	t.Helper()
	var p problemBody
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("body of %d is not a problem: %v\n%s", a.StatusCode, err, a.body)
	}
	return p
}

type problemBody struct {
	Type, Title, Detail, Code string
	Status                    int
	RequestID                 string   `json:"request_id"`
	Policy                    string   `json:"policy"`
	ResetsAt                  string   `json:"resets_at"`
	Missing                   []string `json:"missing_scopes"`
	OriginalStatus            int      `json:"original_status"`
	OriginalLocation          string   `json:"original_location"`
}

// request builds a request; header lines are "Name: value".
func request(method, target, token, body string, lines ...string) *http.Request {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// serve runs a request through a handler on a recorder.
func serve(h http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	res := w.Result()
	body, _ := io.ReadAll(res.Body)
	return answer{res, string(body)}
}

// aborts tells whether a handler aborts the response, for which net/http breaks
// the connection off.
func aborts(h http.Handler, w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		} else if p != nil {
			aborted = true
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

// do sends a request to a server and reads the answer.
func do(t testing.TB, client *http.Client, r *http.Request) answer {
	t.Helper()
	r.RequestURI = ""
	res, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: reading the body: %v", r.Method, r.URL, err)
	}
	return answer{res, string(body)}
}

// replies is a runner on a memory store.
func replies(o ...idem.Options) *idem.Runner {
	return runnerOf(&idem.Memory{}, o...)
}

// runnerOf is a runner on a store.
func runnerOf(store idem.Store, o ...idem.Options) *idem.Runner {
	if len(o) == 0 {
		o = make([]idem.Options, 1)
	}
	o[0].Timeout = cmp.Or(o[0].Timeout, 30*time.Second) // a slow machine may need more than the default
	return idem.NewRunner(store, o[0])
}

// flush writes the uses that were recorded.
func flush(l *keystore.Uses) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return l.Run(ended)
}

const idHeader = "Svc-Request-Id"

// hangs is how long a test waits for what should come at once.
const hangs = 5 * time.Minute

// start serves h on loopback until the test ends.
func start(t testing.TB, h http.Handler, configure ...func(*httptest.Server)) *httptest.Server {
	t.Helper()
	return startOver(t, "HTTP/1.1", h, configure)
}

// startTLS serves h over TLS; srv.Client speaks HTTP/2 with it.
func startTLS(t testing.TB, h http.Handler, configure ...func(*httptest.Server)) *httptest.Server {
	t.Helper()
	return startOver(t, "HTTP/2", h, configure)
}

func startOver(t testing.TB, protocol string, h http.Handler, configure []func(*httptest.Server)) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, c := range configure {
		c(srv)
	}
	if srv.EnableHTTP2 = protocol == "HTTP/2"; srv.EnableHTTP2 {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv
}

// withRequestIDs puts the server's listener behind RequestIDListener.
func withRequestIDs(srv *httptest.Server) {
	srv.Listener = middleware.RequestIDListener(srv.Config, srv.Listener, middleware.Options{})
}

// overBoth runs a test over HTTP/1.1 and over HTTP/2.
func overBoth(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) { test(t, protocol) })
	}
}

// bothInBubbles is overBoth, each in a bubble of synctest.
func bothInBubbles(t *testing.T, test func(t *testing.T, protocol string)) {
	overBoth(t, func(t *testing.T, protocol string) {
		synctest.Test(t, func(t *testing.T) { test(t, protocol) })
	})
}

// get builds a request to a server.
func get(t testing.TB, srv *httptest.Server, path, token string) *http.Request {
	t.Helper()
	return newRequest(t, "GET", srv.URL+path, token, nil)
}

func newRequest(t testing.TB, method, url, token string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// noRedirects returns the server's client, which then reports redirects.
func noRedirects(srv *httptest.Server) *http.Client {
	c := *srv.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// wire is a bare connection to a server.
type wire struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

func dial(t testing.TB, srv *httptest.Server) *wire {
	t.Helper()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(hangs))
	return &wire{c, t, bufio.NewReader(c)}
}

func (c *wire) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// head reads the head of the next response, which may be an interim one.
func (c *wire) head(method string) *http.Response {
	c.t.Helper()
	res, err := http.ReadResponse(c.br, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("reading a response to %s: %v", method, err)
	}
	return res
}

// next reads the next response with its body.
func (c *wire) next(method string) answer {
	c.t.Helper()
	res := c.head(method)
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatalf("reading the body of %d: %v", res.StatusCode, err)
	}
	return answer{res, string(body)}
}

// rest reads until the server closes the connection.
func (c *wire) rest() string {
	c.t.Helper()
	b, err := io.ReadAll(c.br)
	if err != nil {
		c.t.Fatalf("reading to the end of the connection: %v", err)
	}
	return string(b)
}

// wantID checks that a response carries exactly one request id of ours and
// returns it.
func wantID(t testing.TB, res *http.Response) string {
	t.Helper()
	ids := res.Header.Values(idHeader)
	if len(ids) != 1 || len(ids[0]) != 20 || strings.Trim(ids[0], "0123456789abcdefghijklmnopqrstuv") != "" {
		t.Errorf("%s of %d: got %q, want exactly one xid", idHeader, res.StatusCode, ids)
		return ""
	}
	return ids[0]
}

// plant puts a key into the store as it is and returns its token. ID, Digest
// and Environment are filled in.
func (k *keyring) plant(t testing.TB, key keystore.Key) string {
	t.Helper()
	key.Organization, key.Environment = cmp.Or(key.Organization, "org_1"), cmp.Or(key.Environment, keystore.Production)
	var above []*keystore.Key
	if key.Parent != "" {
		above = append(above, &keystore.Key{ID: key.Parent})
	}
	token := keystore.Service{}.Generate(key.Environment, above...).Reveal()
	key.Digest = keystore.DigestOf(token)
	if key.ID == "" {
		key.ID = "key_" + token[len(token)-8:]
	}
	if err := k.memory.Insert(t.Context(), &key, issuing.AuditEntry{}, 0); err != nil {
		t.Fatalf("Insert: %v", err)
	}
	return token
}

// testAPI returns an API with GET /api/v1/account for account:read, GET and
// POST /api/v1/tasks for tasks:read and tasks:write, POST
// /api/v1/tasks/{id}/cancel for tasks:cancel and GET /api/v1/any for any key,
// all of which answer "ok".
func testAPI(keys keystore.Store, o middleware.Options) *middleware.API {
	o.Idempotency.Off = o.Idempotency.Runner == nil
	api := middleware.NewAPI(keys, o)
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), sayOK)
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), sayOK)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), sayOK)
	api.HandleFunc("POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksCancel), sayOK)
	api.HandleFunc("GET /api/v1/any", middleware.AnyCaller(), sayOK)
	return api
}

// oneRoute returns an API whose GET and PUT /api/v1/x answer with h, and a
// token that may.
func oneRoute(t testing.TB, h http.HandlerFunc, o middleware.Options) (*middleware.API, string) {
	t.Helper()
	ring, token := oneKey(t)
	return apiOf(ring.keys, o, middleware.AnyCaller(), h), token
}

// apiOf returns an API whose GET and PUT /api/v1/x, and POST where there is a
// Runner, answer with h.
func apiOf(keys keystore.Store, o middleware.Options, need middleware.Requirement, h http.HandlerFunc) *middleware.API {
	api := middleware.NewAPI(keys, o)
	api.HandleFunc("GET /api/v1/x", need, h)
	api.HandleFunc("PUT /api/v1/x", need, h)
	if o.Idempotency.Runner != nil {
		api.HandleFunc("POST /api/v1/x", need, h)
	}
	return api
}

// bothForms are an API as apiOf returns it, and the same as pieces.
func bothForms(keys keystore.Store, o middleware.Options, need middleware.Requirement, h http.HandlerFunc,
) map[string]http.Handler {
	g := middleware.New(keys, o)
	stages := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.RateLimit, g.Enforce(need), g.Idempotent)
	return map[string]http.Handler{"API": apiOf(keys, o, need, h), "pieces": stages(h)}
}

// claiming are ways to put a handler of POST /api/v1/x behind Idempotent, for any
// key.
func claiming(ring *keyring, o func() middleware.Options) map[string]func(http.Handler) http.Handler {
	return map[string]func(http.Handler) http.Handler{
		"API": func(h http.Handler) http.Handler {
			return apiOf(ring.keys, o(), middleware.AnyCaller(), h.ServeHTTP)
		},
		"pieces": func(h http.Handler) http.Handler { return keyed(ring, o(), h.ServeHTTP) },
		"pieces without RequestID": func(h http.Handler) http.Handler {
			g := middleware.New(ring.keys, o())
			return middleware.Chain(anyCaller(g), g.Idempotent)(h)
		},
	}
}

// quiet are hooks that log nowhere.
func quiet(notes ...func(middleware.Event)) *middleware.Hooks { return newLogged().hooks(notes...) }

var sayOK = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })

// sayID is a handler that says what id its request has.
var sayID = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, middleware.RequestIDFrom(r.Context()))
})

// steps is a handler that does one thing after another: a number is a status,
// "Name: value" a header field, and what is no other word is written.
func steps(list ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, step := range list {
			name, value, isField := strings.Cut(step, ": ")
			status, notStatus := strconv.Atoi(step)
			switch {
			case step == "flush":
				if err := http.NewResponseController(w).Flush(); err != nil {
					panic(err)
				}
			case step == "panic":
				panic("boom")
			case step == "abort":
				panic(http.ErrAbortHandler)
			case step == "goexit":
				runtime.Goexit()
			case step == "free":
				middleware.ExecutionFrom(r.Context()).Free()
			case step == "end":
				<-r.Context().Done()
			case isField:
				w.Header().Set(name, value)
			case notStatus == nil:
				w.WriteHeader(status)
			default:
				_, _ = io.WriteString(w, step)
			}
		}
	}
}

// wantPanic checks that f panics with a text that contains want.
func wantPanic(t testing.TB, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), want) {
			t.Errorf("got panic %v, want one about %q", p, want)
		}
	}()
	f()
}

// doInformed is do, and returns the heads of interim responses too.
func doInformed(t testing.TB, client *http.Client, r *http.Request) (answer, []*http.Response) {
	t.Helper()
	var interim []*http.Response
	got := do(t, client, r.WithContext(informed(r.Context(), func(code int, h http.Header) {
		interim = append(interim, &http.Response{StatusCode: code, Header: h})
	})))
	return got, interim
}

// informed makes a context whose request tells note of interim responses.
func informed(ctx context.Context, note func(code int, h http.Header)) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error { note(code, http.Header(h)); return nil },
	})
}

// protocols are the ones of the servers on which whole responses are compared.
var protocols = []string{"HTTP/1.1", "HTTP/2"}

// listen serves h until the test ends. The client shows what it gets as it is.
func listen(t testing.TB, protocol string, h http.Handler, configure ...func(*httptest.Server)) (*httptest.Server,
	*http.Client) {
	t.Helper()
	srv := startOver(t, protocol, h, configure)
	srv.Client().Transport.(*http.Transport).DisableCompression = true
	return srv, noRedirects(srv)
}

// inBubble runs a subtest in a bubble of synctest.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// listenInBubble serves h on connections in memory until the test ends, since
// a bubble waits for no network. The client reaches it under any name.
func listenInBubble(t testing.TB, protocol string, h http.Handler, configure func(*http.Server)) *http.Client {
	t.Helper()
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	if configure != nil {
		configure(srv)
	}
	ln := newPipes()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(ln)
	}()
	transport := &http.Transport{DialContext: ln.dial, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2")
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = srv.Close()
		<-served
	})
	return &http.Client{Transport: transport}
}

// pipes is a listener for connections in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() pipes { return pipes{make(chan net.Conn), make(chan struct{})} }

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error { close(p.closed); return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

var xids = regexp.MustCompile(`\b[0-9a-v]{20}\b`)

var errDown = errors.New("the store is down")

// world is an API with one route of each kind, a key that may use them, and
// stores that can be switched off.
type world struct {
	keys    *countedStore
	noRates atomic.Bool
	replies *idemtest.Faulty
	ring    *keyring
	api     *middleware.API
	token   string // of a key of org_1 with all that the routes ask for
	log     *logged

	runs   atomic.Int64
	create atomic.Pointer[http.HandlerFunc] // what POST /api/v1/tasks does after it was counted

	mu     sync.Mutex
	events []middleware.Event
}

// newWorld opens a world; configure may change the options.
func newWorld(t testing.TB, configure func(*middleware.Options)) *world {
	t.Helper()
	memory, counters := issuing.NewMemory(), &ratelimit.Memory{}
	w := &world{keys: &countedStore{Store: memory}, replies: idemtest.NewFaulty(&idem.Memory{}), log: newLogged()}
	rates := takeFunc(func(ctx context.Context, takes []ratelimit.Charge) (ratelimit.Decision, error) {
		if w.noRates.Load() {
			return failing(ctx, takes)
		}
		return counters.Take(ctx, takes)
	})
	cached := keystore.NewCached(w.keys, keystore.CacheOptions{})
	w.ring = &keyring{keys: cached, memory: memory, issuer: issuing.New(cached, issuing.Options{})}
	w.token = w.ring.issue(t, scope.TasksWrite, scope.TasksRead)
	o := middleware.Options{
		RateLimit:   perOrganization(rates, ratelimit.Limit{Count: 5, Period: time.Hour}),
		Idempotency: keyedOptions{Runner: runnerOf(w.replies, idem.Options{Wait: -1})},
		Hooks:       w.log.hooks(w.observe),
	}
	if configure != nil {
		configure(&o)
	}
	w.api = middleware.NewAPI(cached, o)
	w.does(steps("Content-Type: application/json", "Location: /api/v1/tasks/task_1", "201", `{"id":"task_1"}`+"\n"))
	write, read := middleware.Require(scope.TasksWrite), middleware.Require(scope.TasksRead)
	w.api.HandleFunc("POST /api/v1/tasks", write, func(rw http.ResponseWriter, r *http.Request) {
		w.runs.Add(1)
		(*w.create.Load())(rw, r)
	}, middleware.RouteOptions{Units: w.units(o)})
	w.api.HandleFunc("GET /api/v1/tasks", read, func(rw http.ResponseWriter, r *http.Request) {})
	w.api.HandleFunc("POST /api/v1/batches/", write, func(rw http.ResponseWriter, r *http.Request) { w.runs.Add(1) })
	return w
}

// units are what a create uses, where there is a quota.
func (w *world) units(o middleware.Options) int64 {
	if o.Quota.Organization == nil {
		return 0
	}
	return 5
}

// outage switches off the stores that the faults name, and the others on.
func (w *world) outage(faults ...fault) {
	w.keys.down.Store(slices.Contains(faults, keyStoreDown))
	w.noRates.Store(slices.Contains(faults, rateStoreDown))
	w.replies.Always(idemtest.Begin, idemtest.None)
	if slices.Contains(faults, replyStoreDown) {
		w.replies.Always(idemtest.Begin, idemtest.Fail)
	}
}

// does sets what POST /api/v1/tasks does.
func (w *world) does(h http.HandlerFunc) { w.create.Store(&h) }

func (w *world) observe(e middleware.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// last returns the event of a request.
func (w *world) last(id string) (last middleware.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.RequestID == id {
			last = e
		}
	}
	return last
}

// post is a keyed create with the world's token.
func (w *world) post(body string, lines ...string) *http.Request {
	return request("POST", "/api/v1/tasks", w.token, body, append([]string{"Idempotency-Key: key-1"}, lines...)...)
}

// anyCaller authenticates, and asks for no scope.
func anyCaller(g *middleware.Guard) func(http.Handler) http.Handler {
	return middleware.Chain(g.Authenticate, g.Enforce(middleware.AnyCaller()))
}

func callerOf(t *testing.T, ring *keyring) (caller *keystore.Caller) {
	g := middleware.New(ring.keys, middleware.Options{})
	serve(anyCaller(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller = middleware.CallerFrom(r.Context())
	})), request("GET", "/", ring.issue(t), ""))
	return caller
}

// unwrapper is how a foreign stage wraps a writer since Go 1.20: with Unwrap
// and no optional interface of its own.
type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// policy is a limit in the notation of ratelimit.Parse with its burst.
func policy(name, limit string, burst int64) *ratelimit.Policy {
	l := ratelimit.MustParse(limit)
	l.Burst = burst
	return &ratelimit.Policy{Name: name, Limit: l}
}

// limited is an API with limits and the tokens of two keys of org_1, production
// and sandbox, and of one of org_2.
func limited(t testing.TB, l rateOptions) (api *middleware.API, live, test, other string) {
	t.Helper()
	ring := newKeyring()
	if l.Store == nil {
		l.Store = &ratelimit.Memory{}
	}
	live = ring.issue(t, scope.TasksRead)
	test, _ = ring.grant(t, keystore.Key{Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead}})
	other, _ = ring.grant(t, keystore.Key{Organization: "org_2", Environment: keystore.Production,
		Scopes: []scope.Name{scope.TasksRead}})
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

// item is one of a structured field's list (RFC 9651): a string with integer
// parameters.
type item struct {
	name   string
	params map[string]int64
}

var itemForm = regexp.MustCompile(`^"([ !#-\[\]-~]*)"((?:;[a-z*][a-z0-9_.*-]*=-?[0-9]{1,15})*)$`)

func items(t testing.TB, h http.Header, name string) []item {
	t.Helper()
	values := h.Values(name)
	if len(values) != 1 {
		t.Errorf("%s: got %q, want one line", name, values)
		return nil
	}
	var list []item
	for _, text := range strings.Split(values[0], ", ") {
		m := itemForm.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s: %q is not an item of a list", name, text)
			return nil
		}
		params := map[string]int64{}
		for _, p := range strings.Split(m[2], ";")[1:] {
			key, value, _ := strings.Cut(p, "=")
			params[key], _ = strconv.ParseInt(value, 10, 64)
		}
		list = append(list, item{m[1], params})
	}
	return list
}

// reportOnly returns a policy that refuses nothing.
func reportOnly(name, limit string) *ratelimit.Policy {
	p := policy(name, limit, 0)
	p.ReportOnly = true
	return p
}

// lists records the lists of charges that a store gets.
type lists struct {
	ratelimit.Store
	first []string // the policies of each list
}

func (l *lists) Take(ctx context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	var names []string
	for _, c := range charges {
		names = append(names, c.Policy.Name)
	}
	l.first = append(l.first, strings.Join(names, " "))
	return l.Store.Take(ctx, charges)
}

// keyless is a Guard of the stages that need no API key.
func keyless() *middleware.Guard { return middleware.New(nil, middleware.Options{Hooks: quiet()}) }

func stage() func(http.Handler) http.Handler { return keyless().RequestID }

// named is a Guard with another header for the request id.
func named(header string) *middleware.Guard {
	return middleware.New(nil, middleware.Options{RequestIDHeader: header})
}

func trust(cidrs ...string) (proxies []netip.Prefix) {
	for _, cidr := range cidrs {
		proxies = append(proxies, netip.MustParsePrefix(cidr))
	}
	return proxies
}

// as puts a caller into requests, as other people's authentication does.
func as(p *keystore.Caller) func(http.Handler) http.Handler {
	return foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(w, r.WithContext(middleware.WithCaller(r.Context(), p)))
	})
}

// foreign is a stage of somebody else, in one function.
func foreign(f func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f(w, r, next) })
	}
}

// wrapping is a foreign stage that hands on another writer.
func wrapping(wrap func(http.ResponseWriter) http.ResponseWriter) func(http.Handler) http.Handler {
	return foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(wrap(w), r) })
}

// foreignWriter hands on a writer without any optional interface.
var foreignWriter = wrapping(func(w http.ResponseWriter) http.ResponseWriter {
	return struct{ http.ResponseWriter }{w}
})

// unwrapping hands on a writer as foreign stages do since Go 1.20.
var unwrapping = wrapping(func(w http.ResponseWriter) http.ResponseWriter { return unwrapper{w} })

func insufficient(names string) string {
	return `Bearer realm="api", error="insufficient_scope", scope="` + names + `"`
}

// throttled is an API that allows limit failures for an address, on a store
// that counts.
func throttled(ring *keyring, limit string, o middleware.Options) (*middleware.API, *countedStore) {
	store := &countedStore{Store: ring.memory}
	o.Failures = ratelimit.MustParse(limit)
	if o.Hooks == nil {
		o.Hooks = quiet()
	}
	return testAPI(keystore.NewCached(store, keystore.CacheOptions{}), o), store
}

func from(address string, r *http.Request) *http.Request {
	r.RemoteAddr = address
	return r
}

func wellFormed() string { return keystore.Service{}.Generate(keystore.Production).Reveal() }

// discard is a writer with the least that a server's has, so that a benchmark
// counts the stages and not the recorder.
type discard struct {
	header http.Header
	status int
}

func (w *discard) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

func (w *discard) Write(p []byte) (int, error) { return len(p), nil }

func (w *discard) WriteHeader(status int) { w.status = status }

// perOrganization is middleware.PerOrganization with a store of the test's own.
func perOrganization(store ratelimit.Store, limit ratelimit.Limit) rateOptions {
	return rateOptions{Store: store, Organization: &ratelimit.Policy{Name: "organization", Limit: limit}}
}
