package rawconn_test

import (
	"bytes"
	"net"
	"net/http"
	"regexp"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// sink is a connection that keeps what is written to it.
type sink struct {
	net.Conn
	out bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) { return s.out.Write(p) }

// hijackedWrites returns what comes out when the parts are written to a hijacked
// connection whose request has the id, or none if it is empty.
func hijackedWrites(t testing.TB, id string, parts ...[]byte) []byte {
	t.Helper()
	srv := new(http.Server)
	out := new(sink)
	c := accept(t, srv, out)
	if id != "" {
		rawconn.Own(connContext(srv, c), id)
	}
	srv.ConnState(c, http.StateHijacked)
	for _, p := range parts {
		if n, err := c.Write(p); n != len(p) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", p, n, err)
		}
	}
	return out.out.Bytes()
}

var (
	finalHead = regexp.MustCompile(`(?s)\AHTTP/1\.[0-9] ([2-9][0-9][0-9]|101)( [^\n]*|\r)?\n([^\r\n][^\n]*\n)*(\r\n|\n)`)
	ourLine   = regexp.MustCompile(`(?i)(\n)svc-request-id:[^\n]*\n([ \t][^\n]*\n)*`)
)

// FuzzHead holds the head's rules against a second statement of them: the size of
// the writes makes no difference; a final head has one line, the owner's, and
// otherwise its own lines; what is no head does not change.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		switching + inner, inner, "HTTP/1.1 200\n\nbody", "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + inner,
		"HTTP/1.1 200 OK\r\nSvc-Request-Id: a\r\n b\r\nsvc-Request-id:c\r\nSvc-Request: d\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/2",
	} {
		for n := range uint8(4) {
			f.Add([]byte(s), n)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, n uint8) {
		whole := hijackedWrites(t, "own", in)
		var parts [][]byte
		for p := range chunks(in, int(n)+1) {
			parts = append(parts, p)
		}
		if got := hijackedWrites(t, "own", parts...); !bytes.Equal(got, whole) {
			t.Errorf("in parts of %d bytes: got %q, want %q", n+1, got, whole)
		}

		head := finalHead.Find(in)
		if head == nil {
			if !bytes.HasPrefix(in, []byte("HTTP/1.")) && !bytes.Equal(whole, in) {
				t.Errorf("no head, but got %q for %q", whole, in)
			}
			return
		}
		end := 1
		if bytes.HasSuffix(head, []byte("\r\n")) {
			end = 2
		}
		rest := ourLine.ReplaceAll(head, []byte("$1"))
		for again := ourLine.ReplaceAll(rest, []byte("$1")); !bytes.Equal(again, rest); {
			rest, again = again, ourLine.ReplaceAll(again, []byte("$1"))
		}
		want := bytes.Join([][]byte{rest[:len(rest)-end], []byte("Svc-Request-Id: own\r\n"), rest[len(rest)-end:], in[len(head):]}, nil)
		if !bytes.Equal(whole, want) {
			t.Errorf("got %q, want %q", whole, want)
		}
	})
}

// TestHeadOwnership: with an owner his id goes out alone, without one a line that
// is there stands.
func TestHeadOwnership(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nsvc-request-id: theirs\r\n\r\n"
	if got := string(hijackedWrites(t, "", []byte(head))); got != head {
		t.Errorf("without an owner: got %q, want %q", got, head)
	}
	const want = "HTTP/1.1 200 OK\r\nSvc-Request-Id: own\r\n\r\n"
	if got := string(hijackedWrites(t, "own", []byte(head))); got != want {
		t.Errorf("with an owner: got %q, want %q", got, want)
	}
}
