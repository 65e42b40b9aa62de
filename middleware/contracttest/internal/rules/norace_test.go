//go:build !race

// The race detector slows the whole list to minutes. TestClean runs the same
// code under it.

package rules_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// atTheEnd are the rules that judge what all others have seen.
var atTheEnd = []string{"request-id/unique", "request-id/every-response", "secret/never-returned",
	"secret/parts", "ratelimit/retry-after", "ratelimit/usable-wait", "idempotency/at-the-end",
	"auth/never-refused", "scope/never-shown"}

// TestDefects plants each defect of the list. Each rule that is to find it does,
// by itself. What the contract does not forbid breaks no contract rule.
func TestDefects(t *testing.T) {
	for _, d := range reference.Defects() {
		if d.Free {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			say := make(map[string]string)
			all := d.Advice
			for _, a := range held() {
				if a.defect == d.Name {
					say[a.rule] = a.begins
					all = all || slices.Contains(atTheEnd, a.rule)
				}
			}
			// It judges what ratelimit/create has seen. Beside others a window may
			// end before the wait of the create does.
			_, alone := say["ratelimit/create-wait"]
			all = all && !alone
			synctest.Test(t, func(t *testing.T) {
				results := run(t, newServer(d.Name).Configure, target(), func(r rules.Rule) bool {
					_, wanted := say[r.Name]
					return all || wanted || alone && r.Name == "ratelimit/create"
				})
				for name, begins := range say {
					r := results[name]
					t.Logf("%s is %s: %q", name, r.Status, r.Detail)
					if r.Status != rules.Broken || !says(r.Detail, begins) {
						t.Errorf("%s is %s, want it broken because %s", name, r.Explain(), begins)
					}
				}
				contract := broken(results, rules.Contract)
				advice := append(broken(results, rules.Reading), broken(results, rules.Advice)...)
				switch {
				case d.Advice && len(contract) > 0:
					t.Errorf("the contract does not forbid that %s, but %s is broken: %s", d.Text, contract[0],
						results[contract[0]].Detail)
				case len(contract) == 0 && !(d.Advice && len(advice) > 0):
					t.Errorf("no rule finds that %s", d.Text)
				}
			})
		})
	}
}
