package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// letters is a body of the given length that takes no memory by itself.
type letters struct{ left int }

func (l *letters) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), l.left)]
	for i := range p {
		p[i] = 'a'
	}
	l.left -= len(p)
	return len(p), nil
}

func lettersRequest(token string, size int) *http.Request {
	r := httptest.NewRequest("POST", "/", &letters{size})
	r.ContentLength = int64(size)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Idempotency-Key", "a")
	return r
}

// TestWaitersLetGoOfTheirBodies: what waits keeps the hash of a large body
// alone.
func TestWaitersLetGoOfTheirBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters, size = 64, 1 << 20
		ring := newKeyring()
		token := ring.issue(t)
		var runs atomic.Int64
		h := keyed(ring, middleware.Options{}, numbered(&runs, func(r *http.Request) {
			if n, err := io.Copy(io.Discard, r.Body); n != size || err != nil {
				t.Errorf("the handler read %d bytes, %v", n, err)
			}
			time.Sleep(time.Second)
		}))
		go serve(h, lettersRequest(token, size))
		synctest.Wait()
		runtime.GC()
		before := heap()
		answers := make(chan answer, waiters)
		for range waiters {
			go func() { answers <- serve(h, lettersRequest(token, size)) }()
		}
		synctest.Wait()
		runtime.GC()
		if grown := int64(heap() - before); grown > waiters*size/4 {
			t.Errorf("%d waiters with %d bytes each hold %d bytes", waiters, size, grown)
		}
		for range waiters {
			if a := <-answers; a.StatusCode != 201 || a.Header.Get("Idempotent-Replayed") != "true" {
				t.Fatalf("%d %s, want the replay", a.StatusCode, a.body)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

// TestWaiterTakesOver: the first request frees the key. A repeat that kept its
// body runs in its place; one whose body was too large to keep is told to come
// again, and leaves the key free. Both also where another process had the
// first.
func TestWaiterTakesOver(t *testing.T) {
	const kept = 16 << 10
	for _, elsewhere := range []bool{false, true} {
		for _, size := range []int{0, kept, kept + 1, 1 << 20} {
			t.Run(fmt.Sprintf("%d bytes, elsewhere %t", size, elsewhere), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ring := newKeyring()
					token := ring.issue(t)
					var runs atomic.Int64
					handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						n := runs.Add(1)
						if read, err := io.Copy(io.Discard, r.Body); int(read) != size || err != nil {
							t.Errorf("run %d read %d bytes, %v", n, read, err)
						}
						if n == 1 {
							time.Sleep(time.Second)
							middleware.FreeKey(r.Context())
							return
						}
						w.WriteHeader(201)
					})
					store := idem.NewMemory(idem.MemoryOptions{})
					first := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store)}}, handler)
					second := first
					if elsewhere {
						second = keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store)}}, handler)
					}
					go serve(first, lettersRequest(token, size))
					synctest.Wait()
					answers := make(chan answer, 3)
					for range cap(answers) {
						go func() { answers <- serve(second, lettersRequest(token, size)) }()
						synctest.Wait()
					}
					statuses := map[int]int{}
					for range cap(answers) {
						a := <-answers
						statuses[a.StatusCode]++
						if a.StatusCode == 409 && (a.problem(t).Code != "idempotency_in_progress" || a.Header.Get("Retry-After") != "1") {
							t.Errorf("%v %s", a.Header, a.body)
						}
					}
					if size <= kept && (statuses[201] != 3 || runs.Load() != 2) || size > kept && (statuses[409] != 3 || runs.Load() != 1) {
						t.Errorf("statuses %v with %d runs", statuses, runs.Load())
					}
					if a := serve(second, lettersRequest(token, size)); a.StatusCode != 201 || runs.Load() != 2 {
						t.Errorf("afterwards: %d with %d runs, want 201 and 2 in all", a.StatusCode, runs.Load())
					}
				})
			})
		}
	}
}

// TestWaitersLeaveRoomForBodies: the room of MaxBodies is that of the first
// request and of one more. A hundred large repeats that wait take none of it.
func TestWaitersLeaveRoomForBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters, size = 100, 1 << 20
		ring := newKeyring()
		token := ring.issue(t)
		var runs atomic.Int64
		h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies(), MaxBodies: 4 * (size + 1)}}, numbered(&runs, func(r *http.Request) {
			time.Sleep(time.Second)
		}))
		answers := make(chan answer, waiters+1)
		for range cap(answers) {
			go func() { answers <- serve(h, lettersRequest(token, size)) }()
			synctest.Wait() // it runs, or waits
		}
		for range cap(answers) {
			if a := <-answers; a.StatusCode != 201 {
				t.Fatalf("%d %s, want 201", a.StatusCode, a.body)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
