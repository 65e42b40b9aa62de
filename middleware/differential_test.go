package middleware_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

// A handler must not notice the stages around it, nor its client. The tests in
// this file make handlers at random, serve each with and without the stages,
// and compare what handler and client see. What may differ is in compare and
// difference, each with a sentence.

func TestHandlersAtRandom(t *testing.T) {
	d := newDifferential(t)
	for seed := range uint64(300) {
		d.compare(t, seed)
	}
}

func FuzzHandlersAtRandom(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed)
	}
	d := newDifferential(f)
	f.Fuzz(func(t *testing.T, seed uint64) { d.compare(t, seed) })
}

// A program is a handler and the request to it, made from a seed.
type program struct {
	seed    uint64
	method  string
	version string // of HTTP/1
	body    string
	expect  bool // the client waits for 100 Continue, or for the response, before it sends the body
	ops     []op
}

type op struct {
	name string
	do   func(x *execution)
}

// execution is one run of a program.
type execution struct {
	w    http.ResponseWriter
	r    *http.Request
	seen []string // what the operations returned

	decided  bool  // a final status is decided, or the connection hijacked
	copied   int64 // by the copy that decided it
	hijacked bool
	panicked string
	length   bool // a Content-Length may be declared
}

func (x *execution) saw(format string, args ...any) {
	x.seen = append(x.seen, fmt.Sprintf(format, args...))
}

func (x *execution) wrote(what string, n int64, err error) {
	x.saw("%s: %d %v", what, n, plain(err))
	x.decided = true
}

// plain removes the addresses of a connection from an error.
func plain(err error) error {
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		return failed.Err
	}
	return err
}

func text(n int) string { return strings.Repeat("0123456789abcdef", n/16+1)[:n] }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

var sizes = []int{0, 1, 5, 100, 511, 512, 513, 600, 1023, 1025, 2047, 2048, 2049, 4096, 5000, 40000}

func newProgram(seed uint64) *program {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &program{seed: seed, method: pick(r, "GET", "GET", "GET", "HEAD", "POST"), version: pick(r, "1.1", "1.1", "1.1", "1.0")}
	if p.method == "POST" {
		p.body = text(pick(r, 0, 5, 3000))
		p.expect = p.body != "" && p.version == "1.1" && r.IntN(3) == 0
	}
	abrupt := false
	for range 1 + r.IntN(7) {
		o := randomOp(r)
		abrupt = abrupt || strings.HasPrefix(o.name, "panic") || strings.HasPrefix(o.name, "hijack") || o.name == "Goexit" || strings.Contains(o.name, "that panics") || o.name == "WriteHeader(42)"
		p.ops = append(p.ops, o)
	}
	if p.expect {
		// net/http asks for the body only before the handler has written: else
		// handler and client may wait for each other.
		p.ops = slices.DeleteFunc(p.ops, func(o op) bool { return strings.HasPrefix(o.name, "read ") })
	}
	if p.body != "" && (abrupt || p.expect && r.IntN(2) == 0) {
		// A connection that is closed with unread data is reset, and what the
		// client still gets of the response is a race.
		p.ops = slices.Insert(p.ops, 0, readBody(-1))
	}
	return p
}

func (p *program) String() string {
	s := fmt.Sprintf("seed %d: %s HTTP/%s with %d bytes", p.seed, p.method, p.version, len(p.body))
	if p.expect {
		s += " after 100 Continue"
	}
	for _, o := range p.ops {
		s += "; " + o.name
	}
	return s
}

func readBody(n int64) op {
	return op{fmt.Sprintf("read %d of the body", n), func(x *execution) {
		var src io.Reader = x.r.Body
		if n >= 0 {
			src = io.LimitReader(src, n)
		}
		b, err := io.ReadAll(src)
		x.saw("read %d %v", len(b), err)
	}}
}

