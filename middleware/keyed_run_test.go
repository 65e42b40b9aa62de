package middleware_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestUploadsAreRemoved: the files of a form that is parsed inside a stage are
// gone when the request is over, also where the stages or a router around them
// hand on copies of the request, which no server sees. Those of a form that was
// parsed outside stay for the code there.
func TestUploadsAreRemoved(t *testing.T) {
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	file, _ := parts.CreateFormFile("file", "a.txt")
	_, _ = file.Write(make([]byte, 10_000))
	_ = parts.Close()
	ring, token := oneKey(t)
	parse := func(r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
	}
	// copied is a router that hands on a copy of the request.
	copied := foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(w, r.WithContext(r.Context()))
	})
	o := middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{
		Runner: replies(), Partition: func(r *http.Request) string { parse(r); return "" },
	}}
	guard := middleware.New(ring.keys, o)
	o.Authenticate = func(r *http.Request) (*keystore.Caller, error) { // which looks for a token in the form
		parse(r)
		return nil, middleware.ErrNoCredentials
	}
	early := middleware.New(ring.keys, o)
	unkeyed := middleware.Chain(early.RequestID, early.Recover, early.Authenticate, early.Enforce(middleware.AnyCaller()))
	o.Authenticate = nil
	for name, around := range map[string]func(http.Handler) http.Handler{
		"pieces": func(h http.Handler) http.Handler { return keyed(ring, o, h.ServeHTTP) },
		"an API behind an outer mux": func(h http.Handler) http.Handler {
			api, mux := middleware.NewAPI(ring.keys, o), http.NewServeMux()
			api.Handle("POST /api/v1/{$}", middleware.AnyCaller(), h)
			mux.Handle("/api/", api)
			return mux
		},
		"copies": func(h http.Handler) http.Handler {
			return middleware.Chain(copied, guard.RequestID, guard.Recover, copied, guard.Authenticate, copied,
				guard.Enforce(middleware.AnyCaller()), copied, guard.Idempotent)(h)
		},
		"parsed by Authenticate": unkeyed,
		"parsed outside": foreign(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			parse(r)
			unkeyed(h).ServeHTTP(w, r)
			file, _, err := r.FormFile("file")
			if err != nil {
				t.Errorf("after the stages: %v", err)
				return
			}
			_ = file.Close()
			_ = r.MultipartForm.RemoveAll() // for HTTP/2
		}),
	} {
		for _, protocol := range protocols {
			for _, key := range []string{"", "a", "panics", "hijacks"} {
				if key == "hijacks" && protocol == "HTTP/2" {
					continue
				}
				t.Run(fmt.Sprintf("%s %s key %q", name, protocol, key), func(t *testing.T) {
					dir := t.TempDir()
					t.Setenv("TMPDIR", dir)
					ran := false
					left := make(chan struct{})
					handler := around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						ran = true
						parse(r)
						if files, _ := os.ReadDir(dir); len(files) != 1 {
							t.Errorf("%d files while the handler runs, want the upload", len(files))
						}
						switch key {
						case "panics":
							panic("boom")
						case "hijacks":
							conn, rw, err := http.NewResponseController(w).Hijack()
							if err != nil {
								t.Error(err)
								return
							}
							_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
							_ = rw.Flush()
							_ = conn.Close()
						}
					}))
					srv, client := listen(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer close(left) // after Hijack the server does not wait for the handler
						handler.ServeHTTP(w, r)
					}))
					r := newRequest(t, "POST", srv.URL+"/api/v1/", token, bytes.NewReader(form.Bytes()))
					r.Header.Set("Content-Type", parts.FormDataContentType())
					if key != "" && key != "hijacks" {
						r.Header.Set("Idempotency-Key", name+protocol+key)
					}
					do(t, client, r)
					<-left
					srv.Close()
					if files, _ := os.ReadDir(dir); len(files) != 0 || !ran {
						t.Errorf("%d files are left, and the handler ran: %t", len(files), ran)
					}
				})
			}
		}
	}
}

