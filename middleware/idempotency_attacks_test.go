package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// E
func TestFreeKeyBehindTheSameGuard(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	mux := http.NewServeMux()
	h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey)(mux)
	created := 0
	mux.Handle("POST /batch", g.Idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		created++
		// the caller is known already: the router alone gets the inner request
		sub := request("POST", "/inner", "", "{}", "Idempotency-Key: inner").WithContext(r.Context())
		a := serve(mux, sub)
		w.WriteHeader(201)
		fmt.Fprintf(w, "inner %d", a.StatusCode)
	})))
	inner := 0
	mux.Handle("POST /inner", g.Idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner++
		middleware.FreeKey(r.Context())
		w.WriteHeader(409)
	})))
	for range 3 {
		a := serve(h, request("POST", "/batch", token, "{}", "Idempotency-Key: outer"))
		t.Log(a.StatusCode, a.body)
	}
	if created != 1 {
		t.Errorf("the outer create ran %d times under one key (inner %d)", created, inner)
	}
}

func TestKeyOfANestedRequestBehindTheSameGuard(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	mux := http.NewServeMux()
	h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey)(mux)
	inner := 0
	mux.Handle("POST /batch", g.Idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := serve(mux, request("POST", "/inner", "", "{}", "Idempotency-Key: inner").WithContext(r.Context()))
		w.WriteHeader(a.StatusCode)
	})))
	mux.Handle("POST /inner", g.Idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner++; w.WriteHeader(201) })))
	for i := range 3 {
		serve(h, request("POST", "/batch", token, "{}", fmt.Sprintf("Idempotency-Key: outer%d", i)))
	}
	serve(h, request("POST", "/inner", token, "{}", "Idempotency-Key: inner"))
	if inner != 1 {
		t.Errorf("the create of key \"inner\" ran %d times", inner)
	}
}

func TestRefusalOfAnotherResponse(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	limit := middleware.New(nil, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{Store: ratelimit.NewMemory(), Client: policy("client", "1-H", 0)}}).RateLimit(http.HandlerFunc(sayOK))
	created := 0
	h := keyed(ring, middleware.Options{Hooks: quiet()}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		created++
		for range 2 {
			s := &sub{ResponseWriter: w, h: http.Header{}}
			limit.ServeHTTP(s, request("GET", "/", "", "").WithContext(r.Context()))
		}
		w.WriteHeader(201)
	}))
	for range 3 {
		a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
		t.Log(a.StatusCode, a.Header)
	}
	if created != 1 {
		t.Errorf("created %d times under one key", created)
	}
}

// P
func TestAPIInsideIdempotent(t *testing.T) {
	ring := newKeyring()
	full, none := ring.issue(t, scope.TasksWrite), ring.issue(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet()})
	api.HandleFunc("POST /api/v1/x", middleware.Require(scope.TasksWrite), func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "secret of tasks")
	})
	h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey, g.Idempotent)(api)
	for i, token := range []string{none, full, none} {
		key := "a"
		if i == 0 {
			key = "b"
		}
		a := serve(h, request("POST", "/api/v1/x", token, "{}", "Idempotency-Key: "+key))
		t.Log(a.StatusCode, a.body)
		if token == none && a.StatusCode == 201 {
			t.Error("a key without the scope got the stored reply")
		}
	}
}

func TestFreeOnAndPanics(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	created := 0
	h := keyed(ring, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{FreeOn: []int{500}}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		created++
		panic("x")
	}))
	for range 3 {
		serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
	}
	if created != 1 {
		t.Errorf("created %d times", created)
	}
}

// H
func TestHugeTimeout(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	o := middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies(), Timeout: math.MaxInt64}}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	runs := 0
	api := middleware.NewAPI(ring.keys, o)
	api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		runs++
		d, _ := r.Context().Deadline()
		t.Log("deadline", d, r.Context().Err())
		w.WriteHeader(201)
	})
	srv := httptest.NewUnstartedServer(api)
	srv.Config.WriteTimeout = 10 * time.Second
	srv.Start()
	defer srv.Close()
	r, _ := http.NewRequest("POST", srv.URL+"/api/v1/x", strings.NewReader("{}"))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Idempotency-Key", "a")
	res, err := srv.Client().Do(r)
	t.Log(res, err, "runs", runs)
	if err != nil {
		t.Error("the client never gets an answer")
	}
}

// I
func TestMaxBodiesOfOneBody(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, n := range []int{8191, 8192} {
		h := keyed(ring, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{MaxBody: 8192, MaxBodies: 16384}}, http.HandlerFunc(sayOK))
		a := serve(h, request("POST", "/", token, strings.Repeat("x", n), fmt.Sprintf("Idempotency-Key: a%d", n)))
		r := request("POST", "/", token, strings.Repeat("x", n), fmt.Sprintf("Idempotency-Key: b%d", n))
		r.ContentLength = -1
		b := serve(h, r)
		t.Log(n, a.StatusCode, b.StatusCode)
		if a.StatusCode == 503 || b.StatusCode == 503 {
			t.Errorf("%d bytes, with MaxBody 8192 and MaxBodies 16384: 503 for ever", n)
		}
	}
}

