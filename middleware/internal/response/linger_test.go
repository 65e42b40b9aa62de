package response_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// patient is the writer of a server, whose client sends so many bytes, a
// mebibyte after each pause.
type patient struct {
	*httptest.ResponseRecorder
	sends, read int
	pause       time.Duration
	deadline    time.Time
	timeless    bool
}

func (p *patient) SetReadDeadline(t time.Time) error {
	if p.timeless {
		return http.ErrNotSupported
	}
	p.deadline = t
	return nil
}

func (p *patient) Read(b []byte) (int, error) {
	if p.read%(1<<20) == 0 {
		time.Sleep(min(p.pause, time.Until(p.deadline)))
	}
	n := min(len(b), p.sends-p.read, 1<<20-p.read%(1<<20))
	if n == 0 || !time.Now().Before(p.deadline) || !p.Flushed {
		return 0, io.ErrUnexpectedEOF
	}
	p.read += n
	return n, nil
}

func (p *patient) Close() error { return nil }

// TestLinger: of a refused request over HTTP/1 what the client sends is read,
// but not without a deadline, and not for ever.
func TestLinger(t *testing.T) {
	const mib = 1 << 20
	for name, row := range map[string]struct {
		length      int64
		major       int
		sends, read int
		pause, took time.Duration
		change      func(*patient, http.ResponseWriter)
	}{
		"without end":       {1 << 40, 1, 1 << 30, 128 * mib, 0, 0, nil},
		"a part":            {3 * mib, 1, 2*mib + 1, 2*mib + 1, time.Second, 3 * time.Second, nil},
		"slowly":            {1 << 40, 1, 1 << 30, 7 * mib, 4 * time.Second, 30 * time.Second, nil},
		"nothing":           {3 * mib, 1, 1, 0, time.Hour, 5 * time.Second, nil},
		"short":             {256 << 10, 1, 256 << 10, 0, 0, 0, nil},
		"HTTP/2":            {3 * mib, 2, 3 * mib, 0, 0, 0, nil},
		"committed":         {3 * mib, 1, 3 * mib, 0, 0, 0, func(_ *patient, w http.ResponseWriter) { w.WriteHeader(200) }},
		"without deadlines": {3 * mib, 1, 3 * mib, 0, 0, 0, func(p *patient, _ http.ResponseWriter) { p.timeless = true }},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &patient{ResponseRecorder: httptest.NewRecorder(), sends: row.sends, pause: row.pause}
			r := httptest.NewRequest("POST", "/", p)
			r.ContentLength, r.ProtoMajor = row.length, row.major
			x := newWriter(r)
			w := x.Wrap(p)
			if row.change != nil {
				row.change(p, w)
			}
			x.PrepareLinger(w.Header(), 7)
			began := time.Now()
			x.Linger()
			if took := time.Since(began); p.read != row.read || took != row.took {
				t.Errorf("%s: %d bytes were read in %v, want %d in %v", name, p.read, took, row.read, row.took)
			}
			if got := w.Header().Get("Content-Length"); (got == "7") != p.Flushed {
				t.Errorf("%s: Content-Length %q, flushed %t", name, got, p.Flushed)
			}
		})
	}
}
