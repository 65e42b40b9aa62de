// Package planted has what the tests of package retrytest and of its part for
// pgx share: a server whose handler is given, and how it must be accused.
package planted

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// Parcels is the create of a Server.
var Parcels = []retrytest.Create{{Path: "/api/v1/parcels", Body: "{{random}}"}}

// Server returns a process with one route.
func Server(p *retrytest.Process, store idem.Store, o idem.Options, create http.HandlerFunc) http.Handler {
	quiet := slog.New(slog.DiscardHandler)
	o.Logger = quiet
	api := middleware.NewAPI(nil, middleware.Options{
		Authenticate: func(*http.Request) (*keystore.Caller, error) {
			return keystore.NewCaller(nil, keystore.Identity{Organization: "org_1"})
		},
		Idempotency: p.Idempotency(middleware.IdempotencyOptions{Runner: idem.NewRunner(store, o)}),
		Hooks:       &middleware.Hooks{Logger: quiet},
	})
	api.HandleFunc("POST /api/v1/parcels", middleware.AnyCaller(), create)
	return api
}

// Charges are what the fake of a payment service has done, by key.
type Charges struct {
	mu   sync.Mutex
	keys []string
}

// Charge charges once for a key, and each time for none.
func (c *Charges) Charge(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key == "" || !slices.Contains(c.keys, key) {
		c.keys = append(c.keys, key)
	}
	return nil
}

// Count is an effect of a Suite.
func (c *Charges) Count(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keys), nil
}

// Recorder is a test whose failure is the wanted one.
type Recorder struct {
	testing.TB
	Logs, Errors []string
	Died         string // of a Fatal
}

func (r *Recorder) Helper()                      {}
func (r *Recorder) Logf(format string, a ...any) { r.Logs = append(r.Logs, fmt.Sprintf(format, a...)) }
func (r *Recorder) Error(a ...any)               { r.Errors = append(r.Errors, fmt.Sprint(a...)) }
func (r *Recorder) Errorf(format string, a ...any) {
	r.Errors = append(r.Errors, fmt.Sprintf(format, a...))
}
func (r *Recorder) Fatal(a ...any)                 { r.Died = fmt.Sprint(a...); panic(r) }
func (r *Recorder) Fatalf(format string, a ...any) { r.Died = fmt.Sprintf(format, a...); panic(r) }

// Run runs a suite to its end, or to a Fatal.
func Run(t testing.TB, s retrytest.Suite) (r *Recorder) {
	r = &Recorder{TB: t}
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
	}()
	s.Run(r)
	return r
}

// MustAccuse wants one failure, at the line of the package's tests that ends in
// "// here: NAME".
func MustAccuse(t testing.TB, s retrytest.Suite, name, says string) {
	t.Helper()
	r := Run(t, s)
	text := strings.Join(r.Errors, "\n")
	if at := "code     " + marked(t, name) + ": "; len(r.Errors) != 1 || !strings.Contains(text, at) ||
		!strings.Contains(text, says) {
		t.Errorf("got %d errors, want one with %q that says %q: %s", len(r.Errors), at, says, text)
	}
	t.Log(r.Logs, text)
}

func marked(t testing.TB, name string) string {
	t.Helper()
	files, _ := filepath.Glob("*_test.go")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if before, _, found := strings.Cut(string(text), "// here: "+name+"\n"); found {
			return fmt.Sprintf("%s:%d", file, strings.Count(before, "\n")+1)
		}
	}
	t.Fatalf("no line is marked %q", name)
	return ""
}
