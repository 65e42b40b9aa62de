package idemclient_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem/idemclient"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// chaos stands before an API and counts what its handler creates. Each request
// says which operation it belongs to and what goes wrong with it.
type chaos struct {
	api http.Handler

	mu      sync.Mutex
	creates map[string]int // of each operation
	sent    map[string]int
	keys    map[string]string
	wrong   []string
}

func newChaos(t *testing.T) *chaos {
	c := &chaos{creates: map[string]int{}, sent: map[string]int{}, keys: map[string]string{}}
	caller, err := keystore.NewCaller(nil, keystore.Identity{
		Organization: "org_1", Scopes: []scope.Name{scope.TasksWrite, scope.TasksRead},
	})
	if err != nil {
		t.Fatal(err)
	}
	api := middleware.NewAPI(nil, middleware.Options{
		Authenticate: func(*http.Request) (*keystore.Caller, error) { return caller, nil },
		Hooks:        &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)},
	})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), c.create)
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "read ", r.Header.Get("Operation"))
	})
	c.api = api
	return c
}

// create is the handler: the task is there once it is counted.
func (c *chaos) create(w http.ResponseWriter, r *http.Request) {
	var task struct{ Operation string }
	if err := json.NewDecoder(r.Body).Decode(&task); err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	fault := r.Header.Get("Fault") // what the server in front has left to the handler
	if fault == "the handler breaks off before" {
		panic(http.ErrAbortHandler)
	}
	if fault == "the handler refuses" {
		http.Error(w, "refused", http.StatusUnprocessableEntity)
		return
	}
	if wait, err := time.ParseDuration(fault); err == nil {
		time.Sleep(wait)
	}
	c.mu.Lock()
	c.creates[task.Operation]++
	c.mu.Unlock()
	switch fault {
	case "the handler breaks off after":
		panic(http.ErrAbortHandler)
	case "the handler fails after":
		http.Error(w, "failed", 500)
		return
	}
	w.WriteHeader(201)
	if fault == "the answer is long" {
		fmt.Fprint(w, strings.Repeat("-", 10000))
	}
	fmt.Fprint(w, "created ", task.Operation)
}

var retryAfters = []string{"0", "1", "17", "2.5", "-3", "soon", "", " ", "+1", "1, 2", "Sat, 01 Jan 2000 00:00:00 GMT",
	"Thursday, 01-Jan-70 00:00:00 GMT", "99999999999999999999999", "31536000", "Fri, 31 Dec 9999 23:59:59 GMT"}

var faults = []string{"", "", "cut before", "cut after", "a declared body breaks off", "a stream breaks off",
	"the handler breaks off before", "the handler breaks off after", "the handler fails after", "the handler refuses",
	"twice", "twice at once", "late", "3s", "8s", "25s", "the answer is long", "refused", "lies", "conflict", "408", "429",
	"500", "502", "503", "504", "504 after"}

// refuses has the faults with which the server in front answers by itself.
var refuses = map[string]int{"refused": 401, "lies": 400, "conflict": 409, "504 after": 504,
	"408": 408, "429": 429, "500": 500, "502": 502, "503": 503, "504": 504}

func (c *chaos) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	operation, body := r.Header.Get("Operation"), new(bytes.Buffer)
	if _, err := body.ReadFrom(r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	key := r.Header.Get("Idempotency-Key") + " " + body.String()
	c.mu.Lock()
	n := c.sent[operation]
	c.sent[operation]++
	if n == 0 {
		c.keys[operation] = key
	} else if key != c.keys[operation] {
		c.wrong = append(c.wrong, fmt.Sprintf("operation %s: %q, then %q", operation, c.keys[operation], key))
	}
	c.mu.Unlock()
	fault, waits := "", rand.New(rand.NewPCG(uint64(n), uint64(crc32.ChecksumIEEE([]byte(operation)))))
	if all := strings.Split(r.Header.Get("Faults"), "|"); n < len(all) {
		fault = all[n]
	}
	served := func() *httptest.ResponseRecorder {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body.Bytes()))
		again.Header.Set("Fault", fault)
		recorder := httptest.NewRecorder()
		c.api.ServeHTTP(recorder, again)
		return recorder
	}
	if code := refuses[fault]; code > 0 {
		switch fault {
		case "504 after":
			served()
		case "lies":
			w.Header().Set("X-Should-Retry", "true")
		case "conflict":
			w.Header().Set("Retry-After", "1")
		}
		if wait := retryAfters[waits.IntN(len(retryAfters))]; waits.IntN(2) == 0 {
			w.Header().Set("Retry-After", wait)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, fault)
		return
	}
	reply, declared := (*httptest.ResponseRecorder)(nil), true
	switch fault {
	case "cut before":
		panic(http.ErrAbortHandler)
	case "cut after":
		served()
		panic(http.ErrAbortHandler)
	case "a declared body breaks off", "a stream breaks off":
		reply, declared = served(), fault == "a declared body breaks off"
	case "twice":
		served()
		reply = served()
	case "twice at once":
		done := make(chan bool)
		go func() {
			defer close(done)
			served()
		}()
		reply = served()
		<-done
	case "late":
		reply = served()
		time.Sleep(9 * time.Second)
	default:
		reply = served()
	}
	for name, values := range reply.Header() {
		w.Header()[name] = values
	}
	if text := reply.Body.Bytes(); strings.HasSuffix(fault, "breaks off") {
		if w.Header().Del("Content-Length"); declared {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		}
		w.WriteHeader(reply.Code)
		w.Write(text[:len(text)/2])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(reply.Code)
	reply.Body.WriteTo(w)
}

