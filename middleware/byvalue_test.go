package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestJSONByValueInAFleet switches the option on and off between a request and
// its repeats in another process: a repeat with the same bytes is never another
// request, and one with the same value where the first was known by it.
func TestJSONByValueInAFleet(t *testing.T) {
	large := strings.Repeat("x", 20<<10) // which a request that waits does not keep
	for _, first := range []bool{false, true} {
		for _, then := range []bool{false, true} {
			for _, state := range []string{"done", "in progress", "unknown", "taken over"} {
				t.Run(fmt.Sprintf("%t, then %t, %s", first, then, state), func(t *testing.T) {
					bodies := []string{`{"a":1,"b":2}`, `{"a":1,"b":2,"c":"` + large + `"}`}
					if state == "taken over" {
						bodies = bodies[:1] // without its body a request takes nothing over: it is told to come again
					}
					for _, body := range bodies {
						synctest.Test(t, func(t *testing.T) {
							f := newFormFleet(t, state)
							one, two := f.serve(first), f.serve(then)
							again := strings.NewReplacer(`"a":1,"b":2`, `"b":2.0, "a":1`).Replace(body)
							if state == "in progress" {
								go serve(one, f.post(body))
								time.Sleep(time.Second / 10) // until it runs
								time.AfterFunc(time.Second, func() { close(f.release) })
							} else {
								func() {
									defer func() { recover() }()
									serve(one, f.post(body))
								}()
							}
							for _, h := range []http.Handler{two, one} {
								want := map[string]int{"done": 201, "in progress": 201, "unknown": 409, "taken over": 201}[state]
								for repeat, same := range map[string]bool{
									body: true, again: first, strings.Replace(body, "2", "3", 1): false,
								} {
									wanted := want
									if !same {
										wanted = 422
									}
									var both sync.WaitGroup
									for range 2 {
										both.Go(func() {
											if got := serve(h, f.post(repeat)); got.StatusCode != wanted {
												t.Errorf("%.20q: got %d %.200s, want %d", repeat, got.StatusCode, got.body, wanted)
											}
										})
									}
									both.Wait()
								}
							}
							if runs := map[string]int{"taken over": 2}[state]; f.runs != max(runs, 1) {
								t.Errorf("it ran %d times", f.runs)
							}
						})
					}
				})
			}
		}
	}
}

// slowBegin is not known to be in this process, and lets duplicates wait.
type slowBegin struct{ idem.Store }

func (s slowBegin) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	time.Sleep(time.Millisecond) // of a bubble
	return s.Store.Begin(ctx, c)
}

// A formFleet is processes on one store, in which the first request with a key
// ends in a state.
type formFleet struct {
	ring    *keyring
	token   string
	store   idem.Store
	options idem.Options
	state   string
	runs    int
	release chan struct{}
}

func newFormFleet(t *testing.T, state string) *formFleet {
	f := &formFleet{ring: newKeyring(), state: state, release: make(chan struct{}),
		store: slowBegin{&idem.Memory{}}}
	f.token = f.ring.issue(t)
	f.options.Reexecute = state == "taken over"
	return f
}

func (f *formFleet) serve(byValue bool) http.Handler {
	o := keyedOptions{Runner: runnerOf(f.store, f.options), JSONByValue: byValue}
	return keyed(f.ring, middleware.Options{Hooks: quiet(), Idempotency: o}, http.HandlerFunc(f.create))
}

func (f *formFleet) create(w http.ResponseWriter, r *http.Request) {
	if _, err := io.ReadAll(r.Body); err != nil {
		panic(err)
	}
	switch f.runs++; {
	case f.state == "in progress":
		<-f.release
	case f.state == "unknown", f.state == "taken over" && f.runs == 1:
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(201)
}

func (f *formFleet) post(body string) *http.Request {
	return request("POST", "/", f.token, body, "Idempotency-Key: a", "Content-Type: application/json")
}

// What a request that ends in a mismatch is told, and what is echoed.
func TestMismatchStatusAndEcho(t *testing.T) {
	s := newSite(t, keyedOptions{MismatchStatus: 409, EchoKey: true, Required: true}, sayOK)
	first, again := s.post("a"), s.post("a")
	other := serve(s, request("POST", "/", s.token, "other", "Idempotency-Key: a"))
	if p := other.problem(t); p.Status != 409 || other.StatusCode != 409 || p.Title != "Conflict" ||
		p.Code != "idempotency_key_reused" || advice(other) != "false" {
		t.Errorf("another body: got %d, %+v, X-Should-Retry %s", other.StatusCode, p, advice(other))
	}
	for _, a := range []answer{first, again, other} {
		if got := a.Header["Idempotency-Key"]; len(got) != 1 || got[0] != "a" {
			t.Errorf("%d has the Idempotency-Key %q", a.StatusCode, got)
		}
	}
	for _, lines := range [][]string{nil, {"Idempotency-Key: "}, {"Idempotency-Key: a", "Idempotency-Key: b"}} {
		a := serve(s, request("POST", "/", s.token, "{}", lines...))
		if got := a.Header["Idempotency-Key"]; a.StatusCode != 400 || got != nil {
			t.Errorf("%q: got %d with the Idempotency-Key %q", lines, a.StatusCode, got)
		}
	}
	wantPanic(t, "MismatchStatus is 400; it is 422 or 409", func() {
		newSite(t, keyedOptions{MismatchStatus: 400}, sayOK)
	})
}