func randomOp(r *rand.Rand) op {
	switch r.IntN(20) {
	case 0, 1, 2, 3:
		return randomHeader(r)
	case 4, 5:
		status := pick(r, 200, 200, 201, 202, 204, 206, 304, 307, 400, 404, 413, 500, 503, 599, 103, 102, 42)
		return op{fmt.Sprintf("WriteHeader(%d)", status), func(x *execution) {
			x.w.WriteHeader(status)
			x.decided = x.decided || status >= 200
		}}
	case 6, 7, 8:
		n := pick(r, sizes...)
		if r.IntN(2) == 0 {
			return op{fmt.Sprintf("WriteString %d", n), func(x *execution) {
				written, err := io.WriteString(x.w, text(n))
				x.wrote("WriteString", int64(written), err)
			}}
		}
		return op{fmt.Sprintf("Write %d", n), func(x *execution) {
			written, err := x.w.Write([]byte(text(n)))
			x.wrote("Write", int64(written), err)
		}}
	case 9, 10, 11, 12:
		return randomCopy(r)
	case 13:
		return op{"Flush", func(x *execution) {
			if f, ok := x.w.(http.Flusher); ok {
				f.Flush()
				x.decided = true
			}
		}}
	case 14:
		return randomControl(r)
	case 15:
		return readBody(pick[int64](r, -1, 0, 3))
	case 16:
		return randomHelper(r)
	case 17:
		return op{"look", func(x *execution) {
			h := withoutID(x.w.Header())
			delete(h, "Connection") // of 413
			x.saw("header %v, abilities %s, context %v", h, abilitiesOf(x.w), x.r.Context().Err())
		}}
	case 18:
		return randomHijack(r)
	}
	switch r.IntN(4) {
	case 0:
		return op{"panic(ErrAbortHandler)", func(*execution) { panic(http.ErrAbortHandler) }}
	case 1:
		return op{"Goexit", func(*execution) { runtime.Goexit() }}
	}
	return op{"panic", func(*execution) { panic("boom") }}
}

// randomHeader returns an operation on the header. What concerns the id is not
// done bare, where it would be a header like any other.
func randomHeader(r *rand.Rand) op {
	o := anyHeader(r)
	if !strings.Contains(o.name, idHeader) {
		return o
	}
	return op{o.name, func(x *execution) {
		if strings.HasPrefix(x.r.Header.Get("Side"), "bare") {
			return
		}
		o.do(x)
	}}
}

func anyHeader(r *rand.Rand) op {
	if r.IntN(4) == 0 {
		return randomTrailer(r)
	}
	name := pick(r, "X-A", "X-A", "X-B", "Content-Type", "Content-Encoding", "Etag", "Connection", "Date", "Transfer-Encoding", "Set-Cookie", "Vary", idHeader, idHeader)
	value := pick(r, "1", "2", "text/plain", "gzip", "close", "identity", "a\r\nb: c", "")
	switch r.IntN(8) {
	case 0:
		return op{"delete " + name, func(x *execution) { x.w.Header().Del(name) }}
	case 1:
		return op{name + " nil", func(x *execution) { x.w.Header()[name] = nil }}
	case 2:
		return op{"clear the header", func(x *execution) { clear(x.w.Header()) }}
	case 3:
		return op{fmt.Sprintf("add %s: %q", name, value), func(x *execution) { x.w.Header().Add(name, value) }}
	case 4:
		return op{idHeader + " in lower case", func(x *execution) { x.w.Header()["svc-request-id"] = []string{"forged"} }}
	case 5:
		n := pick(r, 0, 3, 500, 5000) // what may differ between 512 and 1023 is said below
		return op{fmt.Sprintf("Content-Length %d", n), func(x *execution) {
			x.length = true
			x.w.Header().Set("Content-Length", strconv.Itoa(n))
		}}
	}
	return op{fmt.Sprintf("set %s: %q", name, value), func(x *execution) { x.w.Header().Set(name, value) }}
}

