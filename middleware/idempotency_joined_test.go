package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestJoined: rows and reply are kept together or not at all.
func TestJoined(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			fmt.Fprintf(w, "answered %d", code)
		}
	}
	same := func(code int) outcome { return outcome{code, "", fmt.Sprintf("answered %d", code)} }
	broken := errors.New("connection reset")
	long := strings.Repeat("0123456789", 100)
	rows := []struct {
		name   string
		handle http.HandlerFunc // after a row was written
		commit func(do, undo func()) error
		first  outcome
		again  bool    // a repeat runs the handler again
		repeat outcome // else it gets this
		rows   int     // committed after the first
	}{
		{"201", status(201), nil, same(201), false, same(201), 1},
		{"303", status(303), nil, same(303), false, same(303), 1},
		{"400", status(400), nil, same(400), false, same(400), 0},
		{"409", status(409), nil, same(409), false, same(409), 0},
		{"401", status(401), nil, same(401), true, outcome{}, 0},
		{"429", status(429), nil, same(429), true, outcome{}, 0},
		{"500", status(500), nil, same(500), true, outcome{}, 0},
		{"503", status(503), nil, same(503), true, outcome{}, 0},
		{"FreeKey", func(w http.ResponseWriter, r *http.Request) {
			middleware.FreeKey(r.Context())
			status(202)(w, r)
		}, nil, same(202), true, outcome{}, 0},
		{"panic", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/a")
			status(201)(w, r)
			panic("boom")
		}, nil, outcome{500, "internal", ""}, true, outcome{}, 0},
		{"abort", func(w http.ResponseWriter, r *http.Request) {
			status(201)(w, r)
			panic(http.ErrAbortHandler)
		}, nil, outcome{}, true, outcome{}, 0},
		{"past the deadline", func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			status(201)(w, r)
		}, nil, outcome{503, "idempotency_store_unavailable", ""}, true, outcome{}, 0},
		{"past the deadline, and says so", func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			status(504)(w, r)
		}, nil, same(504), true, outcome{}, 0},
		{"commit fails", status(201), func(_, undo func()) error { undo(); return broken }, outcome{503, "idempotency_store_unavailable", ""}, true, outcome{}, 0},
		{"commit unknown, done", status(201), func(do, _ func()) error { do(); return idem.ErrCommitUnknown }, outcome{503, "idempotency_commit_unknown", ""}, false, same(201), 1},
		{"commit unknown, not done", status(201), func(_, undo func()) error { undo(); return idem.ErrCommitUnknown }, outcome{503, "idempotency_commit_unknown", ""}, true, outcome{}, 0},
		{"commit of a 4xx unknown, done", status(404), func(do, _ func()) error { do(); return idem.ErrCommitUnknown }, outcome{503, "idempotency_commit_unknown", ""}, false, same(404), 0},
		{"commit panics", status(201), func(_, undo func()) error { undo(); panic("in COMMIT") }, outcome{503, "idempotency_commit_unknown", ""}, true, outcome{}, 0},
		{"too large", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			_, _ = io.WriteString(w, long)
		}, nil, outcome{201, "", long}, false, outcome{409, "idempotency_response_not_retained", ""}, 1},
		{"flush", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			fmt.Fprint(w, "half")
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
			fmt.Fprint(w, " and half")
		}, nil, outcome{201, "", "half and half"}, false, outcome{201, "", "half and half"}, 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ring, store := newKeyring(), newJoiner()
				token := ring.issue(t)
				runs := 0
				h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store, idem.Options{Join: true}), Timeout: time.Second, MaxResponse: 512}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					insert(r.Context(), fmt.Sprint("row ", runs))
					if runs == 1 {
						row.handle(w, r)
					}
				}))
				var sent *httptest.ResponseRecorder
				ask := func() (o outcome) {
					defer func() {
						if p := recover(); p != nil && p != http.ErrAbortHandler {
							t.Errorf("panic: %v", p)
						}
					}()
					sent = httptest.NewRecorder()
					h.ServeHTTP(sent, request("POST", "/", token, "{}", "Idempotency-Key: a"))
					if sent.Header().Get("Content-Type") == "application/problem+json" {
						if sent.Header().Get("Location") != "" {
							t.Error("the refusal has a header of the handler")
						}
						return outcome{sent.Code, answer{sent.Result(), sent.Body.String()}.problem(t).Code, ""}
					}
					return outcome{sent.Code, "", sent.Body.String()}
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
				store.commit = nil
				got := ask()
				if row.again {
					if want := (outcome{200, "", ""}); got != want || runs != 2 || len(store.committed()) != 1 {
						t.Errorf("repeat: %v with %d runs and rows %q, want a second run alone to count", got, runs, store.committed())
					}
				} else if got != row.repeat || runs != 1 || len(store.committed()) != row.rows {
					t.Errorf("repeat: %v with %d runs and rows %q, want %v", got, runs, store.committed(), row.repeat)
				}
			})
		})
	}
}

