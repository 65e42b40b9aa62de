package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

var _ = fmt.Sprint

var _ = errors.New

var _ = idem.NewMemory

// C
type slowStore struct {
	keystore.Store
	d time.Duration
}

func (s slowStore) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	time.Sleep(s.d)
	return s.Store.Lookup(ctx, d)
}

func buffered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &buffering{ResponseWriter: w}
		next.ServeHTTP(b, r)
		b.ResponseWriter.WriteHeader(max(b.status, 200))
		_, _ = w.Write(b.buf.Bytes())
	})
}

// F
type sub struct {
	http.ResponseWriter
	h      http.Header
	status int
	body   bytes.Buffer
}

func (s *sub) Header() http.Header { return s.h }

func (s *sub) WriteHeader(c int) { s.status = c }

func (s *sub) Write(p []byte) (int, error) { return s.body.Write(p) }

func (s *sub) Unwrap() http.ResponseWriter { return s.ResponseWriter } // for deadlines

func callerOf(t *testing.T, ring *keyring) (caller middleware.Principal) {
	g := middleware.New(ring.keys, middleware.Options{})
	serve(g.Authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { caller, _ = middleware.PrincipalFrom(r.Context()) })), request("GET", "/", ring.issue(t), ""))
	return caller
}

type takeFunc func(context.Context, []ratelimit.Charge) (ratelimit.Decision, error)

func (f takeFunc) Take(ctx context.Context, c []ratelimit.Charge) (ratelimit.Decision, error) {
	return f(ctx, c)
}

func subBatch(t *testing.T, parallel bool) {
	ring := newKeyring()
	one, _ := ring.grant(t, grantOf("org_one"))
	two, _ := ring.grant(t, grantOf("org_two"))
	var mu sync.Mutex
	var got []middleware.Event
	hooks := quiet()
	hooks.Observe = func(ctx context.Context, e middleware.Event) { mu.Lock(); got = append(got, e); mu.Unlock() }
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: hooks})
	api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), sayOK)
	api.HandleFunc("POST /api/v1/batch", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		var wg sync.WaitGroup
		part := func(token string) {
			s := &sub{ResponseWriter: w, h: http.Header{}} // an answer of its own; Unwrap for deadlines
			api.ServeHTTP(s, request("GET", "/api/v1/x", token, "").WithContext(r.Context()))
			if len(s.h["Svc-Request-Id"]) != 1 {
				t.Errorf("the inner response %d has %d request ids", s.status, len(s.h["Svc-Request-Id"]))
			}
		}
		for _, token := range []string{two, "svc_live_bad"} {
			if parallel {
				wg.Go(func() { part(token) })
			} else {
				part(token)
			}
		}
		wg.Wait()
		w.WriteHeader(201)
	})
	serve(api, request("POST", "/api/v1/batch", one, "{}"))
	if parallel {
		return
	}
	if len(got) != 3 || got[len(got)-1].Principal.Organization() != "org_one" {
		t.Error("want three Events, the last of org_one")
	}
}

type brokenBody struct{ n int }

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.n > 2000 {
		return 0, errors.New("reset")
	}
	b.n += len(p)
	return len(p), nil
}

// D
type buffering struct {
	http.ResponseWriter
	status int
	buf    bytes.Buffer
}

func (b *buffering) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *buffering) WriteHeader(s int) {
	if b.status == 0 {
		b.status = s
	}
}

func (b *buffering) Write(p []byte) (int, error) {
	b.WriteHeader(200)
	return b.buf.Write(p)
}

func grantOf(org string) keystore.Grant {
	return keystore.Grant{Organization: org, Environment: keystore.Production}
}

// B
func TestUploadsBehindAnOuterMux(t *testing.T) {
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	file, _ := parts.CreateFormFile("file", "a.txt")
	_, _ = file.Write(make([]byte, 10_000))
	_ = parts.Close()
	ring := newKeyring()
	token := ring.issue(t)
	for _, key := range []string{"", "a"} {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
		api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(1); err != nil {
				t.Error(err)
			}
		})
		mux := http.NewServeMux()
		mux.Handle("/api/v1/", api)
		srv := httptest.NewServer(mux)
		r, _ := http.NewRequest("POST", srv.URL+"/api/v1/x", bytes.NewReader(form.Bytes()))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", parts.FormDataContentType())
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		do(t, srv.Client(), r)
		srv.Close()
		if files, _ := os.ReadDir(dir); len(files) != 0 {
			t.Errorf("key %q: %d files are left on the disk", key, len(files))
		}
	}
}

