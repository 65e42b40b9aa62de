package retrytest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/planted"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// service is a call of a payment service.
type service func(key string) error

// suite is that of a server without a database: the claims outlive a process in
// one Memory.
func suite(create func(s service, w http.ResponseWriter, r *http.Request)) retrytest.Suite {
	store, charges := &idem.Memory{}, &planted.Charges{}
	return retrytest.Suite{
		Server: func(p *retrytest.Process) http.Handler {
			call := p.Conn(nil)
			s := func(key string) error {
				return call(context.Background(), "charge '"+key+"'", func() error { return charges.Charge(key) }, nil)
			}
			return planted.Server(p, store, idem.Options{}, func(w http.ResponseWriter, r *http.Request) { create(s, w, r) })
		},
		Creates: planted.Parcels,
		Effects: map[string]func(context.Context) (int, error){"charges": charges.Count},
	}
}

func charge(s service, w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if err := s(string(body)); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	io.WriteString(w, "charged")
}

// mustReport wants the faults of claim, call and settlement, and three cuts.
func mustReport(t *testing.T, s retrytest.Suite) {
	t.Helper()
	const want = "POST /api/v1/parcels  3 steps  21 faults  once 13  twice 0  lost 0  unknown 8"
	if r := planted.Run(t, s); len(r.Logs) != 1 || r.Logs[0] != want || r.Errors != nil || r.Died != "" {
		t.Errorf("got %q %q %q, want %q", r.Logs, r.Errors, r.Died, want)
	}
}

func TestReport(t *testing.T) { mustReport(t, suite(charge)) }

// Early hints in front of the answer are no answer.
func TestEarlyHints(t *testing.T) {
	mustReport(t, suite(func(s service, w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		charge(s, w, r)
	}))
}

// called is a call of the service, with a context and a statement.
type called func(ctx context.Context, statement string, do func() error) error