// TestFailedCommitsAreSampled: each cause has one line a second, with the
// number of those in between.
func TestFailedCommitsAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, store, log := newKeyring(), newJoiner(), newLogged()
		h := keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store, idem.Options{Join: true})}}, http.HandlerFunc(sayOK))
		token := ring.issue(t)
		for second := range 2 {
			for i := range 20 {
				for _, err := range []error{idem.ErrCommitUnknown, errors.New("refused")} {
					store.commit = func(_, undo func()) error { undo(); return err }
					serve(h, request("POST", "/", token, "{}", "Idempotency-Key: "+fmt.Sprint(second, i, err)))
				}
			}
			time.Sleep(time.Second)
		}
		for _, text := range []string{"the database did not say whether a transaction was committed", "a transaction was not committed"} {
			if n := strings.Count(log.String(), text); n != 2 {
				t.Errorf("%d lines in two seconds say that %s, want 2\n%s", n, text, log)
			}
		}
		if n := strings.Count(log.String(), "unlogged=19"); n != 2 {
			t.Errorf("%d lines count the 19 before them, want 2\n%s", n, log)
		}
	})
}

// TestNoTurn: a request that got no transaction in time, because others had
// them all, is told so. Nothing is said of the store.
func TestNoTurn(t *testing.T) {
	ring, store, log := newKeyring(), newJoiner(), newLogged()
	store.noTurn = true
	h := keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store, idem.Options{Join: true})}}, http.NotFoundHandler())
	a := serve(h, request("POST", "/", ring.issue(t), "{}", "Idempotency-Key: a"))
	wantRefusal(t, "no turn", a, 503, "too_many_in_flight", "")
	if a.Header.Get("Retry-After") != "1" || strings.Contains(a.body, "organization") {
		t.Errorf("Retry-After %q, %s, want 1 and nothing of this organization", a.Header.Get("Retry-After"), a.body)
	}
}

// TestJoinedDuplicates: a repeat waits for the transaction, also for one that
// ends without a trace, and then runs.
func TestJoinedDuplicates(t *testing.T) {
	for _, first := range []int{201, 500} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ring, store := newKeyring(), newJoiner()
				token := ring.issue(t)
				runs := 0
				h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store, idem.Options{Join: true})}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					insert(r.Context(), fmt.Sprint("row ", runs))
					time.Sleep(time.Second)
					if runs == 1 {
						w.WriteHeader(first)
					} else {
						w.WriteHeader(201)
					}
				}))
				answers := make(chan answer, 3)
				for range 3 {
					go func() { answers <- serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a")) }()
					synctest.Wait()
				}
				statuses := map[int]int{}
				for range 3 {
					statuses[(<-answers).StatusCode]++
				}
				if got := store.committed(); len(got) != 1 || statuses[201] != 3-statuses[500] || statuses[500] != runs-1 {
					t.Errorf("%d runs, statuses %v, rows %q, want one row and every other client its reply", runs, statuses, got)
				}
			})
		})
	}
}