func TestPanicBehindABufferingWriter(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	half := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half of the answer")
		panic("boom")
	})
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet()})
	api.Handle("GET /api/v1/x", middleware.AnyKey(), half)
	g := keyless()
	for name, h := range map[string]http.Handler{
		"RequestID(buffer(API))":     g.RequestID(buffered(api)),
		"RequestID(buffer(Recover))": g.RequestID(buffered(g.Recover(half))),
		"buffer(API)":                buffered(api),
	} {
		srv := httptest.NewServer(h)
		r, _ := http.NewRequest("GET", srv.URL+"/api/v1/x", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := srv.Client().Do(r)
		if err == nil {
			body, err := io.ReadAll(res.Body)
			t.Logf("%s: %d %q %v", name, res.StatusCode, body, err)
			if res.StatusCode == 200 && err == nil {
				t.Errorf("%s: half a response looks whole", name)
			}
		} else {
			t.Logf("%s: aborted: %v", name, err)
		}
		srv.Close()
	}
}

func TestAnotherResponseOfOneConnection(t *testing.T) { subBatch(t, false) }

func TestParallelResponsesOfOneConnection(t *testing.T) { subBatch(t, true) }

// M
func TestSharedRequest(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet()})
	h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate)(http.HandlerFunc(sayOK))
	r := request("GET", "/", token, "")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { serve(h, r) })
	}
	wg.Wait()
}

// N
// TestFactsDoNotChange fails under the race detector, which the gate uses.
func TestFactsDoNotChange(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var wg sync.WaitGroup
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{Store: ratelimit.NewMemory(),
		Plan: func(ctx context.Context, p middleware.Principal) (*ratelimit.Policy, error) {
			wg.Go(func() { // refreshes a cache in the background, through a client with an access log
				for range 100 {
					middleware.WithEvent(ctx)
				}
			})
			return ratelimit.Unlimited, nil
		}}})
	api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), sayOK)
	for range 20 {
		serve(api, request("GET", "/api/v1/x", token, ""))
	}
	wg.Wait()
}

func TestThrottleDoesNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		live := ring.issue(t)
		store := slowStore{ring.memory, 30 * time.Millisecond}
		api := testAPI(store, middleware.Options{Failures: ratelimit.MustParse("1-S"), Hooks: quiet()})
		bad := wellFormed()
		statuses := map[int]int{}
		var mu sync.Mutex
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // one wrong key, a request each 20 ms: they overlap
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					wg.Go(func() {
						a := serve(api, request("GET", "/api/v1/any", bad, ""))
						mu.Lock()
						statuses[a.StatusCode]++
						mu.Unlock()
					})
				}
			}
		})
		time.Sleep(time.Second)
		var answered atomic.Int64
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for range 100 {
			wg.Go(func() {
				serve(api, request("GET", "/api/v1/any", live, "").WithContext(ctx))
				answered.Add(1)
			})
		}
		time.Sleep(10 * time.Minute)
		close(stop)
		mu.Lock()
		t.Logf("after 10 minutes: %d of 100 live requests answered; wrong key: %v with a limit of 1 a second", answered.Load(), statuses)
		if answered.Load() < 100 {
			t.Fail()
		}
		mu.Unlock()
		wg.Wait()
	})
}

func TestHalfCloseDuringTake(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	store := takeFunc(func(ctx context.Context, c []ratelimit.Charge) (d ratelimit.Decision, err error) {
		select { // a store over the network, that heeds its context
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(300 * time.Millisecond):
			d.Allowed = true
			return d, nil
		}
	})
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.PerOrganization(store, ratelimit.MustParse("100-S"))})
	api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), sayOK)
	srv := httptest.NewServer(api)
	defer srv.Close()
	c, _ := net.Dial("tcp", srv.Listener.Addr().String())
	fmt.Fprintf(c, "GET /api/v1/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n", token)
	time.AfterFunc(50*time.Millisecond, func() { _ = c.(*net.TCPConn).CloseWrite() })
	b, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(b), "HTTP/1.1 200") {
		t.Errorf("a half-closed client got %q", b)
	}
}

func TestOptionsBesideAnAuthenticator(t *testing.T) {
	o := middleware.Options{Authenticator: authenticatorFunc(func(*http.Request) (middleware.Principal, error) {
		return middleware.Principal{}, middleware.ErrNoCredentials
	})}
	o.Keys.RejectBrowsers, o.Keys.Environment = true, keystore.Sandbox
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "RejectBrowsers") {
		t.Errorf("got %v, want an error: these options would do nothing", err)
	}
}

func TestRoutePoliciesOfOneName(t *testing.T) {
	ring := newKeyring()
	api := middleware.NewAPI(ring.keys, middleware.Options{RateLimit: middleware.RateLimitOptions{Store: ratelimit.NewMemory()}})
	api.HandleWith("GET /api/v1/a", middleware.AnyKey(), middleware.RouteOptions{Limit: policy("reports", "100-H", 0)}, http.HandlerFunc(sayOK))
	api.HandleWith("GET /api/v1/b", middleware.AnyKey(), middleware.RouteOptions{Limit: policy("reports", "100-H", 0)}, http.HandlerFunc(sayOK))
	mustPanic(t, "another limit under the same name", func() {
		api.HandleWith("GET /api/v1/c", middleware.AnyKey(), middleware.RouteOptions{Limit: policy("reports", "4-H", 0)}, http.HandlerFunc(sayOK))
	})
}
