package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
)

func TestRequestIDsArePipelinedInOrder(t *testing.T) {
	srv := start(t, stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.URL.Path+" "+middleware.RequestIDFrom(r.Context()))
	})))
	c := dial(t, srv)
	const n = 10
	for i := range n {
		c.send(fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i))
	}
	seen := map[string]bool{}
	for i := range n {
		res := c.next("GET")
		id := wantID(t, res.Response)
		if want := fmt.Sprintf("/%d %s", i, id); res.body != want || seen[id] {
			t.Errorf("response %d: got %q, want %q; seen before: %v", i, res.body, want, seen[id])
		}
		seen[id] = true
	}
}

func TestRequestIDsAreDistinct(t *testing.T) {
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		const n = 200
		var arrived atomic.Int64
		all := make(chan struct{})
		release := sync.OnceFunc(func() { close(all) })
		srv := serve(stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if arrived.Add(1) == n {
				release()
			}
			<-all // are in progress at once, unless a request failed
			io.WriteString(w, middleware.RequestIDFrom(r.Context()))
		})))
		var mu sync.Mutex
		ids := map[string]int{}
		var wg sync.WaitGroup
		for range n {
			r := get(t, srv, "/", "")
			wg.Go(func() {
				res, err := srv.Client().Do(r)
				if err != nil {
					t.Error(err)
					release()
					return
				}
				defer res.Body.Close()
				body, _ := io.ReadAll(res.Body)
				if id := wantID(t, res); id != string(body) {
					t.Errorf("got id %q, in the context %q", id, body)
				}
				mu.Lock()
				defer mu.Unlock()
				ids[string(body)]++
			})
		}
		wg.Wait()
		if len(ids) != n {
			t.Errorf("got %d ids for %d requests", len(ids), n)
		}
	})
}

func TestRequestIDWhileShuttingDown(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	srv := start(t, stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(entered)
			<-release
		}
	})))
	idle, busy := dial(t, srv), dial(t, srv)
	idle.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	wantID(t, idle.next("GET").Response)
	busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered
	shutting := make(chan struct{})
	srv.Config.RegisterOnShutdown(func() { close(shutting) })
	done := make(chan error, 1)
	go func() { done <- srv.Config.Shutdown(context.Background()) }()
	<-shutting
	close(release)
	res := busy.next("GET")
	wantID(t, res.Response)
	if !res.Close {
		t.Errorf("got no Connection: close: %v", res.Header)
	}
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if got := idle.rest(); got != "" {
		t.Errorf("the idle connection got %q", got)
	}
}

// TestRequestIDAllOverUnderLoad mixes what the other tests do one by one.
func TestRequestIDAllOverUnderLoad(t *testing.T) {
	log := newLogged()
	ring := newKeyring()
	token := ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: log.hooks()})
	handlers := map[string]http.HandlerFunc{
		"ok":    sayOK,
		"json":  func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(r.Header) },
		"clear": func(w http.ResponseWriter, r *http.Request) { clear(w.Header()) },
		"flush": func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); sayOK(w, r) },
		"panic": func(w http.ResponseWriter, r *http.Request) { panic("now") },
		"hints": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(103); w.WriteHeader(204) },
		"problem": func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 418})
		},
	}
	paths := []string{"/api/v1/none", "/api/v1/ok/", "/elsewhere"}
	for name, h := range handlers {
		api.HandleFunc("GET /api/v1/"+name, middleware.AnyKey(), h)
		paths = append(paths, "/api/v1/"+name)
	}
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		srv := serve(api)
		srv.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 64
		var mu sync.Mutex
		ids := map[string]bool{}
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for j, path := range paths {
					key := token
					if (i+j)%5 == 0 {
						key = ""
					}
					r := get(t, srv, path, key)
					res, err := srv.Client().Do(r)
					if err != nil {
						t.Errorf("%s: %v", path, err)
						continue
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
					id := wantID(t, res)
					mu.Lock()
					if ids[id] {
						t.Errorf("%s: id %q came twice", path, id)
					}
					ids[id] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	})
}