func randomTrailer(r *rand.Rand) op {
	name := pick(r, "T-1", "T-2", idHeader)
	switch r.IntN(3) {
	case 0:
		name = pick(r, "T-1", "T-2")
		return op{"declare the trailer " + name, func(x *execution) { x.w.Header().Add("Trailer", name) }}
	case 1:
		return op{"set the trailer " + name, func(x *execution) { x.w.Header().Set(name, "t") }}
	}
	return op{"set the undeclared trailer " + name, func(x *execution) { x.w.Header().Set(http.TrailerPrefix+name, "u") }}
}

var errSource = errors.New("the source failed")

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func randomCopy(r *rand.Rand) op {
	n := pick(r, sizes...)
	sources := []struct {
		name string
		make func() io.Reader
	}{
		{"a string", func() io.Reader { return strings.NewReader(text(n)) }}, // an io.WriterTo
		{"a reader", func() io.Reader { return struct{ io.Reader }{strings.NewReader(text(n))} }},
		{"a reader that fails", func() io.Reader { return io.MultiReader(strings.NewReader(text(n)), iotest.ErrReader(errSource)) }},
		{"a reader that fails with its last bytes", func() io.Reader {
			src := iotest.DataErrReader(strings.NewReader(text(n)))
			return readerFunc(func(p []byte) (int, error) {
				got, err := src.Read(p)
				if err != nil {
					err = errSource
				}
				return got, err
			})
		}},
		{"a reader that ends with its last bytes", func() io.Reader {
			return struct{ io.Reader }{iotest.DataErrReader(strings.NewReader(text(n)))}
		}},
		{"a slow reader", func() io.Reader {
			src, turn := strings.NewReader(text(n)), 0
			return readerFunc(func(p []byte) (int, error) {
				runtime.Gosched()
				if turn++; turn%2 == 0 {
					return 0, nil
				}
				return src.Read(p[:min(len(p), 7)])
			})
		}},
		{"a reader that panics", func() io.Reader {
			return io.MultiReader(strings.NewReader(text(n)), readerFunc(func([]byte) (int, error) { panic("boom") }))
		}},
	}
	source := pick(r, sources...)
	return op{fmt.Sprintf("copy %d of %s", n, source.name), func(x *execution) {
		src, first := source.make(), !x.decided
		if _, string := src.(*strings.Reader); string {
			x.decided = x.decided || n > 0
		} else {
			src = counted{x, src, first}
		}
		var dst io.Writer = x.w
		if first && x.r.Header.Get("Copy") == "written" {
			dst = struct{ io.Writer }{dst}
		}
		written, err := io.Copy(dst, src)
		x.saw("copied %d %v", written, plain(err))
	}}
}

// counted notes what a copy has read.
type counted struct {
	x     *execution
	src   io.Reader
	first bool // nothing was sent before the copy
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	c.x.decided = c.x.decided || n > 0
	if c.first {
		c.x.copied += int64(n)
	}
	return n, err
}

func randomControl(r *rand.Rand) op {
	control := func(name string, f func(c *http.ResponseController) error) op {
		return op{name, func(x *execution) {
			err := f(http.NewResponseController(x.w))
			x.saw("%s: %v", name, plain(err))
			x.decided = x.decided || name == "controller's Flush" && err == nil
		}}
	}
	later := time.Now().Add(time.Hour)
	return pick(r,
		control("controller's Flush", (*http.ResponseController).Flush),
		control("EnableFullDuplex", (*http.ResponseController).EnableFullDuplex),
		control("SetReadDeadline", func(c *http.ResponseController) error { return c.SetReadDeadline(later) }),
		control("SetWriteDeadline", func(c *http.ResponseController) error { return c.SetWriteDeadline(later) }),
	)
}

