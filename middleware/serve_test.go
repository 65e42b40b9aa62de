package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
)

// served is a Serve of a handler that takes as long as the query says.
type served struct {
	pipes
	stop  context.CancelFunc
	srv   *http.Server
	ended chan error
	log   *logged
}

type hostsOwn struct{} // the key of a value in the context of Serve

func serveInBubble(t *testing.T, upkeep ...func(context.Context) error) served {
	ctx, stop := context.WithCancel(context.WithValue(t.Context(), hostsOwn{}, "of the host"))
	s := served{newPipes(), stop, &http.Server{IdleTimeout: time.Hour, ReadTimeout: -1}, make(chan error, 1), newLogged()}
	guard := middleware.New(issuing.NewMemory(), middleware.Options{Hooks: s.log.hooks(), RequestIDHeader: "Acme-Id"})
	s.srv.Handler = guard.RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.URL.RawQuery)
		time.Sleep(d)
		io.WriteString(w, "whole")
	}))
	go func() { s.ended <- guard.Serve(ctx, s.srv, s.pipes, upkeep...) }()
	synctest.Wait()
	return s
}

// get sends a request and returns a channel with the response as text.
func (s served) get(path string) <-chan string {
	got := make(chan string, 1)
	client := &http.Client{Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true}}
	go func() {
		res, err := client.Get("http://api.test" + path)
		if err != nil {
			got <- err.Error()
			return
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		got <- res.Status + " " + res.Header.Get("Acme-Id") + " " + string(body)
	}()
	synctest.Wait()
	return got
}

func TestServeEndsAfterTheLastRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var tended time.Duration
		s := serveInBubble(t, func(ctx context.Context) error {
			<-ctx.Done()
			if tended = time.Since(began); ctx.Value(hostsOwn{}) == nil {
				t.Error("upkeep has not the values of the context of Serve")
			}
			return fmt.Errorf("it ended: %w", ctx.Err())
		})
		answer := s.get("/?20s")
		s.stop()
		if err := <-s.ended; err != nil || s.log.String() != "" {
			t.Errorf("got the error %v and the log %s", err, s.log)
		}
		if got := <-answer; !strings.HasPrefix(got, "200 OK ") || !strings.HasSuffix(got, " whole") || len(got) < 30 {
			t.Errorf("the request in progress got %q", got)
		}
		if tended < 20*time.Second || tended > 30*time.Second {
			t.Errorf("upkeep ended after %v, want after the request", tended)
		}
	})
}

func TestServeGivesUpOnAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveInBubble(t)
		answer := s.get("/?1h")
		began := time.Now()
		s.stop()
		if err := <-s.ended; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 40*time.Second {
			t.Errorf("got %v after %v, want a deadline after the 30 s of a create and 10 s", err, time.Since(began))
		}
		if got := <-answer; strings.HasPrefix(got, "200") || time.Since(began) != 40*time.Second {
			t.Errorf("a request that never ends got %q after %v, want a closed connection then", got, time.Since(began))
		}
		time.Sleep(time.Hour) // the handler ends
	})
}

// A stream of a long Timeout, of the API or of its route, is not cut off, and
// Serve waits for its handler.
func TestServeWaitsForALongTimeout(t *testing.T) {
	for name, of := range map[string]struct{ api, route time.Duration }{
		"without end": {math.MaxInt64, 0}, "of the route": {0, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			ring := newKeyring()
			api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Timeout: of.api}})
			ctx, stop := context.WithCancel(t.Context())
			api.HandleFunc("POST /api/v1/logs", middleware.AnyCaller(), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for range 2 {
					_, _ = io.WriteString(w, "data: a\n\n")
					_ = http.NewResponseController(w).Flush()
					stop()
					time.Sleep(time.Minute)
				}
			}, middleware.RouteOptions{Idempotency: keyedOptions{Timeout: of.route}})
			p, ended := newPipes(), make(chan error, 1)
			go func() { ended <- api.Serve(ctx, new(http.Server), p) }()
			r := newRequest(t, "POST", "http://api.test/api/v1/logs", ring.issue(t), strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", "a")
			client := &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
			if a := do(t, client, r); a.body != "data: a\n\ndata: a\n\n" {
				t.Errorf("%s: got %d %q, want both events", name, a.StatusCode, a.body)
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestServeWaitsUntilRepliesAreSaved(t *testing.T) {
	for mended, want := range map[time.Duration]error{5 * time.Second: nil, time.Hour: context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			ring, unsaved := newKeyring(), idemtest.NewFaulty(&idem.Memory{})
			unsaved.Always(idemtest.Settle, idemtest.Fail)
			runner := idem.NewRunner(unsaved, idem.Options{})
			api := middleware.NewAPI(ring.memory, with(keyedOptions{Runner: runner}))
			api.HandleFunc("POST /api/v1/tasks", middleware.AnyCaller(), func(http.ResponseWriter, *http.Request) {})
			r := request("POST", "/api/v1/tasks", ring.issue(t), "", "Idempotency-Key: k")
			if res := serve(api, r); res.StatusCode != http.StatusOK {
				t.Fatalf("got %d %s", res.StatusCode, res.body)
			}
			time.AfterFunc(mended, func() { unsaved.Always(idemtest.Settle, idemtest.None) })
			ctx, stop := context.WithCancel(t.Context())
			stop()
			err := api.Serve(ctx, new(http.Server), newPipes())
			if !errors.Is(err, want) || (runner.Stats().Unsaved == 0) != (want == nil) {
				t.Errorf("a reply that can be saved after %v: got %v and %+v, want %v", mended, err, runner.Stats(), want)
			}
		})
	}
}

