package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// TestOutcomes: however a handler ends, it runs once, and repeats get the same
// response or a refusal that says why not.
func TestOutcomes(t *testing.T) {
	long := strings.Repeat("0123456789", 60)
	begin := func(w http.ResponseWriter) {
		w.Header().Set("Location", "/a")
		w.WriteHeader(201)
		fmt.Fprint(w, "half")
	}
	rows := []struct {
		name   string
		handle http.HandlerFunc
		first  outcome
		repeat outcome
		logs   string
	}{
		{"panic", func(http.ResponseWriter, *http.Request) { panic("boom") }, outcome{500, "internal", ""}, outcome{500, "internal", ""}, "boom"},
		{"panic half-way", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			panic("boom")
		}, outcome{500, "internal", ""}, outcome{500, "internal", ""}, "boom"},
		{"panic after an interim response", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</a>; rel=preload")
			w.WriteHeader(103)
			panic("boom")
		}, outcome{500, "internal", ""}, outcome{500, "internal", ""}, "boom"},
		{"panic after FreeKey", func(w http.ResponseWriter, r *http.Request) {
			middleware.FreeKey(r.Context())
			panic("boom")
		}, outcome{500, "internal", ""}, outcome{500, "internal", ""}, "boom"},
		{"invalid status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(42) }, outcome{500, "internal", ""}, outcome{500, "internal", ""}, "invalid WriteHeader code 42"},
		{"abort", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			panic(http.ErrAbortHandler)
		}, outcome{}, outcome{409, "idempotency_outcome_unknown", ""}, ""},
		{"goexit", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			runtime.Goexit()
		}, outcome{}, outcome{409, "idempotency_outcome_unknown", ""}, ""},
		{"too large", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			_, _ = io.WriteString(w, long)
			_, _ = w.Write([]byte(long))
		}, outcome{201, "", "half" + long + long}, outcome{409, "idempotency_response_not_retained", ""}, "MaxResponse"},
		{"as large as may be", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			_, _ = io.WriteString(w, long[:512])
		}, outcome{201, "", long[:512]}, outcome{201, "", long[:512]}, ""},
		{"flush", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, " and half")
		}, outcome{201, "", "half and half"}, outcome{201, "", "half and half"}, ""},
		{"flush of a stream", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "Application/X-NDJSON; charset=utf-8")
			begin(w)
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, " and half")
		}, outcome{201, "", "half and half"}, outcome{201, "", "half and half"}, ""},
		{"flush of a stream by an option", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/x-log")
			begin(w)
			w.(http.Flusher).Flush()
		}, outcome{201, "", "half"}, outcome{201, "", "half"}, ""},
		{"flush by the controller, before anything else", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/a")
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
			fmt.Fprint(w, "half")
		}, outcome{200, "", "half"}, outcome{200, "", "half"}, ""},
		{"panic after flush", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			w.(http.Flusher).Flush()
			panic("boom")
		}, outcome{500, "internal", ""}, outcome{500, "internal", ""}, "boom"},
		{"panic after flush of a stream", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			begin(w)
			w.(http.Flusher).Flush()
			panic("boom")
		}, outcome{}, outcome{409, "idempotency_outcome_unknown", ""}, "boom"},
		{"panic after too much", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			_, _ = io.WriteString(w, long)
			panic("boom")
		}, outcome{}, outcome{409, "idempotency_outcome_unknown", ""}, "boom"},
		{"http.TimeoutHandler inside, in time", http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { begin(w) }), time.Minute, "late").ServeHTTP,
			outcome{201, "", "half"}, outcome{201, "", "half"}, ""},
		{"http.TimeoutHandler inside, late", http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), time.Millisecond, "late").ServeHTTP,
			outcome{503, "", "late"}, outcome{503, "", "late"}, ""},
		{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) }, outcome{500, "", "broken\n"}, outcome{500, "", "broken\n"}, ""},
		{"a problem of its own", func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "task_cancelled"})
		}, outcome{409, "task_cancelled", ""}, outcome{409, "task_cancelled", ""}, ""},
	}
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			for _, row := range rows {
				t.Run(row.name, func(t *testing.T) {
					var runs atomic.Int64
					log := newLogged()
					srv, client := listen(t, protocol, keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{MaxResponse: 512, Streaming: []string{"text/x-log"}}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						runs.Add(1)
						row.handle(w, r)
					})))
					first, head := outcomeOf(t, client, keyedRequest(t, srv.URL, token, "a"))
					if first != row.first {
						t.Errorf("first: %v, want %v", first, row.first)
					}
					if first.code == "internal" && head.Get("Location")+head.Get("Link") != "" {
						t.Errorf("the 500 has fields of the handler: %v", head)
					}
					for range 2 {
						repeat, again := outcomeOf(t, client, keyedRequest(t, srv.URL, token, "a"))
						if repeat != row.repeat {
							t.Errorf("repeat: %v, want %v", repeat, row.repeat)
						}
						if id := head.Get("Svc-Request-Id"); id != "" && row.repeat.code != "idempotency_outcome_unknown" && again.Get("Svc-Original-Request-Id") != id {
							t.Errorf("repeat: Svc-Original-Request-Id %q, want %q", again.Get("Svc-Original-Request-Id"), id)
						}
						if replayed := again.Get("Idempotent-Replayed") == "true"; replayed != (row.first == row.repeat) {
							t.Errorf("repeat: Idempotent-Replayed %q", again.Get("Idempotent-Replayed"))
						}
					}
					if runs.Load() != 1 {
						t.Errorf("ran %d times, want once", runs.Load())
					}
					if text := log.String(); row.logs != "" && strings.Count(text, row.logs) == 0 || row.logs == "" && text != "" {
						t.Errorf("log %q, want %q in it", text, row.logs)
					}
				})
			}
		})
	}
}