// TestDisconnect: the client that sent a create leaves, by closing its
// connection or by taking back its stream. The create is finished and kept, and
// whoever repeats it gets its response.
func TestDisconnect(t *testing.T) {
	ring, token := oneKey(t)
	overBoth(t, func(t *testing.T, protocol string) {
		var runs atomic.Int64
		entered, outer := make(chan struct{}), make(chan context.Context, 2)
		// Not the store in memory itself, which never looks at a context.
		store := idemtest.NewFaulty(&idem.Memory{})
		h := keyed(ring, with(keyedOptions{Runner: runnerOf(store)}), numbered(&runs, func(r *http.Request) {
			close(entered)
			<-(<-outer).Done() // the server knows that the client is gone
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler's context is done: %v", err)
			}
			if deadline, ok := r.Context().Deadline(); !ok || time.Until(deadline) > 30*time.Second {
				t.Errorf("the handler's deadline is %v", deadline)
			}
			if middleware.CallerFrom(r.Context()) == nil || middleware.RequestIDFrom(r.Context()) == "" {
				t.Error("the handler's context has lost its values")
			}
		}))
		srv, client := listen(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outer <- r.Context()
			h.ServeHTTP(w, r)
		}))
		if protocol == "HTTP/2" {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-entered
				cancel()
			}()
			if _, err := client.Do(keyedRequest(t, srv.URL, token, "a").WithContext(ctx)); !errors.Is(err, context.Canceled) {
				t.Errorf("first: %v", err)
			}
		} else {
			c := dial(t, srv)
			c.send(wirePost(srv, token))
			<-entered
			c.Close()
		}
		a := do(t, client, keyedRequest(t, srv.URL, token, "a"))
		if a.StatusCode != 201 || a.body != `{"id":"task_1"}` || !a.replayed() || runs.Load() != 1 {
			t.Errorf("repeat: %d %s with %d runs, want the replay of the only run", a.StatusCode, a.body, runs.Load())
		}
	})
}

// TestTimeoutHandlerOutside: the client is told 503 in time, and the create
// goes on to its end, which a repeat gets.
func TestTimeoutHandlerOutside(t *testing.T) {
	ring, token := oneKey(t)
	bothInBubbles(t, func(t *testing.T, protocol string) {
		var runs atomic.Int64
		release := make(chan struct{})
		g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}})
		create := numbered(&runs, func(*http.Request) { <-release })
		inner := g.Enforce(middleware.AnyCaller())(g.Idempotent(create))
		timeout := foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			wait, _ := time.ParseDuration(r.Header.Get("Wait"))
			http.TimeoutHandler(next, cmp.Or(wait, time.Minute), "late").ServeHTTP(w, r)
		})
		client := listenInBubble(t, protocol, middleware.Chain(g.RequestID, g.Recover, g.Authenticate, timeout)(inner), nil)
		late := keyedRequest(t, "http://api.example.com", token, "a")
		late.Header.Set("Wait", "20ms")
		a := do(t, client, late)
		if wantID(t, a.Response); a.StatusCode != 503 || a.body != "late" {
			t.Errorf("first: %d %s, want the 503 of http.TimeoutHandler", a.StatusCode, a.body)
		}
		close(release)
		a = do(t, client, keyedRequest(t, "http://api.example.com", token, "a"))
		if a.StatusCode != 201 || a.body != `{"id":"task_1"}` || !a.replayed() || runs.Load() != 1 {
			t.Errorf("repeat: %d %s with %d runs, want the replay", a.StatusCode, a.body, runs.Load())
		}
	})
}

