package rules_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// target describes the reference server.
func target() rules.Target {
	return rules.Target{
		URL:  "http://reference",
		Keys: maps.Clone(reference.Keys()),
		Creates: []rules.Create{
			{Path: reference.Tasks, List: reference.Tasks, Body: `{"title":"{{random}}"}`},
			{Path: reference.Deliverables, List: reference.Deliverables, Body: `{"title":"{{random}}"}`},
		},
		Burst: 60,
	}
}

// newServer returns a reference server with a limit that is easily reached.
func newServer(defects ...string) *reference.Server {
	s := reference.New(defects...)
	s.Limit, s.Window = 40, 5*time.Second
	s.Create = 20 * time.Millisecond
	return s
}

// run checks the rules that are wanted on a server in a network in memory, where
// waiting costs no time. It returns the results by name, or the error of the
// first look.
func run(t *testing.T, configure func(*http.Server), target rules.Target,
	wanted func(rules.Rule) bool) (map[string]rules.Result, error) {
	t.Helper()
	network, stop := reference.Serve(configure)
	defer stop()
	target.Dial = network.Dial
	session, err := rules.Open(t.Context(), target)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), session.Budget())
	defer cancel()
	results := make(map[string]rules.Result)
	session.Run(ctx, wanted, func(r rules.Result) { results[r.Rule.Name] = r })
	return results, nil
}

// every is for runs of all rules.
func every(rules.Rule) bool { return true }

// only is for runs of one.
func only(name string) func(rules.Rule) bool {
	return func(r rules.Rule) bool { return r.Name == name }
}

// broken returns the names of the rules of a level that are broken.
func broken(results map[string]rules.Result, level rules.Level) []string {
	var names []string
	for name, r := range results {
		if r.Rule.Level == level && r.Status == rules.Broken {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestBreaches breaks the contract on servers whose responses do not say what
// was made, so that the list alone shows it.
func TestBreaches(t *testing.T) {
	for name, test := range map[string]struct{ defect, want string }{
		"shared among organizations": {"idem-org", "organization/idempotency"},
		"shared among environments":  {"idem-environment", "organization/environment-idempotency"},
		"shared among paths":         {"idem-path", "idempotency/routes-apart"},
		"cut keys":                   {"idem-key-cut", "idempotency/whole-keys"},
		"keys in any letter case":    {"idem-key-case", "idempotency/whole-keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(test.defect)
				results, err := run(t, func(srv *http.Server) {
					s.Configure(srv)
					srv.Handler = silence(s)
				}, target(), only(test.want))
				if err != nil {
					t.Fatal(err)
				}
				if results[test.want].Status != rules.Broken {
					t.Errorf("%s is %s", test.want, results[test.want].Explain())
				}
			})
		})
	}
}

// What a server refuses to take does not end a rule that asks for more.
func TestBehindRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results, err := run(t, newServer("free-http10-505", "idem-412").Configure, target(), only("idempotency/guises"))
		if err != nil {
			t.Fatal(err)
		}
		if r := results["idempotency/guises"]; r.Status != rules.Broken {
			t.Errorf("it is %s", r.Explain())
		}
	})
}

// A limit on creates alone is not found by reading. A target may say that it
// has none; a 429 without Retry-After is a fault all the same.
func TestLimitOfCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, posts := newServer(), atomic.Int64{}
		s.Limit = 0
		to := target()
		to.Without = []string{"rate-limit"}
		results, err := run(t, func(srv *http.Server) {
			s.Configure(srv)
			srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && posts.Add(1)%40 == 0 {
					w.Header().Set("Svc-Request-Id", rand.Text())
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				s.ServeHTTP(w, r)
			})
		}, to, every)
		if err != nil {
			t.Fatal(err)
		}
		if r := results["ratelimit/retry-after"]; r.Status != rules.Broken {
			t.Errorf("it is %s", r.Explain())
		}
	})
}

// silence takes away what the response to a create says.
func silence(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		recorder.Header().Del("Location")
		body := recorder.Body.String()
		if recorder.Code == http.StatusCreated {
			body = "{}"
		}
		maps.Copy(w.Header(), recorder.Header())
		w.WriteHeader(recorder.Code)
		fmt.Fprint(w, body)
	})
}