// TestOutcomesThatFree: only FreeKey and the statuses in FreeOn free the
// key. A status alone proves nothing.
func TestOutcomesThatFree(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	rows := []struct {
		name   string
		handle http.HandlerFunc
		frees  bool
	}{
		{"401", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, false},
		{"403", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, false},
		{"425", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(425) }, false},
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, false},
		{"502, in FreeOn", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, true},
		{"502, in FreeOn, streamed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(502)
			w.(http.Flusher).Flush()
		}, true},
		{"429, flushed", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(429)
			w.(http.Flusher).Flush()
		}, false},
		{"FreeKey", func(w http.ResponseWriter, r *http.Request) {
			middleware.FreeKey(r.Context())
			w.WriteHeader(503)
		}, true},
		{"400", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, false},
		{"404", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, false},
		{"408", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(408) }, false},
		{"409", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(409) }, false},
		{"413", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(413) }, false},
		{"422", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(422) }, false},
		{"503", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, false},
		{"panic, and 500 in FreeOn", func(http.ResponseWriter, *http.Request) { panic("after the insert") }, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			runs := 0
			o := middleware.Options{Idempotency: middleware.IdempotencyOptions{FreeOn: []int{500, 502, 504}}}
			h := keyed(ring, o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if runs++; runs == 1 {
					row.handle(w, r)
				}
			}))
			first := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
			again := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
			switch {
			case row.frees && (runs != 2 || again.StatusCode != 200 || again.Header.Get("Idempotent-Replayed") != ""):
				t.Errorf("%d runs, then %d, want a second run", runs, again.StatusCode)
			case !row.frees && (runs != 1 || again.StatusCode != first.StatusCode || again.Header.Get("Idempotent-Replayed") != "true"):
				t.Errorf("%d runs, then %d, want a replay of %d", runs, again.StatusCode, first.StatusCode)
			}
		})
	}
}