// J
func TestLateResponseAfterFreeKey(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	fail := true
	handle := func(w http.ResponseWriter, r *http.Request) error {
		if fail {
			middleware.FreeKey(r.Context())
			return errors.New("nothing happened")
		}
		w.WriteHeader(201)
		return nil
	}
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey)(lateAdapter(g.Idempotent, handle))
	a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
	fail = false
	b := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
	t.Log(a.StatusCode, a.body, b.StatusCode, b.body)
	if b.StatusCode != 201 {
		t.Error("the key was freed, and yet the retry is refused for ever")
	}
}

func TestFalseReplyEndsWithRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		token := ring.issue(t)
		handle := func(w http.ResponseWriter, r *http.Request) error { return fmt.Errorf("422") }
		g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
		h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey)(lateAdapter(g.Idempotent, handle))
		a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
		time.Sleep(48 * time.Hour)
		b := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
		c := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: b"))
		t.Log(a.StatusCode, b.StatusCode, c.StatusCode)
		if b.StatusCode == 409 {
			t.Error("409 after 48 h, where the retention is 24 h")
		}
	})
}

// L
func TestRewrittenQuery(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	h := keyed(ring, middleware.Options{Hooks: quiet()}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "created in "+r.URL.Query().Get("project"))
	}))
	rewrite := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r2 := r.Clone(r.Context())
		r2.URL.RawQuery = "project=" + r.Header.Get("X-Project")
		h.ServeHTTP(w, r2)
	})
	for _, p := range []string{"one", "two"} {
		a := serve(rewrite, request("POST", "/tasks", token, "{}", "Idempotency-Key: a", "X-Project: "+p))
		t.Log(p, a.StatusCode, a.body, a.Header.Get("Idempotent-Replayed"))
		if a.StatusCode == 200 && a.body != "created in "+p {
			t.Error("the reply of another request")
		}
	}
}

func TestBodiesAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		token := ring.issue(t)
		block := make(chan struct{})
		h := keyed(ring, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{
			Runner: replies(idem.Options{Wait: 300 * time.Millisecond}), MaxBody: 40_000, MaxBodies: 167_000,
			Partition: func(r *http.Request) string {
				if r.Header.Get("X-Partition") != "" {
					panic("partition")
				}
				return ""
			}}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-Do") {
			case "panic":
				panic("x")
			case "abort":
				panic(http.ErrAbortHandler)
			case "free":
				middleware.FreeKey(r.Context())
			case "block":
				<-block
			}
			w.WriteHeader(201)
		}))
		for i := range 50 {
			for _, do := range []string{"", "panic", "abort", "free"} {
				func() {
					defer func() { _ = recover() }()
					serve(h, request("POST", "/", token, strings.Repeat("x", 30_000), fmt.Sprintf("Idempotency-Key: %s%d", do, i), "X-Do: "+do))
				}()
			}
			serve(h, request("POST", "/", token, strings.Repeat("y", 30_000), fmt.Sprintf("Idempotency-Key: %d", i)))  // 422
			serve(h, request("POST", "/", token, strings.Repeat("y", 50_000), fmt.Sprintf("Idempotency-Key: z%d", i))) // 413
			r := request("POST", "/", token, "", fmt.Sprintf("Idempotency-Key: c%d", i))
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("y", 50_000))), -1 // 413, chunked
			serve(h, r)
			r = request("POST", "/", token, "", fmt.Sprintf("Idempotency-Key: b%d", i))
			r.Body, r.ContentLength = io.NopCloser(&brokenBody{}), -1 // 400
			serve(h, r)
			serve(h, request("POST", "/", token, strings.Repeat("x", 30_000), fmt.Sprintf("Idempotency-Key: p%d", i), "X-Partition: x"))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			serve(h, request("POST", "/", token, strings.Repeat("x", 30_000), fmt.Sprintf("Idempotency-Key: l%d", i)).WithContext(ctx))
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			serve(h, request("POST", "/", token, strings.Repeat("x", 30_000), "Idempotency-Key: blocks", "X-Do: block"))
		})
		synctest.Wait() // it runs
		for range 10 {
			wg.Go(func() {
				serve(h, request("POST", "/", token, strings.Repeat("x", 30_000), "Idempotency-Key: blocks", "X-Do: block"))
			})
		}
		time.Sleep(time.Second) // the repeats have given up
		close(block)
		wg.Wait()
		block = make(chan struct{})
		var mu sync.Mutex
		m := map[int]int{}
		for i := range 3 {
			wg.Go(func() {
				a := serve(h, request("POST", "/", token, strings.Repeat("x", 30_000), fmt.Sprintf("Idempotency-Key: end%d", i), "X-Do: block"))
				mu.Lock()
				m[a.StatusCode]++
				mu.Unlock()
			})
		}
		synctest.Wait()
		close(block)
		wg.Wait()
		t.Log(m)
		if m[201] != 3 {
			t.Errorf("the budget leaked: %v", m)
		}
	})
}