// slowListener takes a second to be closed.
type slowListener struct {
	pipes
	open *bool
}

func (l slowListener) Close() error {
	time.Sleep(time.Second)
	*l.open = false
	return l.pipes.Close()
}

// The address is free when Serve returns, also where its context had ended
// before.
func TestServeClosesItsListener(t *testing.T) {
	for range 20 { // the server may have begun to serve or not
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			stop()
			open, guard := true, middleware.New(issuing.NewMemory(), middleware.Options{})
			err := guard.Serve(ctx, &http.Server{Handler: http.NotFoundHandler()}, slowListener{newPipes(), &open})
			if err != nil || open {
				t.Errorf("Serve returned %v; the listener is open: %t", err, open)
			}
		})
	}
}

type noListener struct{ pipes }

func (noListener) Accept() (net.Conn, error) { return nil, errDown }
func (noListener) Close() error              { return nil }

func TestServeErrors(t *testing.T) {
	early := errors.New("cannot write")
	synctest.Test(t, func(t *testing.T) {
		given := fmt.Errorf("its own: %w", context.Canceled)
		s := serveInBubble(t, func(context.Context) error { return early }, func(context.Context) error { return given })
		if got := <-s.get("/"); !strings.HasPrefix(got, "200") {
			t.Errorf("after an upkeep that failed got %q", got)
		}
		if got := s.log.String(); strings.Count(got, "level=ERROR") != 2 || !strings.Contains(got, early.Error()) {
			t.Errorf("got the log %s, want both errors, before the end", got)
		}
		malformed, err := s.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(malformed, "GET\r\n\r\n")
		if got, _ := io.ReadAll(malformed); !strings.Contains(string(got), "Acme-Id: ") {
			t.Errorf("net/http's own answer: got %q, want a request id", got)
		}
		s.stop()
		if err := <-s.ended; !errors.Is(err, early) || !errors.Is(err, given) {
			t.Errorf("got %v, want those of upkeep", err)
		}
		guard := middleware.New(issuing.NewMemory(), middleware.Options{})
		srv := &http.Server{Handler: http.NotFoundHandler()}
		err = guard.Serve(t.Context(), srv, noListener{}, func(ctx context.Context) error {
			<-ctx.Done()
			return early
		})
		if !errors.Is(err, errDown) || !errors.Is(err, early) {
			t.Errorf("a listener that broke: got %v, want its error and that of upkeep", err)
		}
	})
	wantPanic(t, "no Handler", func() {
		middleware.New(issuing.NewMemory(), middleware.Options{}).Serve(t.Context(), new(http.Server), pipes{})
	})
}

// What the host has set stays, be it a time or none.
func TestServeSetsTimeouts(t *testing.T) {
	type timeouts [4]time.Duration // for the header, the request, the response, an idle connection
	ctx, stop := context.WithCancel(t.Context())
	stop()
	own := http.NotFoundHandler()
	for _, row := range []struct {
		handler   http.Handler
		set, want timeouts
	}{
		{nil, timeouts{}, timeouts{5 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute}},
		{own, timeouts{1, 2, 3, 4}, timeouts{1, 2, 3, 4}},
		{own, timeouts{-1, -1, -1, -1}, timeouts{-1, -1, -1, -1}},
	} {
		api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{})
		srv := &http.Server{Handler: row.handler, ReadHeaderTimeout: row.set[0], ReadTimeout: row.set[1],
			WriteTimeout: row.set[2], IdleTimeout: row.set[3]}
		err := api.Serve(ctx, srv, newPipes())
		got := timeouts{srv.ReadHeaderTimeout, srv.ReadTimeout, srv.WriteTimeout, srv.IdleTimeout}
		if err != nil || got != row.want || (srv.Handler == http.Handler(api)) != (row.handler == nil) {
			t.Errorf("of %v: got %v, the timeouts %v and the handler %T, want %v and the API's for none", row.set, err,
				got, srv.Handler, row.want)
		}
	}
}
