package rules_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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
// waiting costs no time. It returns the results by name.
func run(t *testing.T, configure func(*http.Server), target rules.Target,
	wanted func(rules.Rule) bool) map[string]rules.Result {
	t.Helper()
	network, stop := reference.Serve(configure)
	defer stop()
	target.Dial = network.Dial
	session, err := rules.Open(t.Context(), target)
	if err != nil {
		t.Fatalf("the first look refused the server: %v", err)
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), session.Budget())
	defer cancel()
	results := make(map[string]rules.Result)
	session.Run(ctx, wanted, func(r rules.Result) { results[r.Rule.Name] = r })
	return results
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

// TestRule: what becomes of one rule where a server differs from the reference
// server in more than a defect, or a target does not offer all.
func TestRule(t *testing.T) {
	noList := func(i int) func(*reference.Server, *rules.Target) {
		return func(_ *reference.Server, to *rules.Target) { to.Creates[i].List = "" }
	}
	for name, test := range map[string]struct {
		defects string
		around  func(http.Handler) http.Handler // nil: the server itself
		change  func(*reference.Server, *rules.Target)
		rule    string
		want    rules.Status
		says    string
	}{
		// Of responses that do not say what was made, the list alone shows it.
		"shared among organizations": {"idem-org", silence, nil, "organization/idempotency", rules.Broken, ""},
		"shared among environments": {"idem-environment", silence, nil, "organization/environment-idempotency",
			rules.Broken, ""},
		"shared among paths":      {"idem-path", silence, nil, "idempotency/routes-apart", rules.Broken, ""},
		"cut keys":                {"idem-key-cut", silence, nil, "idempotency/whole-keys", rules.Broken, ""},
		"keys in any letter case": {"idem-key-case", silence, nil, "idempotency/whole-keys", rules.Broken, ""},
		// What a server refuses to take does not end a rule that asks for more.
		"behind refusals": {"free-http10-505 idem-412", nil, nil, "idempotency/guises", rules.Broken, ""},
		// A second route without a list is not passed over in silence.
		"no second list": {"idem-replay-creates", nil, noList(1), "idempotency/second-list", rules.Skipped, ""},
		// What a route answers to a GET that it does not know is no refusal of the
		// limiter.
		"routes without GET": {"free-post-only free-drip", nil, func(s *reference.Server, to *rules.Target) {
			s.Limit, s.Window, s.Delay = 40, time.Second, 30*time.Millisecond
			to.Creates[0].List, to.Creates[1].List = "", ""
		}, "ratelimit/everywhere", rules.Held, ""},
		// A filter shows what another organization made also where an id is a
		// number, which the organization may have too.
		"numbers by a filter": {"org-by-filter free-numbers free-page", nil, nil, "resource/organization", rules.Broken,
			"a filter shows"},
		// A success at another spelling of the path need not be a create.
		"a slash finds":                 {"", slashFinds, nil, "idempotency/guises", rules.Held, ""},
		"a slash finds, without a list": {"", slashFinds, noList(0), "idempotency/guises", rules.Held, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, to := newServer(strings.Fields(test.defects)...), target()
				if test.change != nil {
					test.change(s, &to)
				}
				results := run(t, func(srv *http.Server) {
					s.Configure(srv)
					if test.around != nil {
						srv.Handler = test.around(s)
					}
				}, to, only(test.rule))
				if r := results[test.rule]; r.Status != test.want || !strings.Contains(r.Detail, test.says) {
					t.Errorf("%s is %s", test.rule, r.Explain())
				}
			})
		})
	}
}

// A key that every run uses gets the response of the first run, where bodies
// are not compared.
func TestTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("idem-other-body")
		for range 2 {
			if r := run(t, s.Configure, target(), only("idempotency/any-key"))["idempotency/any-key"]; r.Status != rules.Held {
				t.Errorf("it is %s", r.Explain())
			}
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
		results := run(t, func(srv *http.Server) {
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

// slashFinds answers a create whose path ends in a slash with something that it
// has found.
func slashFinds(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && r.URL.Path == reference.Tasks+"/" {
			w.Header().Set("Svc-Request-Id", rand.Text())
			_, _ = fmt.Fprintf(w, `{"found":%q}`, rand.Text())
			return
		}
		next.ServeHTTP(w, r)
	})
}