// TestRefusalsAreNotRecorded: what a stage refuses under a key leaves the key
// free.
func TestRefusalsAreNotRecorded(t *testing.T) {
	for _, f := range []fault{noKey, badKey, revokedKey, expiredKey, wrongScope, overLimit, unknownPath, wrongMethod, keyStoreDown, rateStoreDown, replyStoreDown} {
		t.Run(string(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				refused, _, _ := w.try(t, []fault{f})
				if refused.StatusCode < 400 {
					t.Fatalf("%d %s", refused.StatusCode, refused.body)
				}
				w.keys.down.Store(false)
				w.rates.down.Store(false)
				w.replies.down.Store(false)
				if after := refused.Header.Get("Retry-After"); after != "" {
					seconds, err := strconv.Atoi(after)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Duration(seconds) * time.Second)
				}
				a := serve(w.api, w.post(`{"title":"one"}`))
				time.Sleep(time.Hour)
				again := serve(w.api, w.post(`{"title":"one"}`))
				if a.StatusCode != 201 || w.runs.Load() != 1 || a.Header.Get("Idempotent-Replayed") != "" || again.body != a.body || again.Header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("%d, then %d, with %d runs, want a create and its replay", a.StatusCode, again.StatusCode, w.runs.Load())
				}
			})
		})
	}
}

// TestEventsArriveLive: what a handler of a keyed request flushes is with the
// client before it goes on.
func TestEventsArriveLive(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			read := make(chan struct{})
			srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for n := range 3 {
					fmt.Fprintf(w, "data: %d\n", n)
					_ = http.NewResponseController(w).Flush()
					<-read
				}
			})))
			res, err := client.Do(keyedRequest(t, srv.URL, token, "a"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			lines := bufio.NewScanner(res.Body)
			for n := range 3 {
				if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", n) {
					t.Fatalf("line %d: %q, %v", n, lines.Text(), lines.Err())
				}
				read <- struct{}{}
			}
			if wantID(t, res); res.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("Content-Type %q", res.Header.Get("Content-Type"))
			}
		})
	}
}

