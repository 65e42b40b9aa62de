package retrytest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// bank is a service with a fake: what it was asked to do, by key and body.
type bank struct {
	mu   sync.Mutex
	done []string
}

func (b *bank) do(what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.done, what) {
		b.done = append(b.done, what)
	}
	return nil
}

func (b *bank) count(context.Context) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.done), nil
}

type server struct {
	*bank
	charge func(what string) error
}

// suite is that of a server without a database: the claims outlive a process in
// one Memory.
func suite(create func(s server, w http.ResponseWriter, r *http.Request)) retrytest.Suite {
	quiet := slog.New(slog.DiscardHandler)
	store, b := &idem.Memory{}, &bank{}
	return retrytest.Suite{
		Server: func(p *retrytest.Process) http.Handler {
			call := p.Conn(nil)
			s := server{b, func(what string) error {
				return call(context.Background(), "charge '"+what+"'", func() error { return b.do(what) }, nil)
			}}
			api := middleware.NewAPI(nil, middleware.Options{
				Authenticate: func(*http.Request) (*keystore.Caller, error) {
					return keystore.NewCaller(nil, keystore.Identity{Organization: "org_1"})
				},
				Idempotency: p.Idempotency(middleware.IdempotencyOptions{
					Runner: idem.NewRunner(store, idem.Options{Logger: quiet}),
				}),
				Hooks: &middleware.Hooks{Logger: quiet},
			})
			api.HandleFunc("POST /api/v1/charges", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
				create(s, w, r)
			})
			return api
		},
		Creates: []retrytest.Create{{Path: "/api/v1/charges", Body: "{{random}}"}},
		Effects: map[string]func(context.Context) (int, error){"charges": b.count},
	}
}

func charge(s server, w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if err := s.charge(string(body)); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	io.WriteString(w, "charged")
}

// recorder is a test whose failures are looked at.
type recorder struct {
	testing.TB
	logs, errors []string
}

type fatal struct{ text string }

func (r *recorder) Helper()                      {}
func (r *recorder) Logf(format string, a ...any) { r.logs = append(r.logs, fmt.Sprintf(format, a...)) }
func (r *recorder) Errorf(format string, a ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}
func (r *recorder) Fatal(a ...any)                 { panic(fatal{fmt.Sprint(a...)}) }
func (r *recorder) Fatalf(format string, a ...any) { panic(fatal{fmt.Sprintf(format, a...)}) }

// run returns the last words of a suite.
func run(t *testing.T, s retrytest.Suite) (r *recorder, died string) {
	r = &recorder{TB: t}
	defer func() {
		if f, ok := recover().(fatal); ok {
			died = f.text
		}
	}()
	s.Run(r)
	return r, ""
}

// The claim, the call and the settlement, each with its faults, and three cuts
// of the response.
func TestReport(t *testing.T) {
	const want = "POST /api/v1/charges  3 steps  21 faults  once 13  twice 0  lost 0  unknown 8"
	for range 3 {
		r, died := run(t, suite(charge))
		if len(r.logs) != 1 || r.logs[0] != want || r.errors != nil || died != "" {
			t.Errorf("got %q %q %q, want %q", r.logs, r.errors, died, want)
		}
	}
}

func TestSuitesThatCannotPass(t *testing.T) {
	once := sync.OnceFunc(func() {})
	runs := 0
	for _, test := range []struct {
		name   string
		create func(s server, w http.ResponseWriter, r *http.Request)
		change func(*retrytest.Suite)
		says   string
	}{
		{"refused", func(_ server, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, nil,
			"without a fault: 403"},
		{"no effect", func(_ server, w http.ResponseWriter, _ *http.Request) { once() }, nil, "without a fault: 200"},
		{"a step that does not come again", func(s server, w http.ResponseWriter, r *http.Request) {
			if runs++; runs == 2 {
				_ = s.charge("once")
			}
			charge(s, w, r)
		}, nil, "a fault never took effect: suite_test.go:"},
		{"an effect past the keys", func(s server, w http.ResponseWriter, r *http.Request) { charge(s, w, r) },
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
			r, died := run(t, s)
			text := died
			if r != nil {
				text += strings.Join(r.errors, "\n")
			}
			if !strings.Contains(text, test.says) {
				t.Errorf("got %q, want %q", text, test.says)
			}
		})
	}
}

// A success is final whatever it says of the time until there is more to see.
func TestAcceptedWithRetryAfter(t *testing.T) {
	r, died := run(t, suite(func(s server, w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := s.charge(string(body)); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusAccepted)
	}))
	if r == nil || r.errors != nil || died != "" {
		t.Errorf("got %v %q, want no failure", r, died)
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
	const want = "POST /api/v1/charges  3 steps  21 faults  once 13  twice 0  lost 0  unknown 8"
	if r, died := run(t, s); died != "" || len(r.logs) != 1 || r.logs[0] != want || r.errors != nil {
		t.Errorf("got %v %q, want %q", r, died, want)
	}
}
