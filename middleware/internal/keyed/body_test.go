package keyed

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBodies(t *testing.T) {
	b := Bodies{Max: 100}
	for i, step := range []struct {
		tenant   string
		n, parts int64
		want     bool
	}{
		{"a", 101, 1, false},
		{"a", 100, 1, true},
		{"b", 1, 1, false},
		{"a", -100, 1, true},
		{"a", 51, 2, false},
		{"a", 50, 2, true},
		{"b", 50, 1, true},
		{"b", -50, 1, true},
		{"a", -50, 1, true},
	} {
		if got := b.reserve(step.tenant, step.n, step.parts); got != step.want {
			t.Errorf("step %d, %+v: got %t", i, step, got)
		}
	}
	body := Body{from: &b, tenant: "a"}
	for range 2 {
		for n, want := range map[int]bool{50: true, 51: false} {
			if got := body.Hold(n); got != want {
				t.Errorf("Hold(%d): got %t", n, got)
			}
		}
		if b.used != 50 {
			t.Errorf("%d bytes are in use, want 50", b.used)
		}
		if body.Release(); b.used != 0 || len(b.tenants) != 0 {
			t.Errorf("%d bytes of %v are in use after the release", b.used, b.tenants)
		}
	}
}

// TestCompute: four compute at a time, others wait for a second or until they
// leave. What they take counts, unless one computes alone or its body does not
// count.
func TestCompute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, none := NewBodies(100<<10), func() {}
		body := func() *Body { return &Body{from: b, tenant: "a", held: 1} }
		end := make(chan struct{})
		for range 4 {
			go body().Compute(t.Context(), 1, func() { <-end })
		}
		synctest.Wait()
		if err := (&Body{from: b, tenant: "a"}).Compute(t.Context(), 1<<30, none); err != nil {
			t.Errorf("a small body: %v", err)
		}
		began := time.Now()
		if err := body().Compute(t.Context(), 1, none); err != ErrBodies || time.Since(began) != time.Second {
			t.Errorf("got %v after %v, want %v after a second", err, time.Since(began), ErrBodies)
		}
		left, leave := context.WithCancel(t.Context())
		leave()
		if err := body().Compute(left, 1, none); err != context.Canceled {
			t.Errorf("whose client has left: %v", err)
		}
		time.AfterFunc(time.Millisecond, func() { end <- struct{}{} })
		if err := body().Compute(t.Context(), 1, none); err != nil || time.Since(began) >= 2*time.Second {
			t.Errorf("when one has ended: %v", err)
		}
		if err := body().Compute(t.Context(), 100<<10, none); err != ErrBodies {
			t.Errorf("without room: %v", err)
		}
		close(end)
		synctest.Wait()
		if err := body().Compute(t.Context(), 100<<10, none); err != nil || b.used != 0 {
			t.Errorf("alone: %v, with %d bytes in use", err, b.used)
		}
	})
}

// announced is a body of which nothing arrives.
type announced struct{ from *Bodies }

func (a announced) Read([]byte) (int, error) {
	if a.from.used != 16<<10+1 {
		return 0, io.EOF
	}
	return 0, io.ErrUnexpectedEOF
}

// TestAnnouncedLength: a client gets little room for a Content-Length before it
// has sent anything, and none beyond it but for the end to be read into.
func TestAnnouncedLength(t *testing.T) {
	b := Bodies{Max: 10 << 20}
	r := httptest.NewRequest("POST", "/", announced{&b})
	r.ContentLength = 1 << 20
	var body Body
	if err := b.Read(&body, "a", httptest.NewRecorder(), r, 1<<20); err != io.ErrUnexpectedEOF {
		t.Errorf("%v, with %d bytes in use", err, b.used)
	}
	const length = 20_000
	body = Body{}
	r = httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", length)))
	if err := b.Read(&body, "a", httptest.NewRecorder(), r, 1<<20); err != nil || cap(body.Bytes) != length+1 {
		t.Errorf("%v, with room for %d bytes", err, cap(body.Bytes))
	}
}
