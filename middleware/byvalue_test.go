package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestJSONByValueInAFleet switches the option on and off between a request and
// its repeats in another process: a repeat with the same bytes is never another
// request, and one with the same value where the first was known by it.
func TestJSONByValueInAFleet(t *testing.T) {
	larger, largest := strings.Repeat("x", 20<<10), strings.Repeat("x", 64<<10) // which has no value
	for _, first := range []bool{false, true} {
		for _, then := range []bool{false, true} {
			for _, state := range []string{"done", "in progress", "unknown", "taken over"} {
				t.Run(fmt.Sprintf("%t, then %t, %s", first, then, state), func(t *testing.T) {
					bodies := []string{`{"a":1,"b":2}`, `{"a":1,"b":2,"c":"` + larger + `"}`, `{"a":1,"b":2,"c":"` + largest + `"}`}
					if state == "taken over" {
						bodies = bodies[:2] // without its body a request takes nothing over: it is told to come again
					}
					for _, body := range bodies {
						synctest.Test(t, func(t *testing.T) {
							f := newFormFleet(t, state)
							one, two, three := f.serve(first), f.serve(then), f.serve(!then)
							again := strings.NewReplacer(`"a":1,"b":2`, `"b":2.0, "a":1`).Replace(body)
							if state == "in progress" {
								go serve(one, f.post(body))
								time.Sleep(time.Second / 10) // until it runs
								time.AfterFunc(time.Second, func() { close(f.release) })
							} else {
								aborts(one, httptest.NewRecorder(), f.post(body))
							}
							for _, h := range []http.Handler{two, three, two, one} {
								want := map[string]int{"done": 201, "in progress": 201, "unknown": 409, "taken over": 201}[state]
								for repeat, same := range map[string]bool{
									body: true, again: first && len(body) <= 64<<10, strings.Replace(body, "2", "3", 1): false,
								} {
									wanted := want
									if !same {
										wanted = 422
									}
									var both sync.WaitGroup
									for range 2 {
										both.Go(func() {
											wantAnswer(t, fmt.Sprintf("%.20q", repeat), serve(h, f.post(repeat)), wanted)
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
	f := &formFleet{state: state, release: make(chan struct{})}
	f.ring, f.token = oneKey(t)
	// Not known to be in this process; duplicates wait for it, in a bubble.
	f.store = tapped{Store: &idem.Memory{}, begins: func() { time.Sleep(time.Millisecond) }}
	f.options.Reexecute = state == "taken over"
	return f
}

func (f *formFleet) serve(byValue bool) http.Handler {
	o := keyedOptions{Runner: runnerOf(f.store, f.options), JSONByValue: byValue}
	return keyed(f.ring, middleware.Options{Hooks: quiet(), Idempotency: o}, f.create)
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

// TestCostOfJSON: another body under a used key, and a repeat that waits, take
// no more memory for JSON than for text, unless the option is on and the body
// has a value; and a mismatch is one question to the store.
func TestCostOfJSON(t *testing.T) {
	shapes := func(size int) map[string]string {
		var members strings.Builder
		for n := 0; members.Len() < size-20; n++ {
			fmt.Fprintf(&members, `"%x":1,`, n)
		}
		long := strings.Repeat("x", size-99*12-2)
		return map[string]string{
			"members": "{" + members.String() + `"":1}`,
			"string":  `{"a":"` + strings.Repeat("x", size-8) + `"}`,
			"deep":    strings.Repeat(`{"b":`, 99) + `"` + long + `"` + strings.Repeat(`,"a":1}`, 99),
		}
	}
	for _, size := range []int{60 << 10, 1 << 20} {
		for name, body := range shapes(size) {
			for _, on := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d %s, on %t", size, name, on), func(t *testing.T) {
					text, json := costOf(t, on, body, "text/plain"), costOf(t, on, body, "application/json")
					for i, what := range []string{"a mismatch", "a repeat that waits"} {
						most := text[i] * 3 / 2
						if on && size <= 64<<10 {
							most = text[i] + 20*uint64(size) + 4<<10
						}
						if json[i] > most {
							t.Errorf("%s takes %d bytes, that of text %d", what, json[i], text[i])
						}
					}
				})
			}
		}
	}
}

// costOf returns how many bytes are allocated for a mismatch and for a repeat
// that waits.
func costOf(t *testing.T, on bool, body, mediaType string) (costs [2]uint64) {
	synctest.Test(t, func(t *testing.T) {
		faulty, block := idemtest.NewFaulty(&idem.Memory{}), make(chan struct{})
		s := newSite(t, keyedOptions{JSONByValue: on, MaxBody: 2 << 20,
			Runner: runnerOf(faulty, idem.Options{Wait: time.Second})},
			func(_ http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Idempotency-Key") == "waits" {
					<-block
				}
			})
		send := func(key, body string) int {
			return serve(s, request("POST", "/", s.token, body, "Idempotency-Key: "+key, "Content-Type: "+mediaType)).StatusCode
		}
		send("mismatch", "{}")
		go send("waits", body)
		synctest.Wait()
		for i, row := range []struct {
			key    string
			status int
			asks   int
		}{{"mismatch", 422, 1}, {"waits", 409, 0}} {
			const times = 5
			var before, after runtime.MemStats
			asked := faulty.Calls(idemtest.Begin)
			for n := range times + 1 {
				if n == 1 { // the first fills pools
					runtime.ReadMemStats(&before)
				}
				if got := send(row.key, body); got != row.status {
					t.Fatalf("%s: got %d, want %d", row.key, got, row.status)
				}
			}
			runtime.ReadMemStats(&after)
			costs[i] = (after.TotalAlloc - before.TotalAlloc) / times
			if asked = faulty.Calls(idemtest.Begin) - asked; asked != row.asks*(times+1) {
				t.Errorf("%s: the store was asked %d times for %d requests", row.key, asked, times+1)
			}
		}
		close(block)
	})
	return costs
}

// TestManyValues: a repeat for whose value there is no room, or no time, is
// told to come again, and is never another request.
func TestManyValues(t *testing.T) {
	ring := newKeyring()
	token, store := ring.issue(t), &idem.Memory{}
	var runs atomic.Int64
	process := func(on bool) http.Handler {
		return keyed(ring, with(keyedOptions{Runner: runnerOf(store), JSONByValue: on, MaxBody: 1 << 20,
			MaxBodies: 2 << 20}), numbered(&runs, nil))
	}
	body := "[" + strings.Repeat("1,", 30<<10) + "1]"
	send := func(h http.Handler) answer {
		return serve(h, request("POST", "/", token, body, "Idempotency-Key: a", "Content-Type: application/json"))
	}
	on, off := process(true), process(false)
	if a := send(on); a.StatusCode != 201 {
		t.Fatalf("the first request: %d %s", a.StatusCode, a.body)
	}
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() {
			a := send([]http.Handler{on, off}[n%2])
			if !a.replayed() && (a.StatusCode != 503 || a.problem(t).Code != "too_many_in_flight" ||
				a.Header.Get("Retry-After") != "1") {
				t.Errorf("a repeat: %d %s", a.StatusCode, a.body)
			}
		})
	}
	all.Wait()
	for _, h := range []http.Handler{on, off} {
		if a := send(h); !a.replayed() {
			t.Errorf("afterwards: %d %s", a.StatusCode, a.body)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
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
