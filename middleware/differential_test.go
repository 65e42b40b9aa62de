package middleware_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
	name  string
	final bool // it decides on a final status
	do    func(x *execution)
}

// execution is one run of a program.
type execution struct {
	w            http.ResponseWriter
	r            *http.Request
	seen, writes []string // what the operations returned; apart what may show that the client has left
	decided      bool     // a final status is decided, or the connection hijacked
	copied       int      // by the copy that decided it
	hijacked     bool
	panicked     string
}

func (x *execution) saw(values ...any) { x.seen = append(x.seen, fmt.Sprint(values...)) }
func (x *execution) wrote(values ...any) {
	x.writes = append(x.writes, ports.ReplaceAllString(fmt.Sprint(values...), ""))
}

var ports = regexp.MustCompile(`:\d{4,5}`) // in the error of a copy

func text(n int) string { return strings.Repeat("0123456789abcdef", n/16+1)[:n] }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func newProgram(seed uint64) *program {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &program{seed: seed, method: pick(r, "GET", "GET", "GET", "HEAD", "POST"),
		version: pick(r, "1.1", "1.1", "1.1", "1.0")}
	if p.method == "POST" {
		p.body = text(pick(r, 0, 5, 3000))
		p.expect = p.body != "" && p.version == "1.1" && r.IntN(3) == 0
	}
	for range 1 + r.IntN(7) {
		p.ops = append(p.ops, randomOp(r))
	}
	if p.expect {
		// net/http asks for the body only before the handler has written: else
		// handler and client may wait for each other.
		p.ops = slices.DeleteFunc(p.ops, func(o op) bool { return strings.HasPrefix(o.name, "read ") })
	}
	if p.body != "" && (p.has(`panic|hijack|Goexit|WriteHeader\(42`) || p.expect && r.IntN(2) == 0) {
		// A connection that is closed with unread data is reset, and what the
		// client still gets of the response is a race.
		p.ops = slices.Insert(p.ops, 0, readBody(-1))
	}
	return p
}

func (p *program) has(operations string) bool {
	return regexp.MustCompile(operations).MatchString(p.String())
}

func (p *program) String() string {
	s := fmt.Sprintf("seed %d: %s HTTP/%s with %d bytes, Expect %t", p.seed, p.method, p.version, len(p.body), p.expect)
	for _, o := range p.ops {
		s += "; " + o.name
	}
	return s
}

// run executes the program as a handler.
func (p *program) run(x *execution) {
	defer func() {
		if e := recover(); e != nil {
			x.panicked = fmt.Sprint(e)
			panic(e)
		}
	}()
	x.panicked = "Goexit"
	for _, o := range p.ops {
		o.do(x)
		x.decided = x.decided || o.final
	}
	x.panicked = ""
}

func randomOp(r *rand.Rand) op {
	n := pick(r, 0, 1, 5, 100, 511, 512, 513, 600, 1023, 1025, 2047, 2048, 2049, 4096, 5000, 40000)
	code := pick(r, 200, 200, 201, 202, 204, 206, 304, 307, 400, 404, 413, 500, 503, 599, 103, 102, 42)
	status := op{fmt.Sprintf("WriteHeader(%d)", code), code >= 200, func(x *execution) { x.w.WriteHeader(code) }}
	write := op{fmt.Sprint("Write ", n), true, func(x *execution) { x.wrote(x.w.Write([]byte(text(n)))) }}
	writeString := op{fmt.Sprint("WriteString ", n), true, func(x *execution) { x.wrote(io.WriteString(x.w, text(n))) }}
	look := op{"look", false, func(x *execution) {
		h := withoutID(x.w.Header())
		delete(h, "Connection") // of 413
		x.saw("header ", h, " abilities ", abilitiesOf(x.w))
		x.wrote(x.r.Context().Err())
	}}
	fail := pick(r, op{"panic", false, func(*execution) { panic("boom") }},
		op{"panic(ErrAbortHandler)", false, func(*execution) { panic(http.ErrAbortHandler) }},
		op{"Goexit", false, func(*execution) { runtime.Goexit() }})
	header, copied := randomHeader(r), randomCopy(r, n)
	return pick(r, header, header, header, header, status, status, write, writeString, write,
		copied, copied, copied, copied, randomControl(r), randomControl(r), readBody(pick[int64](r, -1, 0, 3)),
		randomHelper(r), look, randomHijack(r), fail)
}

func readBody(n int64) op {
	return op{fmt.Sprintf("read %d of the body", n), false, func(x *execution) {
		src := io.Reader(x.r.Body)
		if n >= 0 {
			src = io.LimitReader(src, n)
		}
		b, err := io.ReadAll(src)
		x.saw("read ", len(b), err)
	}}
}