func randomHelper(r *rand.Rand) op {
	helper := func(name string, f func(x *execution)) op {
		return op{name, func(x *execution) {
			f(x)
			x.decided = true
		}}
	}
	return pick(r,
		helper("http.Error", func(x *execution) { http.Error(x.w, "no", http.StatusBadGateway) }),
		helper("http.NotFound", func(x *execution) { http.NotFound(x.w, x.r) }),
		helper("http.Redirect", func(x *execution) { http.Redirect(x.w, x.r, "/elsewhere", http.StatusTemporaryRedirect) }),
		helper("ServeContent", func(x *execution) {
			x.length = true
			http.ServeContent(x.w, x.r, "a.txt", time.Unix(1e9, 0), strings.NewReader(text(3000)))
		}),
	)
}

func randomHijack(r *rand.Rand) op {
	raw := pick(r, "", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nraw bytes")
	return op{fmt.Sprintf("hijack and write %d", len(raw)), func(x *execution) {
		h, ok := x.w.(http.Hijacker)
		if !ok {
			x.saw("no Hijacker")
			return
		}
		conn, rw, err := h.Hijack()
		x.saw("Hijack: %v", plain(err))
		if err != nil {
			return
		}
		defer conn.Close()
		x.decided, x.hijacked = true, true
		_, _ = rw.WriteString(raw)
		_ = rw.Flush()
	}}
}

func abilitiesOf(w http.ResponseWriter) string {
	_, f := w.(http.Flusher)
	_, h := w.(http.Hijacker)
	_, r := w.(io.ReaderFrom)
	_, p := w.(http.Pusher)
	_, s := w.(io.StringWriter)
	return fmt.Sprint(f, h, r, p, s)
}

// run executes the program as a handler.
func (p *program) run(x *execution) {
	defer func() {
		if e := recover(); e != nil {
			x.panicked = fmt.Sprint(e)
			if e == http.ErrAbortHandler {
				x.panicked = "abort"
			}
			panic(e)
		}
	}()
	x.panicked = "Goexit"
	for _, o := range p.ops {
		o.do(x)
	}
	x.panicked = ""
}

// sight is what the client sees of a response.
type sight struct {
	Status   int // 0: no response
	Header   http.Header
	Coding   []string
	Length   int64
	Close    bool
	Body     string
	Whole    bool
	Trailer  http.Header
	Informed []string
	Kept     bool // another request on the connection was answered
	ids      ids
}

type ids struct{ header, trailer []string }

// short is a body as it is compared and printed.
func short(body string) string {
	if len(body) > 300 {
		return fmt.Sprintf("%d bytes with the sum %x", len(body), sha256.Sum256([]byte(body)))
	}
	return body
}

func withoutID(h http.Header) http.Header {
	h = maps.Clone(h)
	for name := range h {
		if strings.EqualFold(strings.TrimPrefix(name, http.TrailerPrefix), idHeader) {
			delete(h, name)
		}
	}
	return h
}

// differential serves programs bare and through the stages.
type differential struct {
	token string
	sides []*side

	mu   sync.Mutex
	runs map[string]chan *execution
}

// side is one server.
type side struct {
	name     string
	bare     bool
	protocol string
	srv      *httptest.Server
	client   *http.Client
}

func newDifferential(t testing.TB) *differential {
	d := &differential{runs: make(map[string]chan *execution)}
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Seed") == "" { // the second request on the connection
			return
		}
		seed, _ := strconv.ParseUint(r.Header.Get("Seed"), 10, 64)
		x := &execution{w: w, r: r}
		d.mu.Lock()
		done := d.runs[r.Header.Get("Side")]
		d.mu.Unlock()
		defer func() { done <- x }()
		newProgram(seed).run(x)
	}
	ring := newKeyring()
	d.token = ring.issue(t)
	o := middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}}
	api := middleware.NewAPI(ring.keys, o)
	api.HandleFunc("GET /api/v1/x", middleware.AnyCaller(), handler)
	api.HandleFunc("POST /api/v1/x", middleware.AnyCaller(), handler)
	g := middleware.New(ring.keys, o)
	stages := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.RateLimit, g.Enforce(middleware.AnyCaller()), g.Idempotent)(http.HandlerFunc(handler))
	for _, protocol := range protocols {
		add := func(name string, h http.Handler, configure ...func(*httptest.Server)) {
			srv, client := listen(t, protocol, h, configure...)
			d.sides = append(d.sides, &side{name, name == "bare", protocol, srv, client})
		}
		add("bare", http.HandlerFunc(handler))
		add("API", api)
		add("stages", stages)
		if protocol == "HTTP/1.1" {
			add("listener", api, withRequestIDs)
		}
	}
	return d
}

