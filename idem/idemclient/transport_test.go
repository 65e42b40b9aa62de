package idemclient_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem/idemclient"
)

// What is repeated, how often and after which wait, and what the caller gets.
func TestWhatIsRepeated(t *testing.T) {
	a := func(answers ...http.HandlerFunc) []http.HandlerFunc { return answers }
	ok, far := status(201), "31536000"
	type row struct {
		name    string
		method  string // with a key, unless it is safe
		answers []http.HandlerFunc
		want    string
		tries   int
		wait    time.Duration // besides the Transport's own
	}
	var rows []row
	// A refusal that follows tells of this try only if the API has not begun it.
	for code, then := range map[int]string{408: "401", 425: "401", 429: "401", 500: "unknown", 502: "unknown",
		503: "unknown", 504: "unknown"} {
		name := fmt.Sprint(code)
		rows = append(rows, row{name, "POST", a(status(code), ok), "201", 2, 0},
			row{"a refusal after " + name, "POST", a(status(code), status(401)), then, 2, 0})
	}
	rows = append(rows, []row{
		{"a success", "POST", a(ok), "201", 1, 0},
		{"a success that asks for more", "POST", a(status(201, "X-Should-Retry", "true", "Retry-After", "1")), "201", 1, 0},
		{"cut once", "POST", a(cut, ok), "201", 2, 0},
		{"cut for ever", "POST", a(cut), "unknown", 4, 0},
		{"a declared body breaks off", "POST", a(half, ok), "201", 2, 0},
		{"each declared body does", "POST", a(half), "unknown", 4, 0},
		{"a declared body of MaxBody bytes breaks off", "POST", a(declared(1<<20), ok), "201", 2, 0},
		{"one of a byte more does", "POST", a(declared(1<<20+1), ok), "unknown", 1, 0},
		{"a stream breaks off", "POST", a(stream, ok), "unknown", 1, 0},
		{"429 with a wait", "POST", a(status(429, "Retry-After", "7"), ok), "201", 2, 7 * time.Second},
		{"429 for ever", "POST", a(status(429, "Retry-After", "7")), "429", 4, 21 * time.Second},
		{"503 with a wait", "POST", a(status(503, "Retry-After", "1"), ok), "201", 2, time.Second},
		{"503 for ever", "POST", a(status(503)), "503", 4, 0},
		{"501", "POST", a(status(501), ok), "501", 1, 0},
		{"in progress", "POST", a(status(409, "Retry-After", "1"), ok), "201", 2, time.Second},
		{"in progress, an odd wait", "POST", a(status(409, "Retry-After", "soon"), ok), "201", 2, 0},
		{"another conflict", "POST", a(status(409), ok), "409", 1, 0},
		{"a stored conflict", "POST", a(status(409, "Retry-After", "1", "Idempotent-Replayed", "true"), ok), "409", 1, 0},
		{"a replayed failure", "POST", a(status(503, "Idempotent-Replayed", "true"), ok), "503", 1, 0},
		{"a replayed failure of an upstream", "POST",
			a(status(503, "Idempotent-Replayed", "true", "X-Should-Retry", "true"), ok), "503", 1, 0},
		{"a final failure", "POST", a(status(503, "X-Should-Retry", "false", "Retry-After", "1"), ok), "503", 1, 0},
		{"a final 429", "POST", a(status(429, "X-Should-Retry", "False"), ok), "429", 1, 0},
		{"a final conflict", "POST", a(status(409, "X-Should-Retry", "false", "Retry-After", "1"), ok), "409", 1, 0},
		{"400", "POST", a(status(400, "Retry-After", "1"), ok), "400", 1, 0},
		{"a 400 to repeat", "POST", a(status(400, "X-Should-Retry", "true", "Retry-After", "1"), ok), "201", 2, time.Second},
		{"that one for ever", "POST", a(status(400, "X-Should-Retry", "true")), "unknown", 4, 0},
		{"an odd X-Should-Retry", "POST", a(status(400, "X-Should-Retry", "yes"), ok), "400", 1, 0},
		{"a redirect without Location", "POST", a(status(303, "X-Should-Retry", "true"), ok), "303", 1, 0},

		{"a refusal after a cut", "POST", a(cut, status(401)), "unknown", 2, 0},
		{"a conflict after a cut", "POST", a(cut, status(409)), "409", 2, 0},
		{"a replayed refusal after a cut", "POST", a(cut, status(422, "Idempotent-Replayed", "true")), "422", 2, 0},
		{"a failure after a cut", "POST", a(cut, status(500, "X-Should-Retry", "false")), "500", 2, 0},
		{"a refusal after 409", "POST", a(status(409, "Retry-After", "1"), status(403)), "unknown", 2, time.Second},
		{"429 after a cut", "POST", a(cut, status(429, "Retry-After", far)), "unknown", 2, 0},

		{"GET", "GET", a(cut, status(503, "Retry-After", "2"), half, status(200)), "200", 4, 2 * time.Second},
		{"GET for ever", "GET", a(cut), "error", 4, 0},
		{"GET of a stream", "GET", a(stream), "error", 1, 0},
		{"a refused GET after a cut", "GET", a(cut, status(401)), "401", 2, 0},
		{"HEAD", "HEAD", a(status(503), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
		}), "200", 2, 0},

		{"a year", "POST", a(status(429, "Retry-After", far), ok), "429", 1, 0},
		{"longer than a number", "POST", a(status(429, "Retry-After", "99999999999999999999"), ok), "429", 1, 0},
		{"a date far away", "POST", a(status(429, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), ok), "429", 1, 0},
		{"the longest wait", "POST", a(status(429, "Retry-After", "60"), ok), "201", 2, time.Minute},
		{"one second more", "POST", a(status(429, "Retry-After", "61"), ok), "429", 1, 0},
		{"a date", "POST", a(status(429, "Retry-After", "Sat, 01 Jan 2000 00:00:09 GMT"), ok), "201", 2, 9 * time.Second},
		{"a date that is over", "POST", a(status(429, "Retry-After", "Fri, 31 Dec 1999 00:00:09 GMT"), ok), "201", 2, 0},
		{"a fraction", "POST", a(status(429, "Retry-After", "7.5"), ok), "201", 2, 0},
		{"a negative wait", "POST", a(status(429, "Retry-After", "-7"), ok), "201", 2, 0},
		{"an empty wait", "POST", a(status(429, "Retry-After", ""), ok), "201", 2, 0},
		{"no wait", "POST", a(status(429, "Retry-After", "0"), ok), "201", 2, 0},
	}...)
	for _, test := range rows {
		onBoth(t, func(t *testing.T, protocol string) {
			s, began := &script{answers: test.answers}, time.Now()
			base := serve(t, protocol, s)
			r := post(t, idemclient.WithKey(t.Context(), "job-1"), "the body")
			if r.Method = test.method; test.method != "POST" {
				r.Body, r.GetBody, r.ContentLength = nil, nil, 0
			} else {
				r.Header.Set("Idempotency-Key", "own")
			}
			code, body, err := read(&idemclient.Transport{Base: base}, r)
			unknown, ok := errors.AsType[*idemclient.UnknownError](err)
			if ok && (unknown.Key != "own" || unknown.Tries != test.tries) {
				t.Errorf("%s: got the key %q and %d tries, want own and %d", test.name, unknown.Key, unknown.Tries, test.tries)
			}
			if got := kind(code, err); got != test.want || s.tries() != test.tries {
				t.Errorf("%s: got %s (%q, %v) after %d tries, want %s after %d",
					test.name, got, body, err, s.tries(), test.want, test.tries)
			}
			least, most := test.wait, test.wait
			for n := range test.tries - 1 {
				most += 500 * time.Millisecond << n
			}
			if took := time.Since(began); took < least || took > most || test.tries > 1 && took == least {
				t.Errorf("%s: took %v, want %v to %v", test.name, took, least, most)
			}
			for _, got := range s.seen {
				if got.method != test.method || got.body != s.seen[0].body || got.key != s.seen[0].key ||
					(got.key == "") != (test.method != "POST") || (got.body == "the body") != (test.method == "POST") {
					t.Errorf("%s: got the tries %+v, want all the same", test.name, s.seen)
				}
			}
		})
	}
}