func randomHeader(r *rand.Rand) op {
	name := pick(r, "X-A", "X-A", "X-B", "Content-Type", "Content-Encoding", "Etag", "Connection", "Date",
		"Transfer-Encoding", "Set-Cookie", "Vary", idHeader, idHeader)
	value := pick(r, "1", "2", "text/plain", "gzip", "close", "identity", "a\r\nb: c", "")
	n, trailer := strconv.Itoa(pick(r, 0, 3, 500, 5000)), pick(r, "T-1", "T-2", idHeader)
	on := func(name string, do func(h http.Header)) op {
		return op{name, false, func(x *execution) {
			// Bare, the id would be a header like any other.
			if x.r.Header.Get("Side") != "bare" || !strings.Contains(name, idHeader) {
				do(x.w.Header())
			}
		}}
	}
	return pick(r, on("delete "+name, func(h http.Header) { h.Del(name) }),
		on(name+" nil", func(h http.Header) { h[name] = nil }),
		on("clear the header", func(h http.Header) { clear(h) }),
		on(fmt.Sprintf("add %s: %q", name, value), func(h http.Header) { h.Add(name, value) }),
		on(fmt.Sprintf("set %s: %q", name, value), func(h http.Header) { h.Set(name, value) }),
		on(fmt.Sprintf("set %s: %q ", name, value), func(h http.Header) { h.Set(name, value) }),
		on(idHeader+" in lower case", func(h http.Header) { h["svc-request-id"] = []string{"forged"} }),
		on(idHeader+" in its slice", func(h http.Header) { copy(h[idHeader], []string{"forged"}) }),
		// What may differ between 512 and 1023 is said in compare.
		on("Content-Length "+n, func(h http.Header) { h.Set("Content-Length", n) }),
		on("declare the trailers", func(h http.Header) { h.Add("Trailer", "T-1, T-2") }),
		on("set the trailer "+trailer, func(h http.Header) { h.Set(trailer, "t") }),
		on("set the undeclared trailer "+trailer, func(h http.Header) { h.Set(http.TrailerPrefix+trailer, "u") }))
}

func randomCopy(r *rand.Rand, n int) op {
	errSource := errors.New("the source failed")
	name := pick(r, "a string", "a reader", "a reader that fails", "a reader that fails with its last bytes",
		"a reader that ends with its last bytes", "a slow reader", "a reader of panic")
	return op{fmt.Sprintf("copy %d of %s", n, name), n > 0, func(x *execution) {
		s, turn, dst := strings.NewReader(text(n)), 0, io.Writer(x.w)
		boom := readerFunc(func([]byte) (int, error) { panic("boom") })
		src := map[string]io.Reader{
			"a string":            s, // an io.WriterTo
			"a reader":            readerFunc(s.Read),
			"a reader that fails": io.MultiReader(s, iotest.ErrReader(errSource)),
			"a reader that fails with its last bytes": iotest.DataErrReader(io.MultiReader(s, iotest.ErrReader(errSource))),
			"a reader that ends with its last bytes":  iotest.DataErrReader(s),
			"a reader of panic":                       io.MultiReader(s, boom),
			"a slow reader": readerFunc(func(p []byte) (int, error) {
				runtime.Gosched()
				if turn++; turn%2 == 0 {
					return 0, nil
				}
				return s.Read(p[:min(len(p), 7)])
			}),
		}[name]
		if !x.decided && name != "a string" {
			x.copied = n
			if x.r.Header.Get("Copy") == "written" {
				dst = struct{ io.Writer }{dst}
			}
		}
		x.decided = x.decided || n > 0 // also where src panics
		x.wrote(io.Copy(dst, src))
	}}
}

func randomControl(r *rand.Rand) op {
	later := time.Now().Add(time.Hour)
	control := func(name string, f func(c *http.ResponseController) error) op {
		return op{name, name == "controller's Flush", func(x *execution) {
			x.wrote(f(http.NewResponseController(x.w)))
		}}
	}
	flush := op{"Flush", true, func(x *execution) { x.w.(http.Flusher).Flush() }}
	return pick(r, flush, flush, flush, flush, control("controller's Flush", (*http.ResponseController).Flush),
		control("EnableFullDuplex", (*http.ResponseController).EnableFullDuplex),
		control("SetReadDeadline", func(c *http.ResponseController) error { return c.SetReadDeadline(later) }),
		control("SetWriteDeadline", func(c *http.ResponseController) error { return c.SetWriteDeadline(later) }))
}

func randomHelper(r *rand.Rand) op {
	return pick(r, op{"http.Error", true, func(x *execution) { http.Error(x.w, "no", http.StatusBadGateway) }},
		op{"http.NotFound", true, func(x *execution) { http.NotFound(x.w, x.r) }},
		op{"http.Redirect", true, func(x *execution) { http.Redirect(x.w, x.r, "/elsewhere", http.StatusTemporaryRedirect) }},
		op{"ServeContent", true, func(x *execution) {
			http.ServeContent(x.w, x.r, "a.txt", time.Unix(1e9, 0), strings.NewReader(text(3000)))
		}})
}