// TestJoined: rows and reply are kept together or not at all.
func TestJoined(t *testing.T) {
	const answered = "answered"
	same := func(code int) outcome { return outcome{code, "", answered} }
	created, lost := steps("201", answered), outcome{503, "idempotency_commit_unknown", ""}
	fails := func(err error) func(_, undo func()) error {
		return func(_, undo func()) error { undo(); return err }
	}
	unheard := func(do, _ func()) error { do(); return idem.ErrCommitUnknown }
	long := strings.Repeat("0123456789", 100)
	type row struct {
		name   string
		handle http.HandlerFunc // after a row was written
		commit func(do, undo func()) error
		first  outcome
		repeat outcome // none: the handler runs again
		rows   int     // committed after the first
	}
	rows := []row{
		{"Free", steps("free", "202", answered), nil, same(202), outcome{}, 0},
		{"panic", steps("Location: /a", "201", answered, "panic"), nil, internal, outcome{}, 0},
		{"abort", steps("201", answered, "abort"), nil, outcome{}, outcome{}, 0},
		{"past the deadline", steps("end", "half a list"), nil, unavailable, outcome{}, 0},
		{"past the deadline, and done", steps("end", "201", answered), nil, same(201), same(201), 1},
		{"past the deadline, and says so", steps("end", "504", answered), nil, same(504), outcome{}, 0},
		{"commit fails", created, fails(errors.New("connection reset")), unavailable, outcome{}, 0},
		{"a constraint", created, fails(idem.ErrConstraint), outcome{409, "constraint_violated", ""}, outcome{}, 0},
		{"left broken", created, fails(idem.ErrBroken), internal, outcome{}, 0},
		{"commit unknown, done", created, unheard, lost, same(201), 1},
		{"commit unknown, not done", created, fails(idem.ErrCommitUnknown), lost, outcome{}, 0},
		{"commit of a 4xx unknown, done", steps("404", answered), unheard, lost, same(404), 0},
		{"commit panics", created, func(_, undo func()) error { undo(); panic("in COMMIT") }, lost, outcome{}, 0},
		{"too large", steps("201", long), nil, outcome{201, "", long}, notRetained, 1},
		{"flush", steps("201", "half", "flush", " and half"), nil, outcome{201, "", "half and half"},
			outcome{201, "", "half and half"}, 1},
	}
	for code, committed := range map[int]int{201: 1, 303: 1, 400: 0, 409: 0, 499: 0} {
		rows = append(rows, row{fmt.Sprint(code), steps(fmt.Sprint(code), answered), nil, same(code), same(code), committed})
	}
	for _, code := range []int{401, 429, 500, 503} {
		rows = append(rows, row{fmt.Sprint(code), steps(fmt.Sprint(code), answered), nil, same(code), outcome{}, 0})
	}
	for _, row := range rows {
		inBubble(t, row.name, func(t *testing.T) {
			ring, store, log := newKeyring(), newJoiner(), newLogged()
			token := ring.issue(t)
			runs := 0
			o := logging(log, keyedOptions{Runner: joining(store), Timeout: time.Second, MaxResponse: 512})
			h := keyed(ring, o, func(w http.ResponseWriter, r *http.Request) {
				runs++
				insert(r.Context(), fmt.Sprint("row ", runs))
				if runs == 1 {
					row.handle(w, r)
				}
			})
			var sent *httptest.ResponseRecorder
			ask := func() outcome {
				if sent = httptest.NewRecorder(); aborts(h, sent, post(token, "a")) {
					return outcome{}
				}
				got := answer{sent.Result(), sent.Body.String()}.outcome(t)
				if got.code != "" && sent.Header().Get("Location") != "" {
					t.Error("the refusal has a header of the handler")
				}
				return got
			}
			store.commit = row.commit
			store.ending = func() {
				if sent.Flushed || sent.Body.Len() > 0 {
					t.Error("the client saw the response before the transaction had ended")
				}
			}
			if got := ask(); got != row.first {
				t.Errorf("first: %v, want %v", got, row.first)
			}
			if got := store.committed(); len(got) != row.rows {
				t.Errorf("rows %q, want %d", got, row.rows)
			}
			if strings.Contains(log.String(), "rolled back cleanly") {
				t.Errorf("the log has %s", log)
			}
			store.commit = nil
			got := ask()
			if row.repeat == (outcome{}) {
				if want := (outcome{200, "", ""}); got != want || runs != 2 || len(store.committed()) != 1 {
					t.Errorf("repeat: %v with %d runs and rows %q, want a second run alone to count", got, runs, store.committed())
				}
			} else if got != row.repeat || runs != 1 || len(store.committed()) != row.rows {
				t.Errorf("repeat: %v with %d runs and rows %q, want %v", got, runs, store.committed(), row.repeat)
			}
		})
	}
}

