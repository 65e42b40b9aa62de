package rules_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
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

// run checks a server in a network in memory, where waiting costs no time. It
// returns the results by name, or the error of the first look. It may stop
// early, at a result that is enough.
func run(t *testing.T, configure func(*http.Server), target rules.Target, enough func(rules.Result) bool) (map[string]rules.Result, error) {
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
	session.Run(ctx, func(rules.Rule) bool { return true }, func(r rules.Result) {
		results[r.Rule.Name] = r
		if enough != nil && enough(r) {
			cancel()
		}
	})
	return results, nil
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

// TestDefects plants each defect of the list and wants a rule to find it.
func TestDefects(t *testing.T) {
	all := reference.Defects()
	if len(all) < 70 {
		t.Fatalf("got %d defects, want at least 70", len(all))
	}
	for i, d := range all {
		if i%stride != 0 {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				results, err := run(t, newServer(d.Name).Configure, target(), func(r rules.Result) bool {
					return !d.Advice && r.Rule.Level == rules.Contract && r.Status == rules.Broken
				})
				if err != nil {
					t.Fatalf("the first look refused the server, in which %s: %v", d.Text, err)
				}
				contract, advice := broken(results, rules.Contract), broken(results, rules.Advice)
				if len(contract) == 0 && (!d.Advice || len(advice) == 0) {
					t.Errorf("no rule found that %s", d.Text)
				}
				if d.Advice && len(contract) > 0 {
					t.Errorf("the contract does not forbid that %s, but %s is broken: %s", d.Text, contract[0], results[contract[0]].Detail)
				}
				t.Logf("found by %s", strings.Join(append(contract, advice...), ", "))
			})
		})
	}
}