// The Transport's own waits are random, and grow. A request can be used again, and
// gets another key.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := status(503, "Retry-After", "Fri, 31 Dec 1999 00:00:00 GMT")
		s := &script{answers: []http.HandlerFunc{over}}
		transport := &idemclient.Transport{Base: serve(t, "HTTP/1.1", s), MaxTries: 9, RetryShare: 10}
		waits, keys, r := make([][]time.Duration, 9), map[string]bool{}, post(t, t.Context(), "")
		for range 200 {
			s.seen = nil
			read(transport, r)
			keys[s.seen[0].key] = true
			for n := range s.seen[1:] {
				waits[n+1] = append(waits[n+1], s.seen[n+1].at.Sub(s.seen[n].at))
			}
		}
		if len(keys) != 200 {
			t.Errorf("got %d keys for 200 requests", len(keys))
		}
		for n, all := range waits[1:] {
			most := min(time.Minute, 500*time.Millisecond<<n)
			if least, longest := slices.Min(all), slices.Max(all); longest > most || longest < most*9/10 || least > most/10 {
				t.Errorf("wait %d: %v to %v, want 0 to %v", n+1, least, longest, most)
			}
		}
	})
}

// A wait that the context leaves no time for is not begun, and the end of the
// context ends one at once.
func TestTheContextEndsAWait(t *testing.T) {
	onBoth(t, func(t *testing.T, protocol string) {
		for _, test := range []struct {
			answer http.HandlerFunc
			cancel bool
			want   string
			after  time.Duration
		}{
			{status(429, "Retry-After", "9"), false, "429", 0},
			{status(429, "Retry-After", "9"), true, "error", time.Second},
			{status(503, "Retry-After", "9"), true, "unknown", time.Second},
			{status(409, "Retry-After", "9"), true, "unknown", time.Second},
			{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false, "unknown", 5 * time.Second},
		} {
			s, began := &script{answers: []http.HandlerFunc{test.answer}}, time.Now()
			transport := &idemclient.Transport{Base: serve(t, protocol, s)}
			limit, cause := 5*time.Second, context.DeadlineExceeded
			if test.cancel {
				limit, cause = time.Hour, context.Canceled
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			if test.cancel {
				time.AfterFunc(time.Second, cancel)
			}
			code, _, err := read(transport, post(t, ctx, "the body"))
			if got := kind(code, err); got != test.want || time.Since(began) != test.after || s.tries() != 1 ||
				err != nil && !errors.Is(err, cause) {
				t.Errorf("got %s, %v after %v and %d tries, want %s after %v", got, err, time.Since(began), s.tries(),
					test.want, test.after)
			}
			cancel()
		}
	})
}

// A 304 may tell the length of the body that it does not have (RFC 9110,
// section 8.6). HTTP/2's Read of it fails.
func TestNotModified(t *testing.T) {
	onBoth(t, func(t *testing.T, protocol string) {
		s := &script{answers: []http.HandlerFunc{status(304, "Content-Length", "9")}}
		client := &http.Client{Transport: &idemclient.Transport{Base: serve(t, protocol, s)}}
		res, err := client.Get("http://api.example/tasks")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != 304 || s.tries() != 1 {
			t.Errorf("got %s after %d tries, want 304 after one", res.Status, s.tries())
		}
	})
}

// What cannot be sent is no unknown outcome, and is not tried twice.
func TestWhatCannotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		base := serve(t, "HTTP/1.1", status(201))
		for _, test := range []struct {
			ctx                context.Context
			host, apiKey, want string
		}{
			{ended, "api.example", "svc_live_x", "context canceled"},
			{t.Context(), "", "svc_live_x", "the request's URL has no host"},
			{t.Context(), "api.example", "svc_live_x\n", "the header Authorization has a control character"},
		} {
			for _, body := range []io.Reader{nil, strings.NewReader("kept"), iotest.ErrReader(errDown)} {
				r, given := post(t, test.ctx, ""), &closable{Reader: body}
				r.Header.Set("Authorization", "Bearer "+test.apiKey)
				if r.URL.Host = test.host; body != nil {
					r.Body, r.GetBody = given, nil
				}
				began := time.Now()
				_, _, err := read(&idemclient.Transport{Base: base}, r)
				if kind(0, err) != "error" || !strings.Contains(err.Error(), test.want) || time.Since(began) != 0 ||
					base.dials != 0 || body != nil && !given.closed.Load() {
					t.Errorf("got %v after %v and %d dials, want %s", err, time.Since(began), base.dials, test.want)
				}
			}
		}
	})
}