// TestStoreFaults: whatever the store does wrong, the client has an answer in
// bounded time, and no request runs twice.
func TestStoreFaults(t *testing.T) {
	const timeout = 2 * time.Second
	created, unavailable := outcome{201, "", `{"id":"task_1"}`}, outcome{503, "idempotency_store_unavailable", ""}
	rows := []struct {
		name    string
		op      idemtest.Op
		fault   idemtest.Fault
		first   outcome
		atMost  time.Duration // the first response takes
		during  outcome       // a repeat while the fault lasts
		runs    int64         // by then
		mended  outcome       // a repeat when the store is well again
		allRuns int64
	}{
		{"Begin fails", idemtest.Begin, idemtest.Fail, unavailable, 0, unavailable, 0, created, 1},
		{"the answer of Begin is lost", idemtest.Begin, idemtest.LoseAnswer, unavailable, 0, unavailable, 0, created, 1},
		{"Begin hangs", idemtest.Begin, idemtest.Hang, unavailable, timeout, unavailable, 0, created, 1},
		{"Begin stalls", idemtest.Begin, idemtest.Stall, unavailable, timeout, unavailable, 0, created, 1},
		{"the answer of Begin stalls", idemtest.Begin, idemtest.StallAnswer, unavailable, timeout, unavailable, 0, created, 1},
		{"Begin panics", idemtest.Begin, idemtest.Panic, unavailable, 0, unavailable, 0, created, 1},
		{"Settle fails", idemtest.Settle, idemtest.Fail, created, timeout, created, 1, created, 1},
		{"the answer of Settle is lost", idemtest.Settle, idemtest.LoseAnswer, created, timeout, created, 1, created, 1},
		{"Settle hangs", idemtest.Settle, idemtest.Hang, created, timeout, created, 1, created, 1},
		{"Settle stalls", idemtest.Settle, idemtest.Stall, created, timeout, created, 1, created, 1},
		{"Settle panics", idemtest.Settle, idemtest.Panic, created, timeout, created, 1, created, 1},
		{"Extend fails", idemtest.Extend, idemtest.Fail, created, 0, created, 1, created, 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faulty := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
				ring, log := newKeyring(), newLogged()
				token := ring.issue(t)
				var runs atomic.Int64
				runner := idem.NewRunner(faulty, idem.Options{Timeout: timeout, Logger: log.hooks().Logger})
				h := keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: runner}}, numbered(&runs, nil))
				ask := func() outcome {
					a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
					if strings.HasPrefix(a.Header.Get("Content-Type"), "application/problem") {
						return outcome{a.StatusCode, a.problem(t).Code, ""}
					}
					return outcome{a.StatusCode, "", a.body}
				}
				faulty.Always(row.op, row.fault)
				begun := time.Now()
				if got := ask(); got != row.first || time.Since(begun) > row.atMost {
					t.Errorf("first: %v after %v, want %v within %v", got, time.Since(begun), row.first, row.atMost)
				}
				if got := ask(); got != row.during || runs.Load() != row.runs {
					t.Errorf("repeat: %v with %d runs, want %v with %d", got, runs.Load(), row.during, row.runs)
				}
				faulty.Always(row.op, idemtest.None)
				faulty.Release()
				if got := ask(); got != row.mended || runs.Load() != row.allRuns {
					t.Errorf("when mended: %v with %d runs, want %v with %d", got, runs.Load(), row.mended, row.allRuns)
				}
				if err := runner.WaitSettled(t.Context()); err != nil {
					t.Error(err)
				}
				if got := ask(); got != row.mended || runs.Load() != row.allRuns {
					t.Errorf("afterwards: %v with %d runs, want %v with %d", got, runs.Load(), row.mended, row.allRuns)
				}
				if s := runner.Stats(); s.Executions+s.Waiters+s.Unsaved != 0 {
					t.Errorf("left over: %+v", s)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// TestLostClaim: a second attempt took the claim over, and its response is the
// one that counts. The first attempt is told by its context, and its client is
// sent to where the response will be.
func TestLostClaim(t *testing.T) {
	rows := []struct {
		name   string
		handle http.HandlerFunc
	}{
		{"201", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201) }},
		{"flush of a stream", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(201)
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "more")
		}},
		{"panic", func(w http.ResponseWriter, r *http.Request) { panic("boom") }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faulty := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
				faulty.Always(idemtest.Extend, idemtest.Lose)
				faulty.Next(idemtest.Settle, idemtest.Lose)
				ring := newKeyring()
				h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(faulty)}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					if cause := context.Cause(r.Context()); !errors.Is(cause, idem.ErrLost) {
						t.Errorf("cause %v, want ErrLost", cause)
					}
					row.handle(w, r)
				}))
				a := serve(h, request("POST", "/", ring.issue(t), "{}", "Idempotency-Key: a"))
				if a.StatusCode != 409 || a.problem(t).Code != "idempotency_in_progress" {
					t.Errorf("%d %s, want 409", a.StatusCode, a.body)
				}
			})
		})
	}
}

