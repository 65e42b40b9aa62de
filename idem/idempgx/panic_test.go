package idempgx_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A test that panics while it holds a transaction says so: its cleanup does not
// wait for that forever.
func TestPanicWithATransaction(t *testing.T) {
	const child, words = "IDEMPGX_TEST_PANICS", "the words of the test"
	pool := newPool(t, 2, nil)
	if os.Getenv(child) != "" {
		patience = 100 * time.Millisecond
		join(t, newStore(pool), "key")
		panic(words)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), words) {
		t.Errorf("a test that panics ended with %v, and said:\n%s", err, out)
	}
}