// A try that the caller ends takes nothing from the budget.
func TestTheContextEndsATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []http.HandlerFunc{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}}
		transport := &idemclient.Transport{Base: serve(t, "HTTP/1.1", s), RetryShare: 1e-9}
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, _, err := read(transport, post(t, ctx, ""))
			if unknown, ok := errors.AsType[*idemclient.UnknownError](err); !ok || unknown.Tries != 1 {
				t.Fatalf("got %v, want an UnknownError after one try", err)
			}
		}
		synctest.Wait()
		s.seen, s.answers = nil, []http.HandlerFunc{cut}
		read(transport, post(t, t.Context(), ""))
		if s.tries() != 4 {
			t.Errorf("got %d tries, want 4", s.tries())
		}
	})
}

// http.Client.Timeout replaces the error by one with its text.
func TestClientTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		client := http.Client{Transport: &idemclient.Transport{Base: serve(t, "HTTP/1.1", http.HandlerFunc(hang))},
			Timeout: time.Second}
		_, err := client.Do(post(t, idemclient.WithKey(t.Context(), "job-1"), ""))
		const want = `"job-1" may have taken effect: do not repeat this under another key`
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want the text of an UnknownError", err)
		}
	})
}

func TestKeys(t *testing.T) {
	long := strings.Repeat("k", 255)
	for _, test := range []struct {
		name, method string
		given        string // by WithKey; "-" is none
		header       []string
		methods      []string
		want         string // "new" is one that the Transport makes
		tries        int    // 0: refused
	}{
		{"a new one", "POST", "-", nil, nil, "new", 2},
		{"the context's", "POST", "job-1", nil, nil, "job-1", 2},
		{"of 255 bytes", "POST", long, nil, nil, long, 2},
		{"the request's", "POST", "job-1", []string{"own"}, nil, "own", 2},
		{"for GET", "GET", "job 1", nil, nil, "", 2},
		{"of a GET", "GET", "-", []string{"own"}, nil, "own", 2},
		{"for PUT", "PUT", "-", nil, nil, "", 1},
		{"for PUT by the context", "PUT", "job-1", nil, nil, "job-1", 2},
		{"for PATCH by the request", "PATCH", "-", []string{"own"}, nil, "own", 2},
		{"for PATCH by Methods", "PATCH", "-", nil, []string{"PATCH"}, "new", 2},
		{"for POST without Methods", "POST", "-", nil, []string{}, "", 1},

		{"empty", "POST", "", nil, nil, "", 0},
		{"spaces", "POST", "job 1", nil, nil, "", 0},
		{"a line break", "POST", "job\r\n1", nil, nil, "", 0},
		{"256 bytes", "POST", long + "k", nil, nil, "", 0},
		{"a letter beyond ASCII", "POST", "jöb", nil, nil, "", 0},
		{"delete", "POST", "job\x7f", nil, nil, "", 0},
		{"the request's is empty", "POST", "-", []string{""}, nil, "", 0},
		{"two", "POST", "-", []string{"a", "b"}, nil, "", 0},
	} {
		onBoth(t, func(t *testing.T, protocol string) {
			s := &script{answers: []http.HandlerFunc{status(503), status(200)}}
			transport := &idemclient.Transport{Base: serve(t, protocol, s), Methods: test.methods}
			ctx := t.Context()
			if test.given != "-" {
				ctx = idemclient.WithKey(ctx, test.given)
			}
			r := post(t, ctx, "{}")
			body := &closable{Reader: r.Body}
			r.Body, r.Method = body, test.method
			if test.header != nil {
				r.Header["Idempotency-Key"] = test.header
			}
			before, copied := *r, r.Header.Clone()
			res, err := transport.RoundTrip(r)
			if err == nil {
				sent := res.Request.Header.Get("Idempotency-Key")
				if sent != s.seen[0].key {
					t.Errorf("%s: the response's request has the key %q, want %q", test.name, sent, s.seen[0].key)
				}
				res.Body.Close()
			} else if !strings.Contains(err.Error(), "send one of 1 to 255 printable ASCII characters without spaces") {
				t.Errorf("%s: got %v", test.name, err)
			}
			if synctest.Wait(); s.tries() != test.tries || !body.closed.Load() {
				t.Errorf("%s: got %d tries, the body closed: %t; want %d", test.name, s.tries(), body.closed.Load(), test.tries)
			}
			for _, got := range s.seen {
				if got.key != s.seen[0].key || test.want != "new" && got.key != test.want ||
					test.want == "new" && len(got.key) < 26 { // 130 bits
					t.Errorf("%s: got the key %q, want %q", test.name, got.key, test.want)
				}
			}
			if !maps.EqualFunc(r.Header, copied, slices.Equal) || r.ContentLength != before.ContentLength ||
				r.Body != before.Body || r.URL != before.URL || (r.GetBody == nil) != (before.GetBody == nil) {
				t.Errorf("%s: the caller's request was changed: %+v", test.name, r)
			}
		})
	}
}