// ask sends the request of a program to a side.
func (d *differential) ask(t *testing.T, s *side, p *program, lines ...string) (sight, *execution) {
	t.Helper()
	done := make(chan *execution, 1)
	name := s.name + s.protocol
	d.mu.Lock()
	d.runs[name] = done
	d.mu.Unlock()
	lines = append(lines, "Seed: "+strconv.FormatUint(p.seed, 10), "Side: "+name)
	var got sight
	if s.protocol == "HTTP/2" {
		got = s.askHTTP2(t, p, d.token, lines)
	} else {
		c, err := net.Dial("tcp", s.srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() // when the handler has returned, which else may see it
		got = askHTTP1(c, p, d.token, lines)
	}
	select {
	case x := <-done:
		return got, x
	case <-time.After(hangs):
		t.Fatalf("%s: %s: the handler does not return", p, name)
		return sight{}, nil
	}
}

func (s *side) askHTTP2(t *testing.T, p *program, token string, lines []string) sight {
	t.Helper()
	r := request(p.method, s.srv.URL+"/api/v1/x", token, p.body, lines...)
	r.RequestURI = ""
	var got sight
	r = r.WithContext(httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got.Informed = append(got.Informed, informed(code, http.Header(h)))
			return nil
		},
	}))
	res, err := s.client.Do(r)
	if err != nil {
		return sight{Informed: got.Informed}
	}
	defer res.Body.Close()
	return got.read(res)
}

func informed(code int, h http.Header) string { return fmt.Sprint(code, withoutID(h)) }

// read returns got with the final response.
func (got sight) read(res *http.Response) sight {
	body, err := io.ReadAll(res.Body)
	got.Status, got.Header, got.Coding, got.Length, got.Close = res.StatusCode, withoutID(res.Header), res.TransferEncoding, res.ContentLength, res.Close
	got.Body, got.Whole, got.Trailer = short(string(body)), err == nil, withoutID(res.Trailer)
	got.Header.Del("Date")
	got.ids = ids{res.Header[idHeader], res.Trailer[idHeader]}
	return got
}

func askHTTP1(c net.Conn, p *program, token string, lines []string) (got sight) {
	_ = c.SetDeadline(time.Now().Add(hangs))
	head := fmt.Sprintf("%s /api/v1/x HTTP/%s\r\nHost: a\r\nAuthorization: Bearer %s\r\n%s\r\n", p.method, p.version, token, strings.Join(lines, "\r\n"))
	if p.version == "1.0" {
		head += "Connection: keep-alive\r\n"
	}
	if p.method == "POST" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(p.body))
	}
	if p.expect {
		head += "Expect: 100-continue\r\n"
	}
	head += "\r\n"
	if !p.expect {
		head += p.body
	}
	_, _ = io.WriteString(c, head)
	br, sent := bufio.NewReader(c), false
	defer func() {
		if p.expect && !sent { // the response was not readable
			_, _ = io.WriteString(c, p.body)
		}
		go io.Copy(io.Discard, br) // more than the Content-Length
	}()
	for {
		res, err := http.ReadResponse(br, &http.Request{Method: p.method})
		if err != nil {
			return got
		}
		if p.expect && (res.StatusCode == 100 || res.StatusCode >= 200) && !sent {
			_, _ = io.WriteString(c, p.body)
			sent = true
		}
		if res.StatusCode/100 == 1 && res.StatusCode != 101 {
			got.Informed = append(got.Informed, informed(res.StatusCode, res.Header))
			continue
		}
		got = got.read(res)
		if got.Whole && !res.Close && res.StatusCode != 101 {
			_, _ = fmt.Fprintf(c, "GET /api/v1/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", token)
			second, err := http.ReadResponse(br, nil)
			got.Kept = err == nil && second.StatusCode == 200
		}
		return got
	}
}

