package middleware_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

const idHeader = "Svc-Request-Id"

// hangs is how long a test waits for what should come at once.
const hangs = 5 * time.Minute

// start serves h on loopback until the test ends.
func start(t testing.TB, h http.Handler, configure ...func(*httptest.Server)) *httptest.Server {
	t.Helper()
	srv := prepareServer(h, configure)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// startTLS serves h over TLS; srv.Client speaks HTTP/2 with it.
func startTLS(t testing.TB, h http.Handler, configure ...func(*httptest.Server)) *httptest.Server {
	t.Helper()
	srv := prepareServer(h, configure)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

func prepareServer(h http.Handler, configure []func(*httptest.Server)) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, c := range configure {
		c(srv)
	}
	return srv
}

// withRequestIDs puts the server's listener behind RequestIDListener.
func withRequestIDs(srv *httptest.Server) {
	srv.Listener = middleware.RequestIDListener(srv.Config, srv.Listener, middleware.Options{})
}

// overBoth runs a test over HTTP/1.1 and over HTTP/2.
func overBoth(t *testing.T, test func(t *testing.T, serve func(http.Handler) *httptest.Server)) {
	t.Helper()
	t.Run("HTTP/1.1", func(t *testing.T) {
		test(t, func(h http.Handler) *httptest.Server { return start(t, h) })
	})
	t.Run("HTTP/2.0", func(t *testing.T) {
		test(t, func(h http.Handler) *httptest.Server { return startTLS(t, h) })
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
	if key.Environment == "" {
		key.Environment = keystore.Production
	}
	if key.Organization == "" {
		key.Organization = "org_1"
	}
	token := keystore.Service{}.Generate(key.Environment).Reveal()
	key.Digest = keystore.DigestOf(token)
	if key.ID == "" {
		key.ID = "key_" + token[len(token)-8:]
	}
	if err := k.memory.Insert(t.Context(), &key); err != nil {
		t.Fatalf("Insert: %v", err)
	}
	return token
}

// testAPI returns an API with GET /api/v1/account for account:read, GET and
// POST /api/v1/tasks for tasks:read and tasks:write, POST
// /api/v1/tasks/{id}/cancel for tasks:cancel and GET /api/v1/any for any key,
// all of which answer "ok".
func testAPI(keys keystore.Store, o middleware.Options) *middleware.API {
	api := middleware.NewAPI(keys, o)
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), sayOK)
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), sayOK)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), sayOK)
	api.HandleFunc("POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksCancel), sayOK)
	api.HandleFunc("GET /api/v1/any", middleware.AnyKey(), sayOK)
	return api
}

// oneRoute returns an API whose GET and PUT /api/v1/x answer with h, and a
// token that may.
func oneRoute(t testing.TB, h http.HandlerFunc, o middleware.Options) (*middleware.API, string) {
	t.Helper()
	ring := newKeyring()
	api := middleware.NewAPI(ring.keys, o)
	api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), h)
	api.HandleFunc("PUT /api/v1/x", middleware.AnyKey(), h)
	return api, ring.issue(t)
}

// quiet are hooks that log nowhere.
func quiet() *middleware.Hooks { return newLogged().hooks() }

func sayOK(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }

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

// seen is what a client sees of a response.
type seen struct {
	Status   int
	Length   int64
	Coding   []string
	Header   http.Header
	Trailer  http.Header
	Body     string
	Informed []string
}

// look sends a request and notes what the client sees of the answer.
func look(t *testing.T, client *http.Client, url string, header http.Header) seen {
	t.Helper()
	var informed []string
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			informed = append(informed, fmt.Sprint(code, h["Link"]))
			return nil
		},
	})
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	a := do(t, client, r)
	if len(a.body) > 1000 {
		a.body = fmt.Sprintf("%d bytes, %x", len(a.body), sha256.Sum256([]byte(a.body)))
	}
	return seen{a.StatusCode, a.ContentLength, a.TransferEncoding, a.Header, a.Trailer, a.body, informed}
}

// without drops header fields.
func (s seen) without(names ...string) seen {
	s.Header = s.Header.Clone()
	for _, name := range names {
		delete(s.Header, name)
	}
	return s
}

// protocols are the ones of the servers on which whole responses are compared.
var protocols = []string{"HTTP/1.1", "HTTP/2"}

// listen serves h until the test ends. The client shows what it gets as it is.
func listen(t testing.TB, protocol string, h http.Handler, configure ...func(*httptest.Server)) (*httptest.Server, *http.Client) {
	t.Helper()
	serve := start
	if protocol == "HTTP/2" {
		serve = startTLS
	}
	srv := serve(t, h, configure...)
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
	ln := pipes{make(chan net.Conn), make(chan struct{})}
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

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