// TestFailedCommitsAreSampled: each cause has one line a second, with the
// number of those in between.
func TestFailedCommitsAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, store, log := newKeyring(), newJoiner(), newLogged()
		h := keyed(ring, logging(log, keyedOptions{Runner: joining(store)}), sayOK)
		token := ring.issue(t)
		for second := range 2 {
			for i := range 20 {
				for _, err := range []error{idem.ErrCommitUnknown, errors.New("refused")} {
					store.commit = func(_, undo func()) error { undo(); return err }
					serve(h, post(token, fmt.Sprint(second, i, err)))
				}
			}
			time.Sleep(time.Second)
		}
		for _, text := range []string{"the database did not say whether a transaction was committed",
			"a transaction was not committed"} {
			if n := strings.Count(log.String(), text); n != 2 {
				t.Errorf("%d lines in two seconds say that %s, want 2\n%s", n, text, log)
			}
		}
		if n := strings.Count(log.String(), "unlogged=19"); n != 2 {
			t.Errorf("%d lines count the 19 before them, want 2\n%s", n, log)
		}
	})
}

// TestWhoseFault: the line about a transaction that was not committed names the
// route, what the database said, and what to do, also where the pattern is that
// of a mux inside.
func TestWhoseFault(t *testing.T) {
	for _, row := range []struct {
		err  error
		want string
	}{
		{idem.ErrBroken, `level=ERROR msg="the handler of a keyed request left a transaction that cannot be committed, ` +
			`and it was rolled back: answer with an error when a statement has failed`},
		{idem.ErrConstraint, `level=WARN msg="a constraint that is checked at COMMIT`},
		{idem.ErrCommitUnknown, `level=ERROR msg="the database did not say whether`},
		{errors.New("away"), `level=ERROR msg="a transaction was not committed"`},
	} {
		ring, store, log := newKeyring(), newJoiner(), newLogged()
		store.commit = func(_, undo func()) error { undo(); return fmt.Errorf("%w: SQLSTATE 25P02", row.err) }
		mux := http.NewServeMux()
		mux.HandleFunc("POST /{$}", sayOK)
		serve(keyed(ring, logging(log, keyedOptions{Runner: joining(store)}), mux.ServeHTTP), post(ring.issue(t), "a"))
		for _, want := range []string{row.want, "SQLSTATE 25P02", `pattern="POST /{$}"`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%v: the log has\n%s\nwithout %s", row.err, log, want)
			}
		}
	}
}