func randomHijack(r *rand.Rand) op {
	raw := pick(r, "", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nraw bytes")
	return op{fmt.Sprint("hijack and write ", len(raw)), false, func(x *execution) {
		h, ok := x.w.(http.Hijacker)
		if !ok {
			x.saw("no Hijacker")
			return
		}
		conn, rw, err := h.Hijack()
		x.saw("Hijack: ", err)
		if err == nil {
			x.decided, x.hijacked = true, true
			_, _ = rw.WriteString(raw)
			_ = rw.Flush()
			conn.Close()
		}
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

// sight is what the client sees of a response.
type sight struct {
	Status          int // 0: no response
	Header, Trailer http.Header
	Coding          []string
	Length          int64
	Body            string
	Informed        []string
	Close, Whole    bool
	Kept            bool // another request on the connection was answered

	ids, trailerIDs []string
}

func withoutID(h http.Header) http.Header {
	h = maps.Clone(h)
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		return strings.EqualFold(strings.TrimPrefix(name, http.TrailerPrefix), idHeader)
	})
	return h
}

// read notes a final response.
func (s *sight) read(res *http.Response) {
	body, err := io.ReadAll(res.Body)
	s.Status, s.Coding, s.Length, s.Close = res.StatusCode, res.TransferEncoding, res.ContentLength, res.Close
	s.Header, s.Trailer, s.Whole = withoutID(res.Header), withoutID(res.Trailer), err == nil
	s.Header.Del("Date")
	if s.Body = string(body); len(body) > 300 {
		s.Body = fmt.Sprintf("%d bytes with the sum %x", len(body), sha256.Sum256(body))
	}
	s.ids, s.trailerIDs = res.Header[idHeader], res.Trailer[idHeader]
}

// side is one server.
type side struct {
	name, protocol string
	srv            *httptest.Server
	client         *http.Client
}

// differential serves programs bare and through the stages, one at a time.
type differential struct {
	sides         []*side
	authorization string
	runs          chan *execution
}

func newDifferential(t testing.TB) *differential {
	ring := newKeyring()
	d := &differential{authorization: "Authorization: Bearer " + ring.issue(t), runs: make(chan *execution, 1)}
	handler := func(w http.ResponseWriter, r *http.Request) {
		seed, err := strconv.ParseUint(r.Header.Get("Seed"), 10, 64)
		if err != nil { // the second request on the connection
			return
		}
		x := &execution{w: w, r: r}
		defer func() { d.runs <- x }()
		newProgram(seed).run(x)
	}
	o := middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}}
	forms := bothForms(ring.keys, o, middleware.AnyCaller(), handler)
	for _, protocol := range protocols {
		add := func(name string, h http.Handler, configure ...func(*httptest.Server)) {
			srv, client := listen(t, protocol, h, configure...)
			d.sides = append(d.sides, &side{name, protocol, srv, client})
		}
		add("bare", http.HandlerFunc(handler))
		add("API", forms["API"])
		add("pieces", forms["pieces"])
		if protocol == "HTTP/1.1" {
			add("listener", forms["API"], withRequestIDs)
		}
	}
	return d
}

// ask sends the request of a program to a side.
func (d *differential) ask(t *testing.T, s *side, p *program, lines ...string) (got sight, _ *execution) {
	t.Helper()
	lines = append(lines, d.authorization, fmt.Sprint("Seed: ", p.seed), "Side: "+s.name)
	if s.protocol == "HTTP/2" {
		got.ask(s.client, request(p.method, s.srv.URL+"/api/v1/x", "", p.body, lines...))
	} else {
		c := dial(t, s.srv)
		defer c.Close() // when the handler has returned, which else may see it
		got.overHTTP1(c, p, lines, d.authorization)
	}
	select {
	case x := <-d.runs:
		return got, x
	case <-time.After(hangs):
		t.Fatalf("%s: %s: the handler does not return", p, s.name)
		return got, nil
	}
}

func (s *sight) inform(code int, h http.Header) {
	s.Informed = append(s.Informed, fmt.Sprint(code, withoutID(h)))
}

// ask sends a request and notes what the client sees of the response, if any.
func (s *sight) ask(client *http.Client, r *http.Request) {
	r.RequestURI = ""
	if res, err := client.Do(r.WithContext(informed(context.Background(), s.inform))); err == nil {
		defer res.Body.Close()
		s.read(res)
	}
}