// closable is a body that sees itself closed. It has no GetBody.
type closable struct {
	io.Reader
	closed atomic.Bool
}

func (c *closable) Close() error {
	c.closed.Store(true)
	return nil
}

// A body without GetBody is kept, up to MaxBody. A longer one is refused.
func TestBodies(t *testing.T) {
	failing := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errDown))
	for _, test := range []struct {
		name   string
		body   io.Reader
		length int64
		max    int64
		want   string
		sent   string
		tries  int
	}{
		{"of a known length", strings.NewReader("12345678"), 8, 8, "201", "12345678", 2},
		{"of an unknown one", strings.NewReader("12345678"), -1, 8, "201", "12345678", 2},
		{"of one that is not set", strings.NewReader("12345678"), 0, 8, "201", "12345678", 2},
		{"empty", strings.NewReader(""), -1, 8, "201", "", 2},
		{"too long", strings.NewReader("123456789"), 9, 8, "over 8 bytes set Request.GetBody", "", 0},
		{"too long, and it was not known", strings.NewReader("123456789"), -1, 8, "over 8 bytes", "", 0},
		{"no limit", strings.NewReader("12345678"), -1, math.MaxInt64, "201", "12345678", 2},
		{"1 MiB", bytes.NewReader(make([]byte, 1<<20)), -1, 0, "201", string(make([]byte, 1<<20)), 2},
		{"more", bytes.NewReader(make([]byte, 1<<20+1)), -1, 0, "over 1048576 bytes", "", 0},
		{"fails", failing, -1, 8, errDown.Error(), "", 0},
		{"shorter than it says", strings.NewReader("1234"), 8, 8, "ContentLength is 8 and the body has 4 bytes", "", 0},
		{"longer than it says", strings.NewReader("1234"), 3, 8, "ContentLength is 3 and the body has 4 bytes", "", 0},
	} {
		onBoth(t, func(t *testing.T, protocol string) {
			if seeker, ok := test.body.(io.Seeker); ok {
				seeker.Seek(0, io.SeekStart)
			}
			s, body := &script{answers: []http.HandlerFunc{cut, status(201)}}, &closable{Reader: test.body}
			r := post(t, t.Context(), "")
			r.Body, r.GetBody, r.ContentLength = body, nil, test.length
			code, _, err := read(&idemclient.Transport{Base: serve(t, protocol, s), MaxBody: test.max}, r)
			if got := fmt.Sprint(code, err); test.tries > 0 && kind(code, err) != test.want ||
				test.tries == 0 && (err == nil || !strings.Contains(got, test.want)) {
				t.Errorf("%s: got %s, want %s", test.name, got, test.want)
			}
			if s.tries() != test.tries || !body.closed.Load() || r.Body != body {
				t.Errorf("%s: got %d tries, closed: %t; want %d", test.name, s.tries(), body.closed.Load(), test.tries)
			}
			for _, got := range s.seen {
				if got.body != test.sent {
					t.Errorf("%s: got a body of %d bytes, want %d", test.name, len(got.body), len(test.sent))
				}
			}
		})
	}
}

