package contracttest_test

import (
	"crypto/rand"
	"crypto/x509"
	"flag"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
)

// keys are those of the reference server.
func keys() contracttest.Keys {
	k := reference.Keys()
	return contracttest.Keys{
		Full: k["full"], None: k["none"], Worker: k["worker"], Reader: k["reader"], Writer: k["writer"],
		Second: k["second"], Sandbox: k["sandbox"], SandboxNone: k["sandbox-none"], Other: k["other"], Revoked: k["revoked"],
	}
}

// creates are the routes of the reference server.
var creates = []contracttest.Create{
	{Path: reference.Tasks, Body: `{"title":"{{random}}"}`, List: reference.Tasks},
	{Path: reference.Deliverables, Body: `{"title":"{{random}}"}`, List: reference.Deliverables},
}

// small is a target of one key and one route.
func small(h http.Handler, advice bool) contracttest.Target {
	return contracttest.Target{Handler: h, Keys: contracttest.Keys{Full: keys().Full}, Creates: creates[:1],
		Without: []string{"none", "worker", "reader", "writer", "second", "sandbox", "sandbox-none", "other", "revoked",
			"second-create", "rate-limit"}, Advice: advice, Timeout: patience}
}

// patience is more than the checks take on the slowest machine.
const patience = 20 * time.Minute

// TestMain lets all targets be checked at one time: the checks wait most of
// the time.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // it is a flag, and 16 a number
	m.Run()
}

// Whoever installs the command gets the standard library and the rules alone.
func TestRequiresNothing(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "require") || strings.Contains(string(text), "replace") {
		t.Errorf("go.mod is\n%s", text)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Name}}{{end}}",
		"./cmd/contractcheck").Output()
	if got := strings.Fields(string(out)); err != nil || !slices.Equal(got, []string{"rules", "main"}) {
		t.Errorf("contractcheck is built from the packages %q, %v", got, err)
	}
}

// A server that keeps the contract passes.
func TestRun(t *testing.T) {
	t.Parallel()
	s := reference.New("free-hosts")
	s.Limit, s.Window = 40, time.Second // on a machine that does not reach it, these rules are left out
	contracttest.Run(t, contracttest.Target{Handler: s, Keys: keys(), Creates: creates, Advice: true, Timeout: patience})
}

// A server that breaks a reading or advice alone passes.
func TestWarnings(t *testing.T) {
	t.Parallel()
	contracttest.Run(t, small(reference.New("path-location-bare", "no-challenge"), false))
}

// TestRunFails runs this test binary once more with targets that have to fail,
// and looks at what it prints.
func TestRunFails(t *testing.T) {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Svc-Request-Id", rand.Text())
		w.WriteHeader(http.StatusUnauthorized)
	})
	// A handler that hangs, and is found by a rule before that.
	broken := reference.New("no-challenge")
	hang := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Auth-Token") != "" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {}
		}
		broken.ServeHTTP(w, r)
	})
	silent := small(reference.New(), false)
	silent.Without = nil
	targets := map[string]contracttest.Target{
		"refuses everybody":     {Handler: refuse, Keys: keys(), Creates: creates},
		"says nothing":          silent,
		"creates again":         small(reference.New("idem-replay-creates"), false),
		"advice":                small(reference.New("no-challenge"), true),
		"a warning that counts": small(reference.New("path-location-bare"), true),
		"hangs":                 small(hang, false),
		"has neither":           {Keys: keys()},
		"has no RootCAs":        {Handler: refuse, Keys: keys(), RootCAs: x509.NewCertPool()},
		"has no Listen": {URL: "http://127.0.0.1:1", Keys: keys(), Listen: func(_ *http.Server,
			ln net.Listener) net.Listener {
			return ln
		}},
	}
	if name := os.Getenv("CONTRACTTEST_TARGET"); name != "" {
		contracttest.Run(t, targets[name])
		return
	}
	t.Parallel()
	for name, want := range map[string][]string{
		"refuses everybody": {"refuses every key (401): are these keys of this server?"},
		"says nothing": {
			"--- FAIL: TestRunFails/scope/none ", "without none",
			"--- FAIL: TestRunFails/idempotency/routes-apart", "without second-create",
			"--- PASS: TestRunFails/idempotency/replay",
		},
		"creates again": {
			"--- FAIL: TestRunFails/idempotency/replay", "after 3 repeats: GET /api/v1/tasks shows 4 resources, want 1",
			"--- PASS: TestRunFails/auth/missing-key", "not offered: ", "wire/header",
			"idempotency/replay is broken: after 3 repeats",
		},
		"advice":                {"--- FAIL: TestRunFails/auth/challenge"},
		"a warning that counts": {"--- FAIL: TestRunFails/path/location", "is broken: the Location of a create"},
		"hangs": {
			"--- FAIL: TestRunFails/auth/bearer-only", "a handler goes on after its connection was closed",
		},
		"has neither":    {"a Target has either a Handler or a URL"},
		"has no RootCAs": {"RootCAs are for a URL"}, "has no Listen": {"Listen is for a Handler"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunFails$", "-test.v")
			cmd.Env = append(os.Environ(), "CONTRACTTEST_TARGET="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Error("the test passed")
			}
			if strings.Contains(string(out), "--- SKIP") {
				t.Errorf("a test was skipped:\n%s", out)
			}
			for _, text := range want {
				if !strings.Contains(string(out), text) {
					t.Errorf("got no %q in\n%s", text, out)
				}
			}
			for _, key := range reference.Keys() {
				if strings.Contains(string(out), key[len("svc_live_"):]) {
					t.Errorf("a key is in the output")
				}
			}
		})
	}
}

// The target of the package comment passes on a correct server.
func TestSample(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("contracttest.go")
	if err != nil {
		t.Fatal(err)
	}
	comment, _, _ := strings.Cut(strings.ReplaceAll(string(source), "//", ""), "package contracttest\n")
	_, names, _ := strings.Cut(comment, "Without: []string{")
	names, _, _ = strings.Cut(names, "}")
	sample := contracttest.Target{
		Handler: reference.New(), Keys: contracttest.Keys{Full: keys().Full, None: keys().None},
		Creates: creates[:1], Timeout: patience,
	}
	for _, name := range strings.Split(names, ",") {
		if name = strings.Trim(strings.TrimSpace(name), `"`); name != "" {
			sample.Without = append(sample.Without, name)
		}
	}
	if !strings.Contains(comment, "contracttest.Keys{Full: full, None: none}") {
		t.Fatal("the sample has other keys")
	}
	contracttest.Run(t, sample)
}