// TestHooksThatPanic: a hook of the team's own that panics costs the response,
// and never leaves the key claimed for ever.
func TestHooksThatPanic(t *testing.T) {
	rows := []struct {
		name   string
		hooks  func(*middleware.Hooks)
		handle http.HandlerFunc
	}{
		{"Observe", func(h *middleware.Hooks) {
			h.Observe = func(_ context.Context, e middleware.Event) {
				if e.Outcome == "executed" {
					panic("in Observe")
				}
			}
		}, func(w http.ResponseWriter, r *http.Request) {}},
		{"Problem", func(h *middleware.Hooks) {
			h.Problem = func(r *http.Request, p middleware.Problem) (string, []byte) { panic("in Problem") }
		}, func(w http.ResponseWriter, r *http.Request) { panic("boom") }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ring := newKeyring()
				token := ring.issue(t)
				hooks := quiet()
				row.hooks(hooks)
				runs := 0
				h := keyed(ring, middleware.Options{Hooks: hooks, Idempotency: middleware.IdempotencyOptions{Runner: replies(idem.Options{Wait: -1})}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					row.handle(w, r)
				}))
				ask := func() (a answer) {
					defer func() { recover() }()
					return serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
				}
				ask()
				if a := ask(); a.Response == nil || a.StatusCode == 409 && a.problem(t).Code == "idempotency_in_progress" || runs != 1 {
					t.Errorf("the repeat got %v with %d runs, want an end of it", a, runs)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// lateAdapter puts a stage into a router whose handlers return errors, and
// writes the response for an error when the stage has ended, as echo's
// WrapMiddleware does. It wraps the handler anew for each request.
func lateAdapter(stage func(http.Handler) http.Handler, handle func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		stage(http.HandlerFunc(func(inner http.ResponseWriter, r *http.Request) {
			w = inner
			err = handle(inner, r)
		})).ServeHTTP(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	})
}

// TestLateResponse: a response that is written after the stage has ended is an
// error in the log, and the empty 200 in its place is not replayed.
func TestLateResponse(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	log, runs := newLogged(), 0
	g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey)(lateAdapter(g.Idempotent, func(w http.ResponseWriter, r *http.Request) error {
		runs++
		if r.Header.Get("Fine") != "" {
			_, err := io.WriteString(w, "fine")
			return err
		}
		return errors.New("no such task")
	}))
	if a := serve(h, request("POST", "/tasks", token, "{}")); a.StatusCode != 422 || log.String() != "" {
		t.Errorf("without a key: %d, log %q", a.StatusCode, log)
	}
	for range 2 {
		if a := serve(h, request("POST", "/tasks", token, "{}", "Idempotency-Key: fine", "Fine: 1")); a.StatusCode != 200 || a.body != "fine" || log.String() != "" {
			t.Errorf("a handler that writes: %d %s, log %q", a.StatusCode, a.body, log)
		}
	}
	runs = 0
	first := serve(h, request("POST", "/tasks", token, "{}", "Idempotency-Key: a"))
	if text := log.String(); strings.Count(text, "after the Idempotency stage had ended") != 1 || !strings.Contains(text, first.Header.Get("Svc-Request-Id")) || !strings.Contains(text, "level=ERROR") {
		t.Errorf("the log has %q", text)
	}
	for range 2 {
		a := serve(h, request("POST", "/tasks", token, "{}", "Idempotency-Key: a"))
		if a.StatusCode != 409 || a.problem(t).Code != "idempotency_response_not_retained" || runs != 1 {
			t.Errorf("repeat: %d %s with %d runs, want 409", a.StatusCode, a.body, runs)
		}
	}
	if a := serve(h, request("POST", "/tasks", token, "{}", "Idempotency-Key: fine", "Fine: 1")); a.StatusCode != 200 || a.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("another key: %d, replayed %q", a.StatusCode, a.Header.Get("Idempotent-Replayed"))
	}
}

// TestResponsePastTheStage: a response that is sent past the stage is an error
// in the log, and is not replayed as what the stage saw.
func TestResponsePastTheStage(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, status := range []int{0, 422} { // that the stage sees; the client gets 201
		log, runs := newLogged(), 0
		g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
		h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.Idempotent(http.HandlerFunc(func(inner http.ResponseWriter, r *http.Request) {
				runs++
				w.WriteHeader(201)
				if status != 0 {
					http.Error(inner, "refused", status)
				}
			})).ServeHTTP(w, r)
		}))
		if a := serve(h, request("POST", "/tasks", token, "{}", "Idempotency-Key: a")); a.StatusCode != 201 || a.body != "" {
			t.Errorf("got %d %q, want the handler's 201 alone", a.StatusCode, a.body)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "sent past the Idempotency stage") {
			t.Errorf("the log has %q", text)
		}
		a := serve(h, request("POST", "/tasks", token, "{}", "Idempotency-Key: a"))
		if p := a.problem(t); p.Code != "idempotency_response_not_retained" || p.OriginalStatus != 201 || runs != 1 {
			t.Errorf("repeat: %d %s with %d runs, want 409", a.StatusCode, a.body, runs)
		}
	}
}