// The end of the context ends the wait for a body.
func TestTheContextEndsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, writer := io.Pipe()
		request := post(t, ctx, "")
		request.Body, request.GetBody = r, nil
		_, _, err := read(&idemclient.Transport{Base: serve(t, "HTTP/1.1", status(200))}, request)
		if _, broken := writer.Write([]byte("late")); !errors.Is(err, context.DeadlineExceeded) || broken == nil {
			t.Errorf("got %v, and the body is closed: %v", err, broken)
		}
	})
}

// What streams passes at once, and names the key when it breaks off. What is
// upgraded can be written to, outlasts TryTimeout, and ends the context of its
// try when it is closed.
func TestStreamsPass(t *testing.T) {
	onBoth(t, func(t *testing.T, protocol string) {
		base := serve(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if declared := r.Header.Get("Declare"); declared != "" {
				w.Header().Set("Content-Length", declared)
			}
			io.WriteString(w, "first\n")
			http.NewResponseController(w).Flush()
			time.Sleep(time.Hour)
			panic(http.ErrAbortHandler)
		}))
		for _, declared := range []string{"", "2000000"} {
			began, r := time.Now(), post(t, t.Context(), "{}")
			r.Header.Set("Declare", declared)
			res, err := (&idemclient.Transport{Base: base}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(res.Body)
			if line, err := in.ReadString('\n'); line != "first\n" || err != nil || time.Since(began) != 0 {
				t.Errorf("got %q, %v after %v, want the first line at once", line, err, time.Since(began))
			}
			_, err = in.ReadByte()
			if got := kind(0, err); got != "unknown" || time.Since(began) != time.Hour {
				t.Errorf("got %v after %v, want an UnknownError", err, time.Since(began))
			}
			res.Body.Close()
		}
	})
	synctest.Test(t, func(t *testing.T) {
		base := serve(t, "HTTP/1.1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, buffered, _ := http.NewResponseController(w).Hijack()
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
			line, _ := buffered.ReadString('\n')
			io.WriteString(conn, line)
		}))
		for _, method := range []string{"GET", "POST"} {
			r := post(t, t.Context(), "")
			r.Method = method
			r.Header.Set("Connection", "upgrade")
			r.Header.Set("Upgrade", "echo")
			res, err := (&idemclient.Transport{Base: base, TryTimeout: time.Second}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			writer, ok := res.Body.(io.Writer)
			if !ok || res.StatusCode != 101 {
				t.Fatalf("%s: got %s with a %T, want one that can be written to", method, res.Status, res.Body)
			}
			time.Sleep(time.Minute)
			fmt.Fprintln(writer, "ping")
			try := res.Request.Context()
			if line, err := io.ReadAll(res.Body); string(line) != "ping\n" || try.Err() != nil {
				t.Errorf("%s: after a minute: got %q, %v, and the context of the try has %v", method, line, err, try.Err())
			}
			if res.Body.Close(); try.Err() == nil {
				t.Errorf("%s: the connection is closed, and the context of its try has not ended", method)
			}
		}
	})
}

