package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
		{"panic after NotStarted", func(w http.ResponseWriter, r *http.Request) {
			middleware.NotStarted(r.Context())
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
		}, outcome{201, "", "half" + long + long}, outcome{409, "idempotency_response_not_retained", ""}, ""},
		{"as large as may be", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			_, _ = io.WriteString(w, long[:512])
		}, outcome{201, "", long[:512]}, outcome{201, "", long[:512]}, ""},
		{"flush", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, " and half")
		}, outcome{201, "", "half and half"}, outcome{409, "idempotency_response_not_retained", ""}, ""},
		{"flush by the controller, before anything else", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/a")
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
			fmt.Fprint(w, "half")
		}, outcome{200, "", "half"}, outcome{409, "idempotency_response_not_retained", ""}, ""},
		{"panic after flush", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			w.(http.Flusher).Flush()
			panic("boom")
		}, outcome{}, outcome{409, "idempotency_response_not_retained", ""}, "boom"},
		{"panic after too much", func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			_, _ = io.WriteString(w, long)
			panic("boom")
		}, outcome{}, outcome{409, "idempotency_response_not_retained", ""}, "boom"},
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
					srv, client := listen(t, protocol, keyed(ring, replies(), middleware.IdempotencyOptions{MaxResponse: 512, Hooks: log.hooks()}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
						if id := head.Get("Svc-Request-Id"); id != "" && again.Get("Svc-Original-Request-Id") != id {
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

// TestOutcomesThatFree: after these the key is free, because nothing happened.
func TestOutcomesThatFree(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	rows := []struct {
		name   string
		handle http.HandlerFunc
		frees  bool
	}{
		{"401", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, true},
		{"403", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, true},
		{"425", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(425) }, true},
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, true},
		{"429, flushed", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(429)
			w.(http.Flusher).Flush()
		}, true},
		{"NotStarted", func(w http.ResponseWriter, r *http.Request) {
			middleware.NotStarted(r.Context())
			w.WriteHeader(503)
		}, true},
		{"400", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, false},
		{"404", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, false},
		{"408", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(408) }, false},
		{"409", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(409) }, false},
		{"413", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(413) }, false},
		{"422", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(422) }, false},
		{"503", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			runs := 0
			h := keyed(ring, replies(), middleware.IdempotencyOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			srv, client := listen(t, protocol, keyed(ring, replies(), middleware.IdempotencyOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
				faulty := idemtest.NewFaulty(replies())
				ring, log := newKeyring(), newLogged()
				token := ring.issue(t)
				var runs atomic.Int64
				runner := idem.NewRunner(faulty, idem.Options{Timeout: timeout, Logger: log.hooks().Logger})
				h := keyed(ring, nil, middleware.IdempotencyOptions{Runner: runner, Hooks: log.hooks()}, numbered(&runs, nil))
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
		{"flush", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "more")
		}},
		{"panic", func(w http.ResponseWriter, r *http.Request) { panic("boom") }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faulty := idemtest.NewFaulty(replies())
				faulty.Always(idemtest.Extend, idemtest.Lose)
				faulty.Next(idemtest.Settle, idemtest.Lose)
				ring := newKeyring()
				h := keyed(ring, faulty, middleware.IdempotencyOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			h.Problem = func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
				if p.Code == "internal" {
					panic("in Problem")
				}
			}
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
				h := keyed(ring, replies(), middleware.IdempotencyOptions{Hooks: hooks, Wait: -1}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