// written is a writer that tells whether it was written to, as gin's does.
type written struct {
	http.ResponseWriter
	status int
}

func (w *written) Written() bool { return w.status != 0 }

func (w *written) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// TestResponsePastAllStages: where all stages stand behind an adapter that does
// not hand on their writer, a router's own writer tells that the response was
// sent past them. A repeat does not get the empty 200 that the stages saw.
func TestResponsePastAllStages(t *testing.T) {
	ring, log, runs := newKeyring(), newLogged(), 0
	token := ring.issue(t)
	runner := replies()
	stages := func(next http.Handler) http.Handler {
		return keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: runner}}, next)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of := &written{ResponseWriter: w}
		stages(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			runs++
			of.WriteHeader(201)
		})).ServeHTTP(of, r)
	})
	if a := serve(h, request("POST", "/tasks", token, "{}", "Idempotency-Key: a")); a.StatusCode != 201 || a.body != "" {
		t.Errorf("got %d %q, want the handler's 201 alone", a.StatusCode, a.body)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "sent past the Idempotency stage") {
		t.Errorf("the log has %q", text)
	}
	a := serve(h, request("POST", "/tasks", token, "{}", "Idempotency-Key: a"))
	if p := a.problem(t); p.Code != "idempotency_response_not_retained" || p.OriginalStatus != 0 || runs != 1 {
		t.Errorf("repeat: %d %s with %d runs, want 409 without the status, which is not known", a.StatusCode, a.body, runs)
	}
}

// TestPassedOnRefusal: a handler that creates something and then passes on the
// 429 of another service runs once. The log says so once, with the two ways
// out.
func TestPassedOnRefusal(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, status := range []int{401, 403, 425, 429} {
		for _, frees := range []bool{false, true} {
			log, created := newLogged(), 0
			o := middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}}
			if frees {
				o.Idempotency.FreeOn = []int{status}
			}
			// The stage is applied anew for each request, as echo does.
			g := middleware.New(ring.keys, o)
			h := middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey)(lateAdapter(g.Idempotent, func(w http.ResponseWriter, r *http.Request) error {
				created++
				w.WriteHeader(status)
				return nil
			}))
			for _, key := range []string{"a", "b"} {
				created = 0
				for range 3 {
					if a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: "+key)); a.StatusCode != status {
						t.Errorf("%d: got %d", status, a.StatusCode)
					}
				}
				if want := map[bool]int{false: 1, true: 3}[frees]; created != want {
					t.Errorf("%d, in FreeOn %t: created %d times, want %d", status, frees, created, want)
				}
			}
			lines := 0
			if !frees && (status == 425 || status == 429) {
				lines = 1
			}
			if text := log.String(); strings.Count(text, "\n") != lines || lines == 1 && !(strings.Contains(text, "FreeKey") && strings.Contains(text, "FreeOn")) {
				t.Errorf("%d, in FreeOn %t: the log has %q, want %d lines", status, frees, text, lines)
			}
		}
	}
}

// TestReverseProxy: httputil.ReverseProxy flushes a response without a length.
// Its create can be repeated all the same.
func TestReverseProxy(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			var creates atomic.Int64
			upstream := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				creates.Add(1)
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Location", "/tasks/1")
				w.WriteHeader(http.StatusCreated)
				w.(http.Flusher).Flush() // without a Content-Length
				fmt.Fprint(w, "created")
			}))
			target, err := url.Parse(upstream.URL)
			if err != nil {
				t.Fatal(err)
			}
			srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, httputil.NewSingleHostReverseProxy(target)))
			for _, replayed := range []string{"", "true", "true"} {
				a := do(t, client, keyedRequest(t, srv.URL, token, "a"))
				if a.StatusCode != 201 || a.body != "created" || a.Header.Get("Location") != "/tasks/1" || a.Header.Get("Idempotent-Replayed") != replayed {
					t.Errorf("%d %s, replayed %q, want 201 and %q", a.StatusCode, a.body, a.Header.Get("Idempotent-Replayed"), replayed)
				}
			}
			if creates.Load() != 1 {
				t.Errorf("%d creates", creates.Load())
			}
		})
	}
}