// Whatever goes wrong on the way, no operation creates twice. What the caller
// is told is true: a success created one, a refusal none; otherwise the same
// key finds out. The faults are those of the operation's number.
func TestNothingIsDoneTwice(t *testing.T) {
	const operations, workers = 2000, 8 // over each protocol
	onBoth(t, func(t *testing.T, protocol string) {
		c := newChaos(t)
		base := serve(t, protocol, c)
		base.ResponseHeaderTimeout = 6 * time.Second
		transport := &idemclient.Transport{Base: base, RetryShare: 10, MaxTries: 5}
		var mu sync.Mutex
		kinds := map[string]int{}
		run := func(n int) {
			operation, random := fmt.Sprintf("%s-%d", protocol, n), rand.New(rand.NewPCG(uint64(n), 0))
			var wrong []string
			for range random.IntN(5) {
				wrong = append(wrong, faults[random.IntN(len(faults))])
			}
			r := post(t, t.Context(), `{"Operation":"`+operation+`"}`)
			r.URL.Path = "/api/v1/tasks"
			r.Header.Set("Operation", operation)
			r.Header.Set("Faults", strings.Join(wrong, "|"))
			switch random.IntN(3) {
			case 0:
				r = r.WithContext(idemclient.WithKey(r.Context(), operation))
			case 1:
				r.GetBody, r.ContentLength = nil, -1
			}
			reads := n%10 == 0
			if reads {
				r.Method, r.Body, r.GetBody, r.ContentLength = "GET", nil, nil, 0
			}
			code, body, err := read(transport, r)
			got := kind(code, err)
			c.mu.Lock()
			creates := c.creates[operation]
			key, _, _ := strings.Cut(c.keys[operation], " ")
			c.mu.Unlock()
			least, most := 0, 1 // of an unknown outcome
			switch {
			case reads || got[0] == '4' && code != 409 || got == "error":
				most = 0
			case got == "201":
				least = 1
			case code > 0 && err == nil && code < 400:
				t.Errorf("operation %s: got %s", operation, got)
			}
			if creates < least || creates > most || got == "201" && !strings.HasSuffix(body, operation) {
				t.Errorf("operation %s (%q): got %s %.60q, %v and %d creates, want %d to %d", operation, wrong, got, body, err,
					creates, least, most)
			}
			if unknown, ok := errors.AsType[*idemclient.UnknownError](err); ok && unknown.Key != key {
				t.Errorf("operation %s: the error names the key %q, want %q", operation, unknown.Key, key)
			}
			mu.Lock()
			kinds[got]++
			mu.Unlock()
			if least == most {
				return
			}

			// The same key finds out, when nothing goes wrong any more.
			r = r.WithContext(idemclient.WithKey(t.Context(), key))
			r.Header.Del("Faults")
			for code, err = 0, errDown; err != nil || strings.Contains(body, "in_progress"); {
				r.Body, r.GetBody = io.NopCloser(strings.NewReader(`{"Operation":"`+operation+`"}`)), nil
				code, body, err = read(transport, r)
			}
			c.mu.Lock()
			creates = c.creates[operation]
			c.mu.Unlock()
			switch got := kind(code, err); {
			case got == "201" && creates == 1, got == "500" && creates == 1, // the stored answers
				got == "409" && creates <= 1 && strings.Contains(body, "outcome_unknown"),
				got == "422" && creates == 0:
			default:
				t.Errorf("operation %s (%q), again: got %s %.60q, %v and %d creates", operation, wrong, got, body, err, creates)
			}
		}
		var all sync.WaitGroup
		for worker := range workers {
			all.Go(func() {
				for n := worker; n < operations; n += workers {
					run(n)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Minute) // the last handlers end
		synctest.Wait()
		for _, wrong := range c.wrong {
			t.Error(wrong)
		}
		for _, want := range []string{"200", "201", "401", "409", "422", "429", "503", "unknown"} {
			if kinds[want] == 0 {
				t.Errorf("no operation ended as %s: %v", want, kinds)
			}
		}
		if kinds["201"] < operations/2 {
			t.Errorf("of %d operations %d were done: %v", operations, kinds["201"], kinds)
		}
		t.Log(protocol, kinds)
	})
}
