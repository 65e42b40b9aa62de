package idemsql_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// server is the whole stack of stages in front of one handler, POST
// /api/v1/tasks, on one pool.
type server struct {
	*middleware.API
	db    *sql.DB
	store store
	token string
	join  bool         // requests have transactions
	runs  atomic.Int64 // of the handler
	log   *logged
}

// handler creates a task. What it may use is the database and, when it is
// joined, the transaction.
type handler func(w http.ResponseWriter, r *http.Request, s *server)

// options are those of a server. Where a test does not say otherwise, its times
// are longer than the slowest machine needs.
type options struct {
	idem.Options
	handler time.Duration // its timeout
	around  func(idem.Store) idem.Store
	charged bool // see charge_test.go
}

// joined are the options of most tests.
var joined = options{Options: idem.Options{Join: true}}

func newServer(t testing.TB, d database, o options, h handler) *server {
	t.Helper()
	return serverOn(t, d, d.open(t), idemsql.Options{}, o, h)
}

func serverOn(t testing.TB, d database, db *sql.DB, so idemsql.Options, o options, h handler) *server {
	t.Helper()
	s, err := makeServer(d, db, so, o, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func makeServer(d database, db *sql.DB, so idemsql.Options, o options, h handler) (*server, error) {
	s := &server{db: db, join: o.Join, log: &logged{}}
	logger := slog.New(slog.NewTextHandler(s.log, nil))
	so.Logger = logger
	s.store = d.on(db, so)
	keys := issuing.NewMemory()
	secret, _, err := issuing.New(keys, issuing.Options{}).Issue(context.Background(), keystore.Key{
		Organization: "org_1", Environment: keystore.Production, Name: "test", Scopes: []scope.Name{scope.TasksWrite},
	})
	if err != nil {
		return nil, err
	}
	s.token = secret.Reveal()
	o.Logger = logger
	o.Lease, o.Wait, o.Timeout = cmp.Or(o.Lease, patience), cmp.Or(o.Wait, patience), cmp.Or(o.Timeout, patience)
	replies := idem.Store(s.store)
	if o.around != nil {
		replies = o.around(replies)
	}
	s.API = middleware.NewAPI(keys, middleware.Options{
		Idempotency: middleware.IdempotencyOptions{
			Runner: idem.NewRunner(replies, o.Options), Timeout: cmp.Or(o.handler, patience),
		},
		Quota: middleware.QuotaOptions{Organization: o.quota()},
		Hooks: &middleware.Hooks{Logger: logger},
	})
	s.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		if err := o.addUnits(r.Context()); err != nil {
			panic(err)
		}
		h(w, r, s)
	}, o.route())
	return s, nil
}

// post sends a request with an idempotency key to the handler itself.
func (s *server) post(key, body string) answer {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, newPost("", s.token, key, body))
	return answer{w.Code, w.Body.String(), w.Header()}
}

func newPost(base, token, key, body string) *http.Request {
	r, err := http.NewRequest("POST", base+"/api/v1/tasks", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Host = "api.example.com" // the same whichever server a repeat reaches
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "text/plain")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}

// answer is a response read to its end.
type answer struct {
	status int
	body   string
	header http.Header
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// code is that of a problem, or "".
func (a answer) code() string {
	var p struct{ Code string }
	json.Unmarshal([]byte(a.body), &p)
	return p.Code
}

func (a answer) mustBe(t testing.TB, status int, code string) {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Errorf("got %d %q, want %d %q\n%s", a.status, a.code(), status, code, a.body)
	}
}

// mustReplay wants a replay of first.
func (a answer) mustReplay(t testing.TB, first answer) {
	t.Helper()
	if a.status != first.status || a.body != first.body || !a.replayed() {
		t.Errorf("got %d, replayed %t: %s\nwant a replay of %d: %s", a.status, a.replayed(), a.body, first.status, first.body)
	}
}

// insert writes a task with an id that no second run would choose.
func insert(ctx context.Context, q execer, title string) (id string, err error) {
	id = rand.Text()
	_, err = q.ExecContext(ctx, fmt.Sprintf("INSERT INTO tasks (id, title, attempt) VALUES ('%s', '%s', %d)",
		id, title, middleware.ExecutionFrom(ctx).Attempt()))
	return id, err
}

// create is the handler that most tests have: one row, whose id is in the
// answer. A second run writes another. With a header field Hold it never answers.
func create(w http.ResponseWriter, r *http.Request, s *server) {
	if id, ok := createOnly(w, r, s); ok {
		if r.Header.Get("Hold") != "" {
			select {} // until the process is killed
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":"`+id+`"}`)
	}
}

// createOnly writes the row and answers only when it cannot.
func createOnly(w http.ResponseWriter, r *http.Request, s *server) (id string, ok bool) {
	q, joined := inTx(r.Context())
	if joined != s.join {
		http.Error(w, "a transaction: "+strconv.FormatBool(joined), http.StatusInternalServerError)
		return "", false
	}
	if !joined {
		q = s.db
	}
	title, _ := io.ReadAll(r.Body)
	id, err := insert(r.Context(), q, string(title))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return "", false
	}
	return id, true
}

// logged collects log records as text.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text.Bytes(), []byte("\n"))
}

func (l *logged) mustSay(t testing.TB, what string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !strings.Contains(l.text.String(), what) {
		t.Errorf("the log does not say %q:\n%s", what, l.text.String())
	}
}

// patience bounds what a test waits for. Only what hangs takes that long.
const patience = 5 * time.Minute

// within ends a test that hangs.
func within(t testing.TB, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s took longer than %v", what, patience)
	}
}
