package response_test

import (
	"errors"
	"io"
	"log"
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
	if got := res.Header.Values(idHeader); len(got) != 1 || got[0] != id {
		t.Errorf("got the ids %q, want %q", got, id)
	}
	return res, string(body)
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
			if res.StatusCode != tt.want.status || body != tt.want.body {
				t.Errorf("got %d %q, want %d %q", res.StatusCode, body, tt.want.status, tt.want.body)
			}
		})
	}
}