// TestOutcomes: however a handler ends, it runs once, and repeats get the same
// response or a refusal that says why not.
func TestOutcomes(t *testing.T) {
	long := strings.Repeat("0123456789", 60)
	const made, begun, more, stream = "Location: /a", "half", " and half", "Content-Type: text/event-stream"
	half, whole := outcome{201, "", "half"}, outcome{201, "", "half and half"}
	rows := []struct {
		name   string
		handle http.HandlerFunc
		first  outcome
		repeat outcome
		logs   string
	}{
		{"panic", steps("panic"), internal, internal, "boom"},
		{"panic half-way", steps(made, "201", begun, "panic"), internal, internal, "boom"},
		{"panic after an interim response", steps("Link: </a>; rel=preload", "103", "panic"), internal, internal, "boom"},
		{"panic after Free", steps("free", "panic"), internal, internal, "boom"},
		{"invalid status", steps("1000"), internal, internal, "invalid WriteHeader code 1000"},
		{"no status", steps("99"), internal, internal, "invalid WriteHeader code 99"},
		{"the lowest and the highest interim status", steps("100", "199"), outcome{200, "", ""}, outcome{200, "", ""},
			"an empty 200 was stored"},
		{"the highest status", steps("999"), outcome{999, "", ""}, outcome{999, "", ""}, ""},
		{"abort", steps(made, "201", begun, "abort"), outcome{}, unknown, ""},
		{"goexit", steps(made, "201", begun, "goexit"), outcome{}, unknown, ""},
		{"too large", steps(made, "201", begun, long, long), outcome{201, "", "half" + long + long}, notRetained,
			"MaxResponse"},
		{"as large as may be", steps("201", long[:512]), outcome{201, "", long[:512]}, outcome{201, "", long[:512]}, ""},
		{"flush", func(w http.ResponseWriter, r *http.Request) {
			steps(made, "201", begun)(w, r)
			w.(http.Flusher).Flush()
			steps(more)(w, r)
		}, whole, whole, ""},
		{"flush of a stream", steps("Content-Type: Application/X-NDJSON; charset=utf-8", made, "201", begun, "flush", more),
			whole, whole, ""},
		{"flush of a stream by an option", steps("Content-Type: text/x-log", made, "201", begun, "flush"), half, half, ""},
		{"flush before anything else", steps(made, "flush", begun), outcome{200, "", "half"}, outcome{200, "", "half"}, ""},
		{"panic after flush", steps(made, "201", begun, "flush", "panic"), internal, internal, "boom"},
		{"panic after flush of a stream", steps(stream, made, "201", begun, "flush", "panic"), outcome{}, unknown, "boom"},
		{"panic after too much", steps(made, "201", begun, long, "panic"), outcome{}, unknown, "boom"},
		{"http.TimeoutHandler inside, in time", http.TimeoutHandler(steps(made, "201", begun), hangs, "late").ServeHTTP,
			half, half, ""},
		{"http.TimeoutHandler inside, late", http.TimeoutHandler(steps("end"), time.Millisecond, "late").ServeHTTP,
			outcome{503, "", "late"}, outcome{503, "", "late"}, "IdempotencyOptions.Timeout in its place"},
		{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) },
			outcome{500, "", "broken\n"}, outcome{500, "", "broken\n"}, ""},
		{"a problem of its own", func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "task_cancelled"})
		}, outcome{409, "task_cancelled", ""}, outcome{409, "task_cancelled", ""}, ""},
	}
	ring, token := oneKey(t)
	overBoth(t, func(t *testing.T, protocol string) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				var runs atomic.Int64
				log := newLogged()
				srv, client := listen(t, protocol,
					keyed(ring, logging(log, keyedOptions{MaxResponse: 512, Streaming: []string{"text/x-log"}}),
						func(w http.ResponseWriter, r *http.Request) {
							runs.Add(1)
							row.handle(w, r)
						}))
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
					if id := head.Get("Svc-Request-Id"); id != "" && row.repeat.code != "idempotency_outcome_unknown" &&
						again.Get("Svc-Original-Request-Id") != id {
						t.Errorf("repeat: Svc-Original-Request-Id %q, want %q", again.Get("Svc-Original-Request-Id"), id)
					}
					if (again.Get("Idempotent-Replayed") == "true") != (row.first == row.repeat) {
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

// TestOutcomesThatFree: only Free and the statuses in FreeOn free the key. A
// status alone proves nothing.
func TestOutcomesThatFree(t *testing.T) {
	type row struct {
		name   string
		handle http.HandlerFunc
		frees  bool
	}
	rows := []row{
		{"502, in FreeOn", steps("502"), true},
		{"502, in FreeOn, streamed", steps("Content-Type: text/event-stream", "502", "flush"), true},
		{"429, flushed", steps("Content-Type: text/plain", "429", "flush"), false},
		{"panic, and 500 in FreeOn", steps("panic"), false},
		{"Free", steps("free", "503"), true},
	}
	for _, code := range []int{400, 401, 403, 404, 408, 409, 413, 422, 425, 429, 503} {
		rows = append(rows, row{fmt.Sprint(code), steps(fmt.Sprint(code)), false})
	}
	for _, row := range rows {
		runs := 0
		s := newSite(t, keyedOptions{FreeOn: []int{500, 502, 504}}, func(w http.ResponseWriter, r *http.Request) {
			if runs++; runs == 1 {
				row.handle(w, r)
			}
		})
		first, again := s.post("a"), s.post("a")
		switch {
		case row.frees && (runs != 2 || again.StatusCode != 200 || again.replayed()):
			t.Errorf("%s: %d runs, then %d, want a second run", row.name, runs, again.StatusCode)
		case !row.frees && (runs != 1 || again.StatusCode != first.StatusCode || !again.replayed()):
			t.Errorf("%s: %d runs, then %d, want a replay of %d", row.name, runs, again.StatusCode, first.StatusCode)
		}
	}
}

// TestFreeOnOfALostClaim: a status in FreeOn frees no key when the claim was lost,
// whether or not the response streams: what was cancelled fails, whatever it has
// done.
func TestFreeOnOfALostClaim(t *testing.T) {
	for _, contentType := range []string{"text/plain", "text/event-stream"} {
		synctest.Test(t, func(t *testing.T) {
			ring, faulty, runs := newKeyring(), idemtest.NewFaulty(&idem.Memory{}), 0
			token := ring.issue(t)
			faulty.Always(idemtest.Extend, idemtest.Fail)
			h := keyed(ring, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{
				Runner: runnerOf(faulty, idem.Options{}), Timeout: time.Hour, FreeOn: []int{502},
			}}, func(w http.ResponseWriter, r *http.Request) {
				runs++
				w.Header().Set("Content-Type", contentType)
				w.WriteHeader(502)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			for range 2 {
				aborts(h, httptest.NewRecorder(), post(token, "a")) // if it streams
			}
			if runs != 1 {
				t.Errorf("%s: %d runs, want 1", contentType, runs)
			}
		})
	}
}

// TestOneLineForAnOutcome: the outcome of a request that could not be saved has
// one line in the log until it is saved, and one then.
func TestOneLineForAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, log := newKeyring(), newLogged()
		store := idemtest.NewFaulty(&idem.Memory{})
		store.Always(idemtest.Settle, idemtest.Fail)
		runner := runnerOf(store, idem.Options{Logger: log.hooks().Logger})
		h := keyed(ring, logging(log, keyedOptions{Runner: runner}), sayOK)
		wantAnswer(t, "an outcome that is not saved", serve(h, post(ring.issue(t), "a")), 200)
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

// TestNotRetained: a response that the handler says is secret reaches its client
// and no repeat.
func TestNotRetained(t *testing.T) {
	for name, runner := range map[string]*idem.Runner{"lease": replies(), "joined": joining(newJoiner())} {
		runs := 0
		s := newSite(t, keyedOptions{Runner: runner}, func(w http.ResponseWriter, r *http.Request) {
			runs++
			middleware.ExecutionFrom(r.Context()).DropResponse()
			w.WriteHeader(201)
			fmt.Fprint(w, "the secret")
		})
		first := s.post("a")
		again := s.post("a")
		if first.StatusCode != 201 || first.body != "the secret" || again.StatusCode != 409 ||
			again.problem(t).OriginalStatus != 201 || runs != 1 || s.log.String() != "" {
			t.Errorf("%s: %d %s, then %d %s with %d runs and the log %q", name, first.StatusCode, first.body,
				again.StatusCode, again.body, runs, s.log)
		}
	}
}

// TestStreamLostAtItsEnd: a stream that was sent stays as it was sent when its
// claim turns out to be another's.
func TestStreamLostAtItsEnd(t *testing.T) {
	faulty := idemtest.NewFaulty(&idem.Memory{})
	faulty.Next(idemtest.Settle, idemtest.Lose)
	s := newSite(t, keyedOptions{Runner: runnerOf(faulty)}, events(2, 0, func(*http.Request, error) {}))
	wantAnswer(t, "the stream alone", s.post("a"), 201, eventText(2))
}

// TestJoinedStreams: the rows of a stream are committed before its first byte
// leaves, and stay when the handler fails later.
func TestJoinedStreams(t *testing.T) {
	stream := func(status int, end func()) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			insert(r.Context(), "row")
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(status)
			fmt.Fprint(w, "one")
			streams := http.NewResponseController(w).Flush() == nil
			time.Sleep(20 * time.Second)
			fmt.Fprint(w, " two")
			time.Sleep(20 * time.Second)
			if err := r.Context().Err(); err != nil && status == 200 && streams {
				t.Errorf("the context ended: %v", err)
			}
			end()
		}
	}
	rows := []struct {
		name   string
		handle http.HandlerFunc
		commit func(do, undo func()) error
		first  string // status and body
		rows   int
		repeat string // code, "" for another run
	}{
		{"200", stream(200, func() {}), nil, "200 one two", 1, "idempotency_response_not_retained"},
		{"404", stream(404, func() {}), nil, "404 one two", 0, "idempotency_response_not_retained"},
		{"500", stream(500, func() {}), nil, "500 one two", 0, ""},
		{"fails later", stream(200, func() { panic(http.ErrAbortHandler) }), nil, "aborted 200 one two", 1,
			"idempotency_response_not_retained"},
		{"is not committed", stream(200, func() {}),
			func(_, undo func()) error { undo(); return errors.New("reset") }, "503 idempotency_store_unavailable", 0,
			""},
		{"may be committed", stream(200, func() {}), func(do, _ func()) error { do(); return idem.ErrCommitUnknown },
			"503 idempotency_commit_unknown", 1, "idempotency_response_not_retained"},
		{"is not committed, and panics", stream(200, func() { panic("boom") }),
			func(_, undo func()) error { undo(); return errors.New("reset") }, "aborted 200 ", 0, ""},
	}
	for _, row := range rows {
		inBubble(t, row.name, func(t *testing.T) {
			ring, store, log := newKeyring(), newJoiner(), newLogged()
			token := ring.issue(t)
			store.commit = row.commit
			w := httptest.NewRecorder()
			store.ending = func() {
				if w.Flushed || w.Body.Len() > 0 {
					t.Error("the client saw the response before the transaction had ended")
				}
			}
			h := keyed(ring, logging(log, keyedOptions{Runner: joining(store)}), row.handle)
			aborted := aborts(h, w, post(token, "a"))
			got := answer{w.Result(), w.Body.String()}.outcome(t).String()
			if aborted {
				got = "aborted " + got
			}
			if got != row.first || len(store.committed()) != row.rows {
				t.Errorf("first: %s with rows %q, want %s and %d", got, store.committed(), row.first, row.rows)
			}
			store.commit, store.ending = nil, nil
			if row.repeat == "" {
				return
			}
			if a := serve(h, post(token, "a")); a.StatusCode != 409 || a.problem(t).Code != row.repeat {
				t.Errorf("repeat: %d %s, want %s", a.StatusCode, a.body, row.repeat)
			}
			if !strings.Contains(log.String(), "without idem.Options.Join it is retained") {
				t.Errorf("log %q, want why the response is not retained", log.String())
			}
		})
	}
}

// A claim is not left behind by a writer of somebody else's that panics.
func TestHeaderThatPanics(t *testing.T) {
	ring := newKeyring()
	runner := runnerOf(&idem.Memory{})
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: runner}})
	breaks := wrapping(func(w http.ResponseWriter) http.ResponseWriter { return brokenHeader{w} })
	h := middleware.Chain(anyCaller(g), breaks, g.Idempotent)(http.NotFoundHandler())
	wantPanic(t, "the stream is closed", func() { serve(h, keyedRequest(t, "/x", ring.issue(t), "a")) })
	if n := runner.Stats().Executions; n != 0 {
		t.Errorf("%d claims are held", n)
	}
}

type brokenHeader struct{ http.ResponseWriter }
