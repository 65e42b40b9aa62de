package middleware_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// keyring is a memory store with keys in it.
type keyring struct {
	keys   *keystore.Cached
	memory *keystore.Memory
	issuer *keystore.Issuer
}

func newKeyring(options ...keystore.CacheOptions) *keyring {
	var o keystore.CacheOptions
	if len(options) > 0 {
		o = options[0]
	}
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second) // a slow machine may need more than the default
	memory := keystore.NewMemory()
	keys := keystore.NewCached(memory, o)
	return &keyring{keys: keys, memory: memory, issuer: keystore.NewIssuer(keys, keystore.IssuerOptions{})}
}

// issue returns the token of a new production key of org_1.
func (k *keyring) issue(t testing.TB, scopes ...scope.Name) string {
	t.Helper()
	token, _ := k.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Production, Scopes: scopes})
	return token
}

func (k *keyring) grant(t testing.TB, g keystore.Grant) (string, *keystore.Key) {
	t.Helper()
	if g.Actor == "" {
		g.Actor = "test"
	}
	if g.Name == "" {
		g.Name = "test"
	}
	secret, key, err := k.issuer.Issue(context.Background(), g)
	if err != nil {
		t.Fatalf("Issue(%+v): %v", g, err)
	}
	return secret.Reveal(), key
}

// expire makes the key expired in the past.
func (k *keyring) expire(t testing.TB, key *keystore.Key) {
	t.Helper()
	changed := key.Clone()
	changed.ExpiresAt = time.Now().Add(-time.Hour)
	if err := k.keys.Update(context.Background(), changed); err != nil {
		t.Fatalf("Update: %v", err)
	}
}

// logged collects log records as text.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) hooks() *middleware.Hooks {
	return &middleware.Hooks{Logger: slog.New(slog.NewTextHandler(l, nil))}
}

func newLogged() *logged { return &logged{} }

// answer is a response read to its end.
type answer struct {
	*http.Response
	body string
}

func (a answer) problem(t testing.TB) problemBody {
	t.Helper()
	var p problemBody
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("body of %d is not a problem: %v\n%s", a.StatusCode, err, a.body)
	}
	return p
}

type problemBody struct {
	Type, Title, Detail, Code string
	Status                    int
	RequestID                 string   `json:"request_id"`
	Policy                    string   `json:"policy"`
	Missing                   []string `json:"missing_scopes"`
	OriginalStatus            int      `json:"original_status"`
	OriginalLocation          string   `json:"original_location"`
}

// request builds a request; header lines are "Name: value".
func request(method, target, token, body string, lines ...string) *http.Request {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// serve runs a request through a handler on a recorder.
func serve(h http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	res := w.Result()
	body, _ := io.ReadAll(res.Body)
	return answer{res, string(body)}
}

// do sends a request to a server and reads the answer.
func do(t testing.TB, client *http.Client, r *http.Request) answer {
	t.Helper()
	r.RequestURI = ""
	res, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: reading the body: %v", r.Method, r.URL, err)
	}
	return answer{res, string(body)}
}

// replies is a runner on a memory store.
func replies(o ...idem.Options) *idem.Runner {
	return runnerOf(idem.NewMemory(idem.MemoryOptions{}), o...)
}

// runnerOf is a runner on a store.
func runnerOf(store idem.Store, o ...idem.Options) *idem.Runner {
	if len(o) == 0 {
		o = make([]idem.Options, 1)
	}
	o[0].Timeout = cmp.Or(o[0].Timeout, 30*time.Second) // a slow machine may need more than the default
	return idem.NewRunner(store, o[0])
}

// flush writes the uses that were recorded.
func flush(l *keystore.LastUsed) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return l.Run(ended)
}
