package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/curl"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// asServer makes the test binary the server itself, for tests that need a
// process.
const asServer = "SALLYPORT_EXAMPLE_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A running server, and what it has printed.
type running struct {
	base, password string
	keys           map[string]string
	commands       []string // of curl
	end            context.CancelFunc
	ended          chan struct{}
	err            error // what run returned, once ended is closed
}

func start(t *testing.T, rate string) *running {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	srv := &running{end: end, ended: make(chan struct{})}
	stdout, w := io.Pipe()
	go func() {
		srv.err = run(ctx, "127.0.0.1:0", ratelimit.MustParse(rate), w)
		w.Close()
		close(srv.ended)
	}()
	t.Cleanup(func() {
		end()
		<-srv.ended
		client.CloseIdleConnections()
	})
	srv.read(t, stdout)
	return srv
}

// read reads what a server prints.
func (srv *running) read(t *testing.T, stdout io.Reader) {
	t.Helper()
	srv.keys = make(map[string]string)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case strings.HasPrefix(lines.Text(), "Listening on "):
			srv.base = words[2]
		case strings.HasPrefix(lines.Text(), "Console at "):
			srv.password = words[len(words)-1]
		case len(words) > 1 && strings.HasPrefix(words[1], "svc_"):
			srv.keys[words[0]] = words[1]
		case len(words) > 1 && words[0] == "curl":
			srv.commands = append(srv.commands, strings.ReplaceAll(lines.Text(), "$KEY", srv.keys["full"]))
		case len(words) == 0 && srv.commands != nil:
			return
		}
	}
	t.Fatalf("the server ended, having printed %d keys", len(srv.keys))
}

// client sends each request as it is, and follows no redirect.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// A reply is a response with its body read.
type reply struct {
	*http.Response
	text string
}

func do(t *testing.T, client *http.Client, r *http.Request) reply {
	t.Helper()
	resp, err := client.Do(r.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp, string(text)}
}

// send sends a request with the key of that name; header is name, value, name,
// value and so on.
func (srv *running) send(t *testing.T, key, method, path, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequest(method, srv.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+srv.keys[key])
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return do(t, client, r)
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

func TestThePrintedRequestsWork(t *testing.T) {
	srv := start(t, "100-S")
	var statuses []int
	for _, line := range srv.commands {
		r, err := curl.Request(line, "")
		if err != nil {
			t.Fatal(err)
		}
		statuses = append(statuses, do(t, client, r).StatusCode)
	}
	if want := []int{200, 201, 200, 403}; !slices.Equal(statuses, want) {
		t.Errorf("got %v, want %v", statuses, want)
	}
}

// process runs this test binary as the example.
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

func TestArguments(t *testing.T) {
	taken := start(t, "100-S")
	reader, nobody, err := os.Pipe() // a server that starts all the same ends when it prints
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	defer nobody.Close()
	for _, row := range []struct {
		args   string
		status int
		stderr string // a part of what is printed
	}{
		{"-h", 0, "-rate"},
		{"-nonsense", 2, "-nonsense"},
		{"extra", 2, `unexpected argument "extra"`},
		{"-rate fast", 2, `"fast"`},
		{"-addr localhost", 1, "missing port"},
		{"-addr " + strings.TrimPrefix(taken.base, "http://"), 1, "in use"},
	} {
		cmd := process(t, strings.Fields(row.args)...)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = nobody, &stderr
		err := cmd.Run()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if status := cmd.ProcessState.ExitCode(); status != row.status || !strings.Contains(stderr.String(), row.stderr) {
			t.Errorf("%s: got status %d and %q, want %d and %q", row.args, status, &stderr, row.status, row.stderr)
		}
	}
}

func TestSignalsEndTheServer(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd := process(t, "-addr", "127.0.0.1:0")
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var srv running
		srv.read(t, stdout)
		if got := srv.send(t, "full", "GET", "/api/v1/account", ""); got.StatusCode != http.StatusOK {
			t.Errorf("got %s", got.Status)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: got %v, want a clean end", signal, err)
		}
	}
}