// TestRefusalInsideFreesTheKey: a limiter inside Idempotent frees the key of a
// request that it refuses, unless a handler may have worked before.
func TestRefusalInsideFreesTheKey(t *testing.T) {
	type wrapped = func(limited http.Handler) http.HandlerFunc
	forward := func(make func(r *http.Request) *http.Request) wrapped {
		return func(limited http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { limited.ServeHTTP(w, make(r)) }
		}
	}
	rows := []struct {
		name  string
		wrap  wrapped
		frees bool
	}{
		{"nothing between", forward(func(r *http.Request) *http.Request { return r }), true},
		{"a copy", forward(func(r *http.Request) *http.Request {
			return r.WithContext(context.WithValue(r.Context(), outsideKey{}, 1))
		}), true},
		{"StripPrefix", func(limited http.Handler) http.HandlerFunc { return http.StripPrefix("/api", limited).ServeHTTP }, true},
		{"another path", forward(func(r *http.Request) *http.Request {
			other := r.WithContext(r.Context())
			other.URL = &url.URL{Path: "/limited"}
			return other
		}), false},
		{"another query", forward(func(r *http.Request) *http.Request {
			other := r.WithContext(r.Context())
			other.URL = &url.URL{Path: r.URL.Path, RawQuery: "a=b"}
			return other
		}), false},
		{"another method", forward(func(r *http.Request) *http.Request {
			other := r.WithContext(r.Context())
			other.Method = "PUT"
			return other
		}), false},
		{"a request of the handler", forward(func(r *http.Request) *http.Request {
			other, _ := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), nil)
			return other
		}), false},
		{"an interim response", func(limited http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				limited.ServeHTTP(w, r)
			}
		}, false},
		{"the body was read and rewound", forward(func(r *http.Request) *http.Request {
			_, _ = io.Copy(io.Discard, r.Body)
			if body, ok := r.Body.(io.Seeker); ok {
				_, _ = body.Seek(0, io.SeekStart)
			}
			return r
		}), false},
		{"the body was read", forward(func(r *http.Request) *http.Request {
			_, _ = io.ReadAll(r.Body)
			return r
		}), false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			ring := newKeyring()
			token := ring.issue(t)
			g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.Limit{Count: 1, Period: 24 * time.Hour})})
			worked := 0
			inner := row.wrap(g.RateLimit(http.HandlerFunc(sayOK)))
			h := keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				worked++
				inner(w, r)
			}))
			for _, key := range []string{"spends", "a", "a"} {
				serve(h, request("POST", "/api/tasks", token, "{}", "Idempotency-Key: "+key))
			}
			if want := map[bool]int{false: 2, true: 3}[row.frees]; worked != want {
				t.Errorf("the handler ran %d times, want %d", worked, want)
			}
		})
	}
}

// TestOneLineForAnOutcome: the outcome of a request that could not be saved has
// one line in the log until it is saved, and one then.
func TestOneLineForAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, log := newKeyring(), newLogged()
		store := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
		store.Always(idemtest.Settle, idemtest.Fail)
		runner := runnerOf(store, idem.Options{Logger: log.hooks().Logger})
		h := keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: runner}}, http.HandlerFunc(sayOK))
		if a := serve(h, request("POST", "/", ring.issue(t), "{}", "Idempotency-Key: a")); a.StatusCode != 200 {
			t.Errorf("got %d %s, want the response", a.StatusCode, a.body)
		}
		for _, want := range []string{"could not be saved", "is saved"} {
			if n := strings.Count(log.String(), "level="); n != 1 || !strings.Contains(log.String(), want) {
				t.Errorf("%d lines, want one that says that the outcome %s:\n%s", n, want, log)
			}
			log.text.Reset()
			store.Always(idemtest.Settle, idemtest.None)
			runner.WaitSettled(t.Context())
		}
	})
}