// A connection that was never made is no unknown outcome, and no reason to
// doubt a refusal. http.Transport's own repeats are.
func TestWhatWasSent(t *testing.T) {
	onBoth(t, func(t *testing.T, protocol string) {
		s := &script{answers: []http.HandlerFunc{status(422)}}
		base := serve(t, protocol, s)
		transport := &idemclient.Transport{Base: base}
		base.down = 1
		if code, _, err := read(transport, post(t, t.Context(), "")); code != 422 || base.dials != 2 {
			t.Errorf("got %d, %v after %d dials, want 422 after 2", code, err, base.dials)
		}
		(&http.Client{Transport: transport}).CloseIdleConnections() // through the Transport
		base.down, base.dials = 4, 0
		_, _, err := read(transport, post(t, t.Context(), ""))
		if kind(0, err) != "error" || !errors.Is(err, errDown) || base.dials != 4 {
			t.Errorf("got %v after %d dials, want %v after 4", err, base.dials, errDown)
		}
	})

	// A Base that says nothing about its connections.
	synctest.Test(t, func(t *testing.T) {
		_, _, err := read(&idemclient.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return nil, errDown
		})}, post(t, t.Context(), ""))
		if kind(0, err) != "unknown" || !errors.Is(err, errDown) {
			t.Errorf("got %v, want an UnknownError", err)
		}
		(&idemclient.Transport{Base: roundTripper(nil)}).CloseIdleConnections() // it has none
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A Base may return responses without a body and without their request.
func TestBareResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &closable{Reader: strings.NewReader("answer")}
		answers := []*http.Response{{StatusCode: 503}, {StatusCode: 503, ContentLength: 6, Body: body}, {StatusCode: 201}}
		res, err := (&idemclient.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
			answer := answers[0]
			answers = answers[1:]
			return answer, nil
		})}).RoundTrip(post(t, t.Context(), ""))
		if err != nil || res.StatusCode != 201 || res.Body == nil || res.Request.Header.Get("Idempotency-Key") == "" {
			t.Fatalf("got %+v, %v", res, err)
		}
		if !body.closed.Load() {
			t.Error("the body of the second answer is not closed")
		}
	})
}

