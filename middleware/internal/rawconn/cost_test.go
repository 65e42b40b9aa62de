package rawconn_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// fixed is a stage that allocates as little as a handler can.
func fixed(w http.ResponseWriter, r *http.Request) {
	rawconn.Own(r.Context(), "own")
	w.Header()[field] = ids
	w.Write(text)
}

var ids, text = []string{"own"}, []byte("hello")

// exchanger sends the same request again and again, without allocations.
type exchanger struct {
	net.Conn
	request []byte
	buf     [4 << 10]byte
}

func newExchanger(t testing.TB, addr string) *exchanger {
	t.Helper()
	c := dial(t, addr)
	c.SetDeadline(time.Time{})
	return &exchanger{Conn: c.Conn, request: []byte(getRequest)}
}

func (e *exchanger) exchange(t testing.TB) {
	if _, err := e.Write(e.request); err != nil {
		t.Fatal(err)
	}
	for n := 0; !bytes.HasSuffix(e.buf[:n], text); {
		k, err := e.Read(e.buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
}

func exchangers(t testing.TB) (bare, wrapped *exchanger) {
	h := http.HandlerFunc(fixed)
	return newExchanger(t, run(t, newServer(h), listenTCP(t))), newExchanger(t, serve(t, newServer(h)))
}

// TestAllocations: a request costs as many as without the wrapper.
func TestAllocations(t *testing.T) {
	bare, wrapped := exchangers(t)
	measure := func(e *exchanger) float64 {
		return testing.AllocsPerRun(500, func() { e.exchange(t) })
	}
	// The first requests fill the pools of net/http.
	measure(bare)
	measure(wrapped)
	if got, want := measure(wrapped), measure(bare); got > want {
		t.Errorf("got %v allocations a request, want %v as without the wrapper", got, want)
	}
}

func TestOwnAllocations(t *testing.T) {
	srv := new(http.Server)
	ctx, cancel := context.WithCancel(connContext(srv, accept(t, srv, new(sink))))
	defer cancel()
	if got := testing.AllocsPerRun(100, func() { rawconn.Own(ctx, "own") }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
	if got := testing.AllocsPerRun(100, func() { rawconn.Own(context.Background(), "own") }); got != 0 {
		t.Errorf("without a listener: got %v allocations, want 0", got)
	}
}

// BenchmarkRequest compares a keep-alive request with and without the wrapper, in
// turns, since the speed of a machine changes more than that. ratio is wrapped
// to bare.
func BenchmarkRequest(b *testing.B) {
	bare, wrapped := exchangers(b)
	var spent [2]time.Duration
	b.ReportAllocs()
	for b.Loop() {
		for i, e := range []*exchanger{bare, wrapped} {
			start := time.Now()
			e.exchange(b)
			spent[i] += time.Since(start)
		}
	}
	b.ReportMetric(float64(spent[0].Nanoseconds())/float64(b.N), "ns/bare")
	b.ReportMetric(float64(spent[1].Nanoseconds())/float64(b.N), "ns/wrapped")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
}

// BenchmarkWrite is the wrapper alone: what it adds to the writes of a request.
func BenchmarkWrite(b *testing.B) {
	head := []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	b.Run("bare", func(b *testing.B) {
		c := net.Conn(discard{})
		for b.Loop() {
			c.Write(head)
		}
	})
	b.Run("wrapped", func(b *testing.B) {
		srv := new(http.Server)
		c := accept(b, srv, discard{})
		ctx := connContext(srv, c)
		b.ReportAllocs()
		for b.Loop() {
			rawconn.Own(ctx, "own")
			c.Write(head)
			srv.ConnState(c, http.StateIdle)
		}
	})
}

type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error) { return io.Discard.Write(p) }
