package main

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/curl"
)

// process runs this test binary as the server.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asServer+"=1")
	return cmd
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	taken := start(t)
	for _, row := range []struct {
		args   string
		status int
		stderr string // a part of what is printed
	}{
		{"-h", 0, "Usage of"},
		{"-nonsense", 2, "-nonsense"},
		{"-addr " + strings.TrimPrefix(taken.base, "http://"), 1, "in use"},
		{"-addr 127.0.0.1:0 -keys-out /nowhere/at/all", 1, "write the keys"},
	} {
		cmd := process(t, strings.Fields(row.args)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := cmd.Run()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if status := cmd.ProcessState.ExitCode(); status != row.status || !strings.Contains(stderr.String(), row.stderr) {
			t.Errorf("%s: got status %d and %q, want %d and %q", row.args, status, &stderr, row.status, row.stderr)
		}
	}
}

func TestSignalsEndTheServerAndTheNextStartHasNewKeys(t *testing.T) {
	t.Parallel()
	last := ""
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd := process(t, "-addr", "127.0.0.1:0")
		base, keys, _ := startProcess(t, cmd)
		srv := &running{base: base, client: http.DefaultClient}
		if got := srv.must(t, keys["full"], "GET", "/api/v1/account", ""); got.StatusCode != http.StatusOK {
			t.Errorf("a new key: got %s", got.Status)
		}
		if last != "" {
			wantProblem(t, "an old key", srv.must(t, last, "GET", "/api/v1/account", ""), 401, "api_key_invalid")
		}
		last = keys["full"]
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: got %v, want a clean end", signal, err)
		}
	}
}

// The secret of the gateway is printed behind the requests to try.
func TestThePrintedRequestsWork(t *testing.T) {
	t.Parallel()
	_, keys, lines := startProcess(t, process(t, "-addr", "127.0.0.1:0", "-gateway", "127.0.0.1:0"))
	var statuses []int
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "export GATEWAY_SECRET=") {
		r, err := curl.Request(lines.Text(), keys["full"])
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if r == nil {
			continue
		}
		resp, err := http.DefaultClient.Do(r.WithContext(t.Context()))
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		resp.Body.Close()
		statuses = append(statuses, resp.StatusCode)
	}
	if want := []int{200, 201, 200, 403}; !slices.Equal(statuses, want) {
		t.Errorf("got %v, want %v", statuses, want)
	}
	if !strings.HasPrefix(lines.Text(), "export GATEWAY_SECRET=") {
		t.Errorf("the server ended, having printed %q last", lines.Text())
	}
}