// http.Transport repeats a keyed request itself, with its key and body, when
// the connection was used before and turns out to be closed. A refusal that
// follows says nothing about the first of the two.
func TestHTTPTransportRepeats(t *testing.T) {
	for _, test := range []struct {
		last http.HandlerFunc
		want string
	}{{status(201), "201"}, {status(401), "unknown"}, {status(429, "Retry-After", "999"), "unknown"}} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{answers: []http.HandlerFunc{status(200), cut, test.last}}
			transport := &idemclient.Transport{Base: serve(t, "HTTP/1.1", s), MaxTries: 1} // so that it is not this one
			if code, _, err := read(transport, post(t, t.Context(), "")); code != 200 {
				t.Fatal(err)
			}
			r := post(t, idemclient.WithKey(t.Context(), "job-1"), "")
			r.Body, r.GetBody, r.ContentLength = io.NopCloser(strings.NewReader("the body")), nil, -1
			code, _, err := read(transport, r)
			if got := kind(code, err); got != test.want || s.tries() != 3 {
				t.Errorf("got %s, %v after %d tries, want %s after 3", got, err, s.tries(), test.want)
			}
			for _, got := range s.seen[1:] {
				if got.key != "job-1" || got.body != "the body" {
					t.Errorf("got %+v, want the same key and body", got)
				}
			}
		})
	}
}

// A redirect that keeps method and body keeps the key; one to a GET has none. So
// it is where a RoundTripper around the Transport, and one below it, set the
// Request of the response to another one.
func TestRedirects(t *testing.T) {
	other := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(r)
			if err == nil {
				res.Request = post(t, t.Context(), "")
			}
			return res, err
		})
	}
	itself := func(next http.RoundTripper) http.RoundTripper { return next }
	onBoth(t, func(t *testing.T, protocol string) {
		for _, code := range []int{301, 302, 303, 307, 308} {
			for _, by := range []func(http.RoundTripper) http.RoundTripper{itself, other} {
				away := status(code, "Location", "http://other.example/b")
				s := &script{answers: []http.HandlerFunc{cut, away, status(503), status(200)}}
				client := http.Client{Transport: by(&idemclient.Transport{Base: by(serve(t, protocol, s))})}
				res, err := client.Do(post(t, t.Context(), "the body"))
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				keeps := code >= 307
				for n, got := range s.seen {
					want := try{"POST", "/tasks", s.seen[0].key, "the body", got.at}
					if n > 1 {
						want.target = "/b"
					}
					if n > 1 && !keeps {
						want.method, want.key, want.body = "GET", "", ""
					}
					if got != want || got.key == "" && keeps || res.StatusCode != 200 || len(s.seen) != 4 {
						t.Errorf("%d: got %+v, want %+v", code, got, want)
					}
				}
			}
		}
	})
}

// A try that does not answer, or stops in its body, ends after TryTimeout, and
// leaves the rest of the deadline to the next ones. A stream goes on.
func TestTryTimeout(t *testing.T) {
	silent := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	stops := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "12")
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	long := func(w http.ResponseWriter, _ *http.Request) {
		for range 5 {
			io.WriteString(w, "part ")
			http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
		}
	}
	onBoth(t, func(t *testing.T, protocol string) {
		s := &script{answers: []http.HandlerFunc{silent, stops, long}}
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		transport := &idemclient.Transport{Base: serve(t, protocol, s), TryTimeout: 2 * time.Second}
		got, body, err := read(transport, post(t, ctx, "the body"))
		if got != 200 || body != strings.Repeat("part ", 5) || err != nil || s.tries() != 3 {
			t.Errorf("got %d %q, %v after %d tries", got, body, err, s.tries())
		}
		s = &script{answers: []http.HandlerFunc{silent}}
		transport = &idemclient.Transport{Base: serve(t, protocol, s), MaxTries: 1}
		if got, _, err := read(transport, post(t, t.Context(), "the body")); kind(got, err) != "unknown" ||
			!strings.Contains(err.Error(), "no whole answer in 1m0s") {
			t.Errorf("without TryTimeout: got %d, %v", got, err)
		}
	})
}

// What a redirect leads to does not tell what became of a try before it.
func TestRedirectsAfterALostAnswer(t *testing.T) {
	on, far := status(307, "Location", "/b"), status(308, "Location", "/c")
	for _, test := range []struct {
		answers []http.HandlerFunc
		want    string
	}{
		{[]http.HandlerFunc{cut, on, status(401)}, "unknown"},
		{[]http.HandlerFunc{cut, on, far, status(422)}, "unknown"},
		{[]http.HandlerFunc{cut, on, status(201)}, "201"},
		{[]http.HandlerFunc{on, status(401)}, "401"},
		{[]http.HandlerFunc{status(429), on, status(401)}, "401"},
	} {
		onBoth(t, func(t *testing.T, protocol string) {
			client := http.Client{Transport: &idemclient.Transport{Base: serve(t, protocol, &script{answers: test.answers})}}
			res, err := client.Do(post(t, t.Context(), "the body"))
			got := kind(0, err)
			if err == nil {
				got = kind(res.StatusCode, nil)
				res.Body.Close()
			}
			if got != test.want {
				t.Errorf("after %d answers: got %s, %v, want %s", len(test.answers), got, err, test.want)
			}
		})
	}
}