// served is the suite of another server, and of another effect.
func served(
	o idem.Options, count func() int, create func(call called, w http.ResponseWriter, r *http.Request) error,
) retrytest.Suite {
	s, store := suite(charge), &idem.Memory{}
	s.Server = func(p *retrytest.Process) http.Handler {
		conn := p.Conn(nil)
		call := func(ctx context.Context, statement string, do func() error) error {
			return conn(ctx, statement, do, nil)
		}
		return planted.Server(p, store, o, func(w http.ResponseWriter, r *http.Request) {
			if create(call, w, r) != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
	}
	s.Effects["charges"] = func(context.Context) (int, error) { return count(), nil }
	return s
}

// A statement whose text changes from run to run is found by its line.
func TestTextsThatChange(t *testing.T) {
	var charges atomic.Int32
	changing := func(tries int) retrytest.Suite {
		count := func() int { return int(charges.Load()) }
		return served(idem.Options{}, count, func(call called, _ http.ResponseWriter, r *http.Request) (err error) {
			for range 2 {
				for n := 0; n == 0 || n < tries && err != nil; n++ {
					text := "charge by " + rand.Text()
					err = call(r.Context(), text, func() error { charges.Add(1); return nil }) // here: a text that changes
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	const want = "POST /api/v1/parcels  4 steps  27 faults  once 13  twice 0  lost 0  unknown 14"
	if r := planted.Run(t, changing(1)); len(r.Logs) != 1 || r.Logs[0] != want || r.Errors != nil {
		t.Errorf("got %q %q, want %q", r.Logs, r.Errors, want)
	}
	planted.MustAccuse(t, changing(2), "a text that changes", "within a request")
}

// A handler that is run again must know what it has made itself.
func TestConflictWithItsOwn(t *testing.T) {
	var charges sync.Map
	count := func() (n int) {
		charges.Range(func(any, any) bool { n++; return true })
		return n
	}
	planted.MustAccuse(t, served(idem.Options{Reexecute: true}, count,
		func(call called, w http.ResponseWriter, r *http.Request) error {
			body, _ := io.ReadAll(r.Body)
			return call(r.Context(), "charge", func() error { // here: conflict with its own
				if _, known := charges.LoadOrStore(string(body), true); known {
					w.WriteHeader(http.StatusConflict)
				}
				return nil
			})
		}), "conflict with its own", "answer 2xx")
}

func TestSuitesThatCannotPass(t *testing.T) {
	once := sync.OnceFunc(func() {})
	runs := 0
	for _, test := range []struct {
		name   string
		create func(s service, w http.ResponseWriter, r *http.Request)
		change func(*retrytest.Suite)
		says   string
	}{
		{"refused", func(_ service, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, nil,
			"without a fault: 403"},
		{"no effect", func(_ service, w http.ResponseWriter, _ *http.Request) { once() }, nil, "without a fault: 200"},
		{"a step that does not come again", func(s service, w http.ResponseWriter, r *http.Request) {
			if runs++; runs == 2 {
				_ = s("once")
			}
			charge(s, w, r)
		}, nil, "nor the count of its line came again in 5 runs"},
		{"an effect past the keys", func(s service, w http.ResponseWriter, r *http.Request) { charge(s, w, r) },
			func(s *retrytest.Suite) {
				inner := s.Server
				s.Server = func(p *retrytest.Process) http.Handler {
					h := inner(p)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						r.Header.Del("Idempotency-Key")
						r.Body = io.NopCloser(io.MultiReader(r.Body, strings.NewReader(fmt.Sprint(" ", w))))
						h.ServeHTTP(w, r)
					})
				}
			}, "is not safe to retry:\n\ntwice: 2 charges in place of 1"},
		{"no Server", charge, func(s *retrytest.Suite) { s.Server = nil }, "needs Server, Creates and Effects"},
		{"options of its own", charge, func(s *retrytest.Suite) {
			s.Server = func(*retrytest.Process) http.Handler { return http.NotFoundHandler() }
		}, "through Process.Idempotency"},
		{"no count", charge, func(s *retrytest.Suite) {
			s.Effects = map[string]func(context.Context) (int, error){
				"rows": func(context.Context) (int, error) { return 0, errors.New("no table") },
			}
		}, `the effects "rows" were not counted: no table`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := suite(test.create)
			if test.change != nil {
				test.change(&s)
			}
			r := planted.Run(t, s)
			text := r.Died + strings.Join(r.Errors, "\n")
			if !strings.Contains(text, test.says) {
				t.Errorf("got %q, want %q", text, test.says)
			}
		})
	}
}

// A success is final whatever it says of the time until there is more to see.
func TestAcceptedWithRetryAfter(t *testing.T) {
	r := planted.Run(t, suite(func(s service, w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := s(string(body)); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusAccepted)
	}))
	if r.Errors != nil || r.Died != "" {
		t.Errorf("got %q %q, want no failure", r.Errors, r.Died)
	}
}

// joiner is the store of another route, where nothing is created.
type joiner struct{ *idem.Memory }

func (joiner) Join(context.Context, idem.Claim, time.Duration) (idem.Record, idem.Transaction, error) {
	return idem.Record{}, nil, errors.ErrUnsupported
}

// A create by leases gets all faults of them, also in a server with a joined
// route.
func TestRoutesOfBothModes(t *testing.T) {
	s := suite(charge)
	inner := s.Server
	s.Server = func(p *retrytest.Process) http.Handler {
		h := inner(p)
		p.Idempotency(middleware.IdempotencyOptions{Runner: idem.NewRunner(
			joiner{&idem.Memory{}}, idem.Options{Join: true})})
		return h
	}
	mustReport(t, s)
}

// On a slow machine a context may end long after its claim was lost.
func TestAContextThatEndsLate(t *testing.T) {
	var mu sync.Mutex
	charges := map[string]int{}
	count := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, some := range charges {
			n += some
		}
		return n
	}
	s := served(idem.Options{Reexecute: true}, count, func(call called, _ http.ResponseWriter, r *http.Request) error {
		key := r.Header.Get("Idempotency-Key")
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		context.AfterFunc(r.Context(), func() { time.AfterFunc(time.Second, cancel) })
		change := func(f func()) error {
			return call(ctx, "change", func() error {
				mu.Lock()
				defer mu.Unlock()
				if ctx.Err() == nil {
					f()
				}
				return ctx.Err()
			})
		}
		if middleware.ExecutionFrom(r.Context()).Attempt() > 1 {
			_ = change(func() { delete(charges, key) })
		}
		return change(func() { charges[key]++ })
	})
	if r := planted.Run(t, s); r.Errors != nil || r.Died != "" {
		t.Errorf("got %q %q, want no failure", r.Errors, r.Died)
	}
}