// compare runs the program of a seed on all sides.
func (d *differential) compare(t *testing.T, seed uint64) {
	t.Helper()
	p := newProgram(seed)
	var bare sight
	var ran *execution
	for _, s := range d.sides {
		got, x := d.ask(t, s, p)
		if s.bare {
			if s.protocol == "HTTP/1.1" && 512 <= x.copied && x.copied < 1024 {
				// net/http sends the header after the first 512 bytes of a
				// copy; through the stages it does so after twice as many, or
				// if the last of these bring an error, not at all. A copy that
				// ends in between is like bytes that were written.
				got, x = d.ask(t, s, p, "Copy: written")
			}
			bare, ran = got, x
			continue
		}
		if diff := difference(p, s, ran, x, bare, got); diff != "" {
			t.Errorf("%s\n%s over %s: %s", p, s.name, s.protocol, diff)
		}
	}
}

// difference tells what is not the same bare and through a side, but for what
// may differ.
func difference(p *program, s *side, ran, x *execution, bare, got sight) string {
	if s.protocol == "HTTP/2" && (p.method == "HEAD" || ran.length) {
		// The client leaves when it has what was declared. From then on writes
		// fail.
		if x.seen = ran.seen; ran.panicked != x.panicked {
			return ""
		}
	}
	if !reflect.DeepEqual(ran.seen, x.seen) || ran.panicked != x.panicked {
		return fmt.Sprintf("the handler saw\n%q %s\nwant\n%q %s", x.seen, x.panicked, ran.seen, ran.panicked)
	}
	// What a handler writes on the connection it has taken over is its own,
	// except behind RequestIDListener.
	if ids := got.ids; got.Status != 0 && (!x.hijacked || s.name == "listener") {
		if len(ids.header) != 1 || len(ids.header[0]) != 20 || slices.ContainsFunc(ids.trailer, func(id string) bool { return id != ids.header[0] }) {
			return fmt.Sprintf("got ids %q", ids)
		}
	}
	bare.ids, got.ids = ids{}, ids{}

	unanswered := !ran.decided && ran.panicked != "" && ran.panicked != "abort" && ran.panicked != "Goexit"
	switch {
	case unanswered:
		// Recover answers a panic before the first byte, and keeps the
		// connection. net/http closes it.
		if got.Status != 500 || !got.Whole || got.Header.Get("Content-Type") != "application/problem+json" {
			return fmt.Sprintf("got\n%+v\nwant a 500 of Recover", got)
		}
		return ""
	case !bare.Whole:
		// How much of an aborted response the client gets depends on buffers.
		if got.Whole || bare.Status != got.Status && bare.Status*got.Status != 0 {
			return fmt.Sprintf("got\n%+v\nwant\n%+v", got, bare)
		}
		return ""
	case s.protocol == "HTTP/1.1" && bare.Status == http.StatusRequestEntityTooLarge:
		// No wrapper can forward the method by which http.MaxBytesReader asks
		// for the connection to be closed, so each 413 closes it.
		bare.Close, bare.Kept = true, false
		bare.Header.Del("Connection")
		got.Header.Del("Connection")
	}
	if !reflect.DeepEqual(bare, got) {
		return fmt.Sprintf("got\n%+v\nwant\n%+v", got, bare)
	}
	return ""
}