// The bodies of answers that are not returned do not hold connections, also if
// they never end; those that do end leave theirs to the next try.
func TestNoLeak(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(503)
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	chunked := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(503)
		io.WriteString(w, strings.Repeat("x", 60000))
	}
	for _, test := range []struct {
		name  string
		first http.HandlerFunc
		last  http.HandlerFunc
		want  string
		dials int // over HTTP/1.1
	}{
		{"short", status(503), status(201), "201", 1},
		{"chunked", chunked, status(201), "201", 1},
		{"endless", endless, status(201), "201", 2},
		{"a refusal that is not returned", cut, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Should-Retry", "false")
			w.WriteHeader(403)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "unknown", 2},
	} {
		onBoth(t, func(t *testing.T, protocol string) {
			began := time.Now()
			base := serve(t, protocol, &script{answers: []http.HandlerFunc{test.first, test.last}})
			code, _, err := read(&idemclient.Transport{Base: base}, post(t, context.WithoutCancel(t.Context()), ""))
			if got := kind(code, err); got != test.want || time.Since(began) > time.Second {
				t.Errorf("%s: got %s, %v after %v, want %s", test.name, got, err, time.Since(began), test.want)
			}
			time.Sleep(time.Second) // in which net/http reads what it does not wait for
			base.CloseIdleConnections()
			if synctest.Wait(); base.open != 0 {
				t.Errorf("%s: %d connections are open", test.name, base.open)
			}
			if protocol == "HTTP/1.1" && base.dials != test.dials {
				t.Errorf("%s: got %d dials, want %d", test.name, base.dials, test.dials)
			}
		})
	}
}

// In an outage a Transport sends 1.2 times as much as without, and 10 more and
// one a minute. After it, the budget is full again in time.
func TestBudget(t *testing.T) {
	for _, test := range []struct {
		share float64
		want  int
	}{{0, 1000 + 200 + 10}, {0.5, 1000 + 500 + 10}, {1e-9, 1000 + 10}} {
		onBoth(t, func(t *testing.T, protocol string) {
			var answer http.Handler = status(503)
			sent := 0
			base := serve(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				sent++
				answer.ServeHTTP(w, r)
			}))
			transport, began := &idemclient.Transport{Base: base, RetryShare: test.share}, time.Now()
			for range 1000 {
				if code, _, err := read(transport, post(t, t.Context(), "")); code != 503 {
					t.Fatalf("got %d, %v", code, err)
				}
			}
			want := test.want + int(time.Since(began).Minutes())
			if sent > want || sent < want-2 {
				t.Errorf("share %v: sent %d requests in %v for 1000 operations, want %d", test.share, sent, time.Since(began), want)
			}
			for minutes := range 20 { // 0 to 19, of which 10 are as many as there is room for
				sent = 0
				transport.RetryShare, transport.MaxTries = 1e-9, 100
				time.Sleep(time.Duration(minutes) * time.Minute)
				read(transport, post(t, t.Context(), ""))
				if least := 1 + min(minutes, 10); sent < least || sent > least+2+minutes {
					t.Errorf("after %d minutes: sent %d, want %d", minutes, sent, least)
				}
			}
		})
	}
}

// Example of a server that is not in a bubble, over TLS and HTTP/2.
func TestOverTLS(t *testing.T) {
	s := &script{answers: []http.HandlerFunc{cut, half, status(201)}}
	srv := httptest.NewUnstartedServer(s)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	r := post(t, t.Context(), "the body")
	r.URL.Scheme, r.URL.Host = "https", strings.TrimPrefix(srv.URL, "https://")
	code, body, err := read(&idemclient.Transport{Base: srv.Client().Transport, MaxWait: time.Millisecond}, r)
	if code != 201 || body != "answer 201" || s.tries() != 3 {
		t.Errorf("got %d %q, %v after %d tries", code, body, err, s.tries())
	}
}
