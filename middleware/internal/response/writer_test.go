package response_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

const idHeader, id = "Svc-Request-Id", "the-id"

// hangs is how long a test waits for what should come at once.
const hangs = 5 * time.Minute

func newWriter(r *http.Request) *response.Writer {
	return &response.Writer{Request: r, IDHeader: idHeader, ID: id}
}

// wrap returns a handler's writer on below.
func wrap(below http.ResponseWriter) http.ResponseWriter {
	return newWriter(httptest.NewRequest("GET", "/", nil)).Wrap(below)
}

// stamped serves h with a Writer.
func stamped(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := newWriter(r)
		h(x.Wrap(w), r)
		x.Finish()
	})
}

// start serves h on loopback until the test ends, over TLS for HTTP/2.
func start(t *testing.T, h http.Handler, http2 bool) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	if srv.EnableHTTP2 = http2; http2 {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv
}

// overBoth runs a test over HTTP/1.1 and over HTTP/2.
func overBoth(t *testing.T, h http.HandlerFunc, test func(t *testing.T, srv *httptest.Server)) {
	t.Run("HTTP/1.1", func(t *testing.T) { test(t, start(t, stamped(h), false)) })
	t.Run("HTTP/2.0", func(t *testing.T) { test(t, start(t, stamped(h), true)) })
}

// get sends a GET and checks the id of the response, whose body is read.
func get(t *testing.T, srv *httptest.Server) (*http.Response, string) {
	t.Helper()
	res, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func wantID(t *testing.T, res *http.Response) {
	t.Helper()
	if got := res.Header.Values(idHeader); len(got) != 1 || got[0] != id {
		t.Errorf("got %q, want %q", got, id)
	}
}

// TestCopyCommitsWithTheFirstByte: a source that ends or fails before its first
// byte leaves the handler free to answer something else.
func TestCopyCommitsWithTheFirstByte(t *testing.T) {
	failed := errors.New("failed")
	type want struct {
		status int
		body   string
	}
	type readerOnly struct{ io.Reader }
	long := strings.Repeat("x", 3000)
	down := func(w http.ResponseWriter) { http.Error(w, "down", http.StatusBadGateway) }
	notFound := func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }
	nothing := func(http.ResponseWriter) {}
	for name, tt := range map[string]struct {
		src  io.Reader
		err  error
		then func(w http.ResponseWriter)
		want want
	}{
		"fails":           {iotest.ErrReader(failed), failed, down, want{502, "down\n"}},
		"is empty":        {strings.NewReader(""), nil, notFound, want{404, ""}},
		"is empty for us": {readerOnly{strings.NewReader("")}, nil, notFound, want{404, ""}},
		"fails at once": {io.MultiReader(strings.NewReader("a"), iotest.ErrReader(failed)), failed, down,
			want{200, "adown\n"}},
		"fails late": {io.MultiReader(strings.NewReader(long), iotest.ErrReader(failed)), failed, nothing,
			want{200, long}},
		"is read bytewise": {readerOnly{iotest.OneByteReader(strings.NewReader(long))}, nil, nothing, want{200, long}},
		"ends with its last bytes": {readerOnly{iotest.DataErrReader(strings.NewReader(long))}, nil, nothing,
			want{200, long}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := start(t, stamped(func(w http.ResponseWriter, r *http.Request) {
				w.Header()[idHeader] = []string{"forged"}
				n, err := io.Copy(w, tt.src)
				if err != tt.err {
					t.Errorf("got error %v, want %v", err, tt.err)
				}
				if committed := response.Committed(w); committed != (n > 0) || response.Of(w).Bytes != n {
					t.Errorf("after %d bytes: committed %t, counted %d", n, committed, response.Of(w).Bytes)
				}
				tt.then(w)
			}), false)
			res, body := get(t, srv)
			if wantID(t, res); res.StatusCode != tt.want.status || body != tt.want.body {
				t.Errorf("got %d %q, want %d %q", res.StatusCode, body, tt.want.status, tt.want.body)
			}
		})
	}
}

// TestEventsArriveOneByOne: each event reaches the client before the next one
// is made.
func TestEventsArriveOneByOne(t *testing.T) {
	received := make(chan struct{})
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("Flush: %v", err)
			}
			select {
			case <-received:
			case <-time.After(hangs):
				t.Errorf("event %d was held back", i)
			}
		}
	}, func(t *testing.T, srv *httptest.Server) {
		res, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewReader(res.Body)
		for i := range 5 {
			line, _ := lines.ReadString('\n')
			lines.ReadString('\n')
			if want := fmt.Sprintf("data: %d\n", i); line != want {
				t.Errorf("got %q, want %q", line, want)
			}
			received <- struct{}{}
		}
	})
}

func TestTrailers(t *testing.T) {
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Declared")
		io.WriteString(w, "body")
		w.Header().Set("Declared", "1")
		w.Header().Set(http.TrailerPrefix+"Undeclared", "2")
	}, func(t *testing.T, srv *httptest.Server) {
		res, body := get(t, srv)
		if body != "body" || res.Trailer.Get("Declared") != "1" || res.Trailer.Get("Undeclared") != "2" {
			t.Errorf("got %q with trailers %v", body, res.Trailer)
		}
	})
}

func TestDeadlinesReachTheConnection(t *testing.T) {
	result := make(chan error, 1)
	past := time.Unix(1, 0)
	overBoth(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		var err error
		switch r.Method {
		case "PUT":
			err = c.SetReadDeadline(past)
			if err == nil {
				_, err = r.Body.Read(make([]byte, 1))
			}
		case "GET":
			err = c.SetWriteDeadline(past)
			for err == nil { // until what the server buffers is full
				_, err = w.Write(make([]byte, 1<<16))
			}
		}
		result <- err
	}, func(t *testing.T, srv *httptest.Server) {
		unfinished, w := io.Pipe()
		defer w.Close()
		for method, body := range map[string]io.Reader{"PUT": unfinished, "GET": nil} {
			r, err := http.NewRequestWithContext(t.Context(), method, srv.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if res, err := srv.Client().Do(r); err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			}()
			select {
			case err := <-result:
				if err == nil {
					t.Errorf("%s: worked after its deadline", method)
				}
			case <-time.After(hangs):
				t.Errorf("%s: went on after its deadline", method)
			}
		}
	})
}

func TestFullDuplex(t *testing.T) {
	srv := start(t, stamped(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.EnableFullDuplex(), c.Flush()); err != nil {
			t.Error(err)
		}
		io.Copy(w, r.Body)
	}), false)
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(hangs))
	io.WriteString(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "PUT"})
	if err != nil {
		t.Fatal(err)
	}
	wantID(t, res)
	io.WriteString(c, "body")
	if body, err := io.ReadAll(res.Body); string(body) != "body" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
}
