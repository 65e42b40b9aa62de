package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// waitUntil polls for what happens soon; it fails the test when it never does.
func waitUntil(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hangs); !happened(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", hangs, what)
		}
	}
}

// joiner is a Store with transactions, in memory: the rows that a handler
// writes with insert are there for others once Settle has committed.
type joiner struct {
	*idem.Memory

	mu       sync.Mutex
	rows     []string
	contexts int // how many were made
	// noTurn says that no Join gets a turn.
	noTurn bool
	// ending, when set, is told when a transaction is about to end.
	ending func()
	// commit, when set, stands in for COMMIT: it makes it happen by do or fail
	// by undo, and the error is what the database says.
	commit func(do, undo func()) error
}

func newJoiner() *joiner { return &joiner{Memory: &idem.Memory{}} }

func (j *joiner) committed() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.rows)
}

func (j *joiner) Join(ctx context.Context, c idem.Claim, _ time.Duration) (idem.Record, idem.Transaction, error) {
	if j.noTurn {
		return idem.Record{}, nil, fmt.Errorf("busy: %w", idem.ErrNoTurn)
	}
	record, err := j.Begin(ctx, c)
	if err != nil || record.State != idem.Claimed {
		return record, nil, err
	}
	return record, &transaction{store: j, claim: c}, nil
}

type transaction struct {
	store *joiner
	claim idem.Claim
	rows  []string
}

type transactionKey struct{}

// insert writes a row within the transaction that ctx carries.
func insert(ctx context.Context, row string) {
	tx := ctx.Value(transactionKey{}).(*transaction)
	tx.rows = append(tx.rows, row)
}

func (tx *transaction) Context(parent context.Context) context.Context {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	tx.store.contexts++
	return context.WithValue(parent, transactionKey{}, tx)
}

func (tx *transaction) Settle(ctx context.Context, s idem.Settlement) error {
	end := func(s idem.Settlement) {
		if err := tx.store.Memory.Settle(context.Background(), tx.claim.Key, tx.claim.Token, s); err != nil {
			panic(err)
		}
		if s.Outcome == idem.OutcomeDone && !s.RollBack {
			tx.store.mu.Lock()
			tx.store.rows = append(tx.store.rows, tx.rows...)
			tx.store.mu.Unlock()
		}
	}
	if tx.store.ending != nil {
		tx.store.ending()
	}
	if s.Outcome == idem.OutcomeDone && tx.store.commit != nil {
		return tx.store.commit(func() { end(s) }, func() { end(idem.Settlement{Outcome: idem.OutcomeFree, Retention: 1}) })
	}
	end(s)
	return nil
}

// events is a handler that flushes its header and then n events, one each pause,
// as long as its context lives, and then tells why it ended.
func events(n int, pause time.Duration, ended func(r *http.Request, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Location", "/streams/1")
		w.WriteHeader(http.StatusCreated)
		_ = http.NewResponseController(w).Flush()
		for i := range n {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				ended(r, err)
				return
			}
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				ended(r, r.Context().Err())
				return
			}
		}
		w.Header().Set(http.TrailerPrefix+"X-Events", fmt.Sprint(n))
		ended(r, nil)
	}
}

func eventText(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "data: %d\n\n", i)
	}
	return b.String()
}

// letters is a body of the given length that takes no memory by itself.
type letters struct{ left int }

func (l *letters) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), l.left)]
	for i := range p {
		p[i] = 'a'
	}
	l.left -= len(p)
	return len(p), nil
}

func lettersRequest(token string, size int) *http.Request {
	r := httptest.NewRequest("POST", "/", &letters{size})
	r.ContentLength = int64(size)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Idempotency-Key", "a")
	return r
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // for what pools keep through one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// keyed puts h behind the stages that Idempotency needs, for any key.
func keyed(ring *keyring, o middleware.Options, h http.HandlerFunc) http.Handler {
	if o.Hooks == nil {
		o.Hooks = quiet()
	}
	if o.Idempotency.Runner == nil {
		o.Idempotency.Runner = replies()
	}
	g := middleware.New(ring.keys, o)
	return middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.Enforce(middleware.AnyCaller()), g.Idempotent)(h)
}