func (s *sight) overHTTP1(c *wire, p *program, lines []string, authorization string) {
	lines = append(lines, "Host: a", "Connection: keep-alive")
	if p.method == "POST" {
		lines = append(lines, fmt.Sprint("Content-Length: ", len(p.body)))
	}
	if p.expect {
		lines = append(lines, "Expect: 100-continue")
	}
	send, unsent := func(text string) { _, _ = io.WriteString(c, text) }, p.body
	sendBody := func() { send(unsent); unsent = "" }
	send(fmt.Sprintf("%s /api/v1/x HTTP/%s\r\n%s\r\n\r\n", p.method, p.version, strings.Join(lines, "\r\n")))
	if !p.expect {
		sendBody()
	}
	for {
		res, err := http.ReadResponse(c.br, &http.Request{Method: p.method})
		if err != nil || res.StatusCode == 100 || res.StatusCode >= 200 {
			sendBody()
		}
		switch {
		case err != nil:
		case res.StatusCode/100 == 1 && res.StatusCode != 101:
			s.inform(res.StatusCode, res.Header)
			continue
		default:
			s.read(res)
			if s.Whole && !res.Close && res.StatusCode != 101 {
				send("GET /api/v1/x HTTP/1.1\r\nHost: a\r\n" + authorization + "\r\n\r\n")
				second, err := http.ReadResponse(c.br, nil)
				s.Kept = err == nil && second.StatusCode == 200
			}
		}
		go io.Copy(io.Discard, c.br) // more than the Content-Length
		return
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
		if s.name != "bare" {
			if diff := difference(p, s, ran, x, bare, got); diff != "" {
				t.Errorf("%s\n%s over %s: %s", p, s.name, s.protocol, diff)
			}
			continue
		}
		if s.protocol == "HTTP/1.1" && 512 <= x.copied && x.copied < 1024 {
			// net/http sends the header after the first 512 bytes of a copy;
			// through the stages it does so after twice as many, or if the last
			// of these bring an error, not at all. A copy that ends in between
			// is like bytes that were written.
			got, x = d.ask(t, s, p, "Copy: written")
		}
		bare, ran = got, x
	}
}

// difference tells what is not the same bare and through a side, but for what
// may differ.
func difference(p *program, s *side, ran, x *execution, bare, got sight) string {
	if s.protocol == "HTTP/2" && (p.method == "HEAD" || p.has("Content-Length|ServeContent")) {
		// The client leaves when it has what was declared. From then on writes
		// fail, and a copy may not come to the panic of its source.
		x.writes = ran.writes
		if ran.panicked != x.panicked && p.has("a reader of panic") {
			return ""
		}
	}
	if want := []any{ran.seen, ran.writes, ran.panicked}; !reflect.DeepEqual(want, []any{x.seen, x.writes, x.panicked}) {
		return fmt.Sprintf("the handler saw\n%q %q %s\nwant\n%q", x.seen, x.writes, x.panicked, want)
	}
	// What a handler writes on the connection it has taken over is its own,
	// except behind RequestIDListener.
	if got.Status != 0 && (!x.hijacked || s.name == "listener") {
		id := middleware.RequestIDFrom(x.r.Context())
		other := func(trailer string) bool { return trailer != id }
		if !slices.Equal(got.ids, []string{id}) || len(id) != 20 || slices.ContainsFunc(got.trailerIDs, other) {
			return fmt.Sprintf("got ids %q and in the trailer %q, want %q", got.ids, got.trailerIDs, id)
		}
	}
	bare.ids, bare.trailerIDs, got.ids, got.trailerIDs = nil, nil, nil, nil
	crashed := ran.panicked != "" && ran.panicked != "Goexit" && ran.panicked != http.ErrAbortHandler.Error()
	same := reflect.DeepEqual(bare, got)
	switch {
	case !ran.decided && crashed:
		// Recover answers a panic before the first byte, and keeps the
		// connection. net/http closes it.
		same = got.Status == 500 && got.Whole && got.Header.Get("Content-Type") == "application/problem+json"
	case !bare.Whole:
		// How much of an aborted response the client gets depends on buffers.
		same = !got.Whole && (bare.Status*got.Status == 0 || bare.Status == got.Status &&
			reflect.DeepEqual(bare.Header, got.Header))
	case s.protocol == "HTTP/1.1" && bare.Status == http.StatusRequestEntityTooLarge:
		// No wrapper can forward the method by which http.MaxBytesReader asks
		// for the connection to be closed, so each 413 closes it.
		bare.Close, bare.Kept = true, false
		bare.Header.Del("Connection")
		got.Header.Del("Connection")
		same = reflect.DeepEqual(bare, got)
	}
	if !same {
		return fmt.Sprintf("got\n%+v\nwant, or a 500 for an early panic,\n%+v", got, bare)
	}
	return ""
}
