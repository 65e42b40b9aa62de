// Package leftout runs tests that leave cases out, by t.Skip as the suites do
// for their users, in a process of their own: in the gate a skip is a failure.
package leftout

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const inside = "SALLYPORT_TEST_INSIDE"

// Run runs suite in another process and names what it left out in the log of t.
// Those names have to begin with one of want, and each of want has to be there.
func Run(t *testing.T, suite func(*testing.T), want ...string) {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		suite(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	missing := slices.Clone(want)
	skips := regexp.MustCompile("--- SKIP: " + regexp.QuoteMeta(t.Name()) + `/(\S+)`)
	for _, skip := range skips.FindAllStringSubmatch(string(out), -1) {
		name := skip[1]
		t.Logf("not run: %s", name)
		begins := func(one string) bool { return strings.HasPrefix(name, one) }
		if !slices.ContainsFunc(want, begins) {
			t.Errorf("%s was left out, want it run", name)
		}
		missing = slices.DeleteFunc(missing, begins)
	}
	if len(missing) > 0 {
		t.Errorf("nothing called %s was left out", strings.Join(missing, " or "))
	}
}