// numbered is a create whose response tells which run it was.
func numbered(runs *atomic.Int64, before func(*http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := runs.Add(1)
		if before != nil {
			before(r)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", fmt.Sprintf("/tasks/%d", n))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":"task_%d"}`, n)
	}
}

// keyedRequest is a create of "{}".
func keyedRequest(t testing.TB, url, token, key string) *http.Request {
	r := newRequest(t, "POST", url, token, strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", key)
	return r
}

// outcome is what clients get for the first request of a key and for a repeat.
// A status of 0 is a response that does not come to its end.
type outcome struct {
	status int
	code   string // of a problem
	body   string // else
}

// What refusals say in place of a response.
var (
	internal    = outcome{500, "internal", ""}
	unavailable = outcome{503, "idempotency_store_unavailable", ""}
	unknown     = outcome{409, "idempotency_outcome_unknown", ""}
	notRetained = outcome{409, "idempotency_response_not_retained", ""}
)

func (o outcome) String() string { return fmt.Sprintf("%d %s%s", o.status, o.code, o.body) }

// outcomeOf sends a request and reads the answer as far as it comes.
func outcomeOf(t *testing.T, client *http.Client, r *http.Request) (outcome, http.Header) {
	t.Helper()
	res, err := client.Do(r)
	if err != nil {
		return outcome{}, nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return outcome{}, res.Header
	}
	if res.Header.Get("Content-Type") == "application/problem+json" {
		return outcome{res.StatusCode, answer{res, string(body)}.problem(t).Code, ""}, res.Header
	}
	return outcome{res.StatusCode, "", string(body)}, res.Header
}

// deadlineWriter keeps the write deadline that it is given.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *deadlineWriter) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

// The options of the two stages that have most of them.
type (
	keyedOptions = middleware.IdempotencyOptions
	rateOptions  = middleware.RateLimitOptions
)

// with returns options with idempotency alone.
func with(o keyedOptions) middleware.Options { return middleware.Options{Idempotency: o} }

// logging returns options with idempotency and a log.
func logging(log *logged, o keyedOptions) middleware.Options {
	return middleware.Options{Hooks: log.hooks(), Idempotency: o}
}

// joining is a runner on a store with transactions.
func joining(store idem.Store) *idem.Runner { return runnerOf(store, idem.Options{Join: true}) }

// post is a create of "{}" under a key.
func post(token, key string, lines ...string) *http.Request {
	return request("POST", "/", token, "{}", append(lines, "Idempotency-Key: "+key)...)
}

// wirePost is a create of "{}" under the key a, as a client sends it.
func wirePost(srv *httptest.Server, token string) string {
	return "POST / HTTP/1.1\r\nHost: " + srv.Listener.Addr().String() + "\r\nAuthorization: Bearer " + token +
		"\r\nIdempotency-Key: a\r\nContent-Length: 2\r\n\r\n{}"
}

// site is a handler behind the stages that Idempotency needs, with a caller and
// a log.
type site struct {
	http.Handler
	token string
	log   *logged
}

func newSite(t testing.TB, o keyedOptions, h http.HandlerFunc) *site {
	ring, log := newKeyring(), newLogged()
	return &site{keyed(ring, logging(log, o), h), ring.issue(t), log}
}

func (s *site) post(key string, lines ...string) answer {
	return serve(s, post(s.token, key, lines...))
}

// outcome is what the client has got.
func (a answer) outcome(t *testing.T) outcome {
	if a.Header.Get("Content-Type") == "application/problem+json" {
		return outcome{a.StatusCode, a.problem(t).Code, ""}
	}
	return outcome{a.StatusCode, "", a.body}
}

func (a answer) replayed() bool { return a.Header.Get("Idempotent-Replayed") == "true" }
