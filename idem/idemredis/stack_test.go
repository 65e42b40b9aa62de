package idemredis_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// quiet keeps what is expected out of the log.
var quiet = slog.New(slog.DiscardHandler)

// stack is all stages, with their replies in a Redis, and a handler that
// creates.
type stack struct {
	*middleware.API
	token  string
	runner *idem.Runner
}

func newStack(t testing.TB, client redis.UniversalClient, o idem.Options, create http.HandlerFunc) *stack {
	t.Helper()
	keys := issuing.NewMemory()
	secret, _, err := issuing.New(keys, issuing.Options{}).Issue(t.Context(), keystore.Key{
		Organization: "org_1", Environment: keystore.Production, Name: "test",
		Scopes: []scope.Name{scope.AccountRead, scope.TasksWrite},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Logger = quiet
	s := &stack{token: secret.Reveal(), runner: idem.NewRunner(idemredis.New(client, idemredis.Options{}), o)}
	s.API = middleware.NewAPI(keys, middleware.Options{
		RateLimit:   middleware.PerOrganization("1000000-S"), // no loop is that fast
		Idempotency: middleware.IdempotencyOptions{Runner: s.runner},
		Hooks:       &middleware.Hooks{Logger: quiet},
	})
	s.Handle("GET /api/v1/account", middleware.Require(scope.AccountRead),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	s.Handle("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), create)
	return s
}

func (s *stack) request(method, path, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	r.Header.Set("Authorization", "Bearer "+s.token)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func (s *stack) post(key string) *httptest.ResponseRecorder {
	return s.request("POST", "/api/v1/tasks", key)
}

// ask makes a keyed request. In these tests it would take an hour if it waited
// for Redis.
func (s *stack) ask(t *testing.T, key string) *httptest.ResponseRecorder {
	t.Helper()
	w := s.post(key)
	switch w.Code {
	case 201:
	case 409, 503:
		unknown := strings.Contains(w.Body.String(), "idempotency_outcome_unknown")
		if (w.Header().Get("Retry-After") == "") != unknown {
			t.Errorf("%s: got %d with Retry-After: %q\n%s", key, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	default:
		t.Errorf("%s: got %d\n%s", key, w.Code, w.Body)
	}
	return w
}

func (s *stack) mustGet(t *testing.T, key string, status int) {
	t.Helper()
	if w := s.ask(t, key); w.Code != status {
		t.Errorf("%s: got %d, want %d\n%s", key, w.Code, status, w.Body)
	}
}

// succeeds asks until the answer is 201: on a slow machine a Redis that answers
// may need longer than the timeout.
func (s *stack) succeeds(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		redistest.Eventually(t, key+" succeeds", func() bool { return s.ask(t, key).Code == 201 })
	}
}

// mustSaveAll waits until nothing is left to be saved.
func mustSaveAll(t *testing.T, r *idem.Runner) {
	t.Helper()
	bounded, cancel := context.WithTimeout(t.Context(), redistest.Patience)
	defer cancel()
	if err := r.WaitSettled(bounded); err != nil {
		t.Fatalf("what waited to be saved: %v", err)
	}
}

// rows is what handlers have created, by idempotency key.
type rows struct {
	mu    sync.Mutex
	of    map[string]int
	after map[string]func() // what else happens while the handler runs
}

func newRows() *rows { return &rows{of: map[string]int{}, after: map[string]func(){}} }

func (r *rows) create(w http.ResponseWriter, q *http.Request) {
	key := q.Header.Get("Idempotency-Key")
	r.mu.Lock()
	r.of[key]++
	after := r.after[key]
	r.mu.Unlock()
	if after != nil {
		after()
	}
	w.WriteHeader(http.StatusCreated)
	w.Write([]byte("task " + key))
}

// mustBeOneEach holds that every key which was answered with 201 made one row,
// and no other made more.
func (r *rows) mustBeOneEach(t *testing.T, answered ...string) {
	t.Helper()
	for key, n := range r.of {
		if n > 1 {
			t.Errorf("key %s: %d rows", key, n)
		}
	}
	for _, key := range answered {
		if n := r.of[key]; n != 1 {
			t.Errorf("key %s was answered with 201: %d rows", key, n)
		}
	}
}
