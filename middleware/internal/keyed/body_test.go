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

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestAnnouncedLength: a large body has its room before it is read, and loses
// that for what has not come where little comes for ten seconds. It takes
// memory as it comes, and none beyond its length but for the end to be read
// into.
func TestAnnouncedLength(t *testing.T) {
	const length, limit, first = 8 << 20, 16 << 20, 16<<10 + 1
	for _, row := range []struct {
		name   string
		length int64
		pieces int // that come
		size   int // of each
		pause  time.Duration
		used   int64 // in the end
	}{
		{"at once", length, 0, 0, 0, length + 1},
		{"nothing for a while", length, 0, 0, 10*time.Second - 1, length + 1},
		{"nothing for longer", length, 0, 0, 10*time.Second + 1, first},
		{"slowly", length, 1, 1 << 20, 10*time.Second - 1, length + 1},
		{"too slowly", length, 1, 1<<20 - 1, 6 * time.Second, first << 6},
		{"whole", length, 8, 1 << 20, 9 * time.Second, length + 1},
		{"no large one", 256 << 10, 0, 0, 0, first},
		{"of unknown length", -1, 0, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, left := NewBodies(length*3), row.pieces*row.size
			var body Body
			r := httptest.NewRequest("POST", "/", readFunc(func(p []byte) (int, error) {
				if left%max(row.size, 1) == 0 {
					time.Sleep(row.pause)
					synctest.Wait()
				}
				if left == 0 {
					if b.used != row.used {
						t.Errorf("%s: %d bytes are in use, want %d", row.name, b.used, row.used)
					}
					if row.length == int64(len(body.Bytes)) {
						return 0, io.EOF
					}
					return 0, io.ErrUnexpectedEOF
				}
				if most := max(2*len(body.Bytes), first); cap(body.Bytes) > most+1 {
					t.Errorf("%s: %d bytes of memory for %d", row.name, cap(body.Bytes), len(body.Bytes))
				}
				n := min(len(p), (left-1)%row.size+1)
				left -= n
				return n, nil
			}))
			r.ContentLength = row.length
			err := b.Read(&body, "a", httptest.NewRecorder(), r, limit)
			if whole := row.length == int64(len(body.Bytes)); (err == nil) != whole || err != nil && err != io.ErrUnexpectedEOF {
				t.Errorf("%s: %v", row.name, err)
			}
			body.Release()
			time.Sleep(time.Minute)
			if b.used != 0 || len(b.tenants) != 0 || body.promised != 0 {
				t.Errorf("%s: %d bytes of %v are in use after the release", row.name, b.used, b.tenants)
			}
		})
	}
	for k := int64(1); k < 5; k++ { // as GUIDES says
		b := NewBodies((2*k - 1) * length)
		for n := range k + 1 {
			if got := b.reserve("a", length, 1); got != (n < k) {
				t.Errorf("body %d of %d: got %t", n+1, k, got)
			}
		}
	}
	b, body := NewBodies(length), Body{}
	r := httptest.NewRequest("POST", "/", readFunc(func([]byte) (int, error) {
		t.Error("a body is read that cannot fit")
		return 0, io.EOF
	}))
	r.ContentLength = length
	if err := b.Read(&body, "a", httptest.NewRecorder(), r, limit); err != ErrBodies || b.used != 0 {
		t.Errorf("got %v with %d bytes in use, want %v", err, b.used, ErrBodies)
	}
	const short = 20_000
	r = httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", short)))
	if err := b.Read(&body, "a", httptest.NewRecorder(), r, limit); err != nil || cap(body.Bytes) != short+1 {
		t.Errorf("%v, with room for %d bytes", err, cap(body.Bytes))
	}
}
