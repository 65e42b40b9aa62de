package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

var errDown = errors.New("the store is down")

// downKeys, downRates and downReplies are stores that can be switched off.
type downKeys struct {
	*keystore.Memory
	down atomic.Bool
}

func (s *downKeys) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	if s.down.Load() {
		return nil, errDown
	}
	return s.Memory.Lookup(ctx, d)
}

type downRates struct {
	ratelimit.Store
	down atomic.Bool
}

func (s *downRates) Take(ctx context.Context, takes []ratelimit.Charge) (ratelimit.Decision, error) {
	if s.down.Load() {
		return ratelimit.Decision{}, errDown
	}
	return s.Store.Take(ctx, takes)
}

type downReplies struct {
	idem.Store
	down atomic.Bool
}

func (s *downReplies) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	if s.down.Load() {
		return idem.Record{}, errDown
	}
	return s.Store.Begin(ctx, c)
}

// world is an API with one route of each kind, a key that may use them, and
// stores that can be switched off.
type world struct {
	keys    *downKeys
	rates   *downRates
	replies *downReplies
	ring    *keyring
	api     *middleware.API
	token   string // of a key of org_1 with all that the routes ask for
	log     *logged

	runs   atomic.Int64
	create atomic.Pointer[http.HandlerFunc] // what POST /api/v1/tasks does after it was counted

	mu     sync.Mutex
	events []middleware.Event
}

// newWorld opens a world; configure may change the options.
func newWorld(t testing.TB, configure func(*middleware.Options)) *world {
	t.Helper()
	w := &world{
		keys:    &downKeys{Memory: keystore.NewMemory()},
		rates:   &downRates{Store: ratelimit.NewMemory()},
		replies: &downReplies{Store: idem.NewMemory(idem.MemoryOptions{})},
		log:     newLogged(),
	}
	cached := keystore.NewCached(w.keys, keystore.CacheOptions{})
	w.ring = &keyring{keys: cached, memory: w.keys.Memory, issuer: keystore.NewIssuer(cached, keystore.IssuerOptions{})}
	w.token = w.ring.issue(t, scope.TasksWrite, scope.TasksRead)
	hooks := w.log.hooks()
	hooks.Observe = w.observe
	o := middleware.Options{
		RateLimit:   middleware.PerOrganization(w.rates, ratelimit.Limit{Count: 5, Period: time.Hour}),
		Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(w.replies, idem.Options{Wait: -1})},
		Hooks:       hooks,
	}
	if configure != nil {
		configure(&o)
	}
	w.api = middleware.NewAPI(cached, o)
	w.does(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/api/v1/tasks/task_1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":"task_1"}` + "\n"))
	})
	write, read := middleware.Require(scope.TasksWrite), middleware.Require(scope.TasksRead)
	w.api.HandleFunc("POST /api/v1/tasks", write, func(rw http.ResponseWriter, r *http.Request) {
		w.runs.Add(1)
		(*w.create.Load())(rw, r)
	})
	w.api.HandleFunc("GET /api/v1/tasks", read, func(rw http.ResponseWriter, r *http.Request) {})
	w.api.HandleFunc("POST /api/v1/batches/", write, func(rw http.ResponseWriter, r *http.Request) { w.runs.Add(1) })
	return w
}

// does sets what POST /api/v1/tasks does.
func (w *world) does(h http.HandlerFunc) { w.create.Store(&h) }

func (w *world) observe(_ context.Context, e middleware.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// last returns the event of a request.
func (w *world) last(id string) (last middleware.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.RequestID == id {
			last = e
		}
	}
	return last
}

// post is a keyed create with the world's token.
func (w *world) post(body string, lines ...string) *http.Request {
	return request("POST", "/api/v1/tasks", w.token, body, append([]string{"Idempotency-Key: key-1"}, lines...)...)
}
