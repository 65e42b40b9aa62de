package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asServer makes the test binary the server itself, for tests that need a
// process.
const asServer = "SALLYPORT_FLEET_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is longer than what the slowest machine needs for anything.
const patience = 10 * time.Minute

// runArgs is the program with these arguments.
func runArgs(ctx context.Context, t *testing.T, stdout io.Writer, args ...string) error {
	c, err := parseFlags(args, t.Output())
	if err != nil {
		return err
	}
	return run(ctx, c, stdout, t.Output())
}

// A running server of this package, on a port of its own.
type running struct {
	base   string
	keys   demoKeys
	client *http.Client
	end    context.CancelFunc // what a signal does
	ended  chan struct{}
	err    error // what serve returned, once ended is closed
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	return startWith(t, openFor(t, "", args...), args...)
}

// openFor opens the stores that the flags name. The limits in Redis have a prefix.
func openFor(t *testing.T, prefix string, args ...string) stores {
	t.Helper()
	c := mustParse(t, args...)
	c.limitsPrefix = prefix
	s, err := openStores(t.Context(), c, logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func mustParse(t *testing.T, args ...string) config {
	t.Helper()
	c, err := parseFlags(args, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	c.patience = patience
	return c
}

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func startWith(t *testing.T, s stores, args ...string) *running {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	c := mustParse(t, append([]string{"-addr", "127.0.0.1:0", "-keys-out", file}, args...)...)
	ctx, end := context.WithCancel(context.Background())
	srv := &running{client: &http.Client{Transport: &http.Transport{}}, end: end, ended: make(chan struct{})}
	stdout, w := io.Pipe()
	go func() {
		srv.err = serve(ctx, c, s, w, logger(t))
		w.Close()
		close(srv.ended)
	}()
	t.Cleanup(func() {
		end()
		<-srv.ended
		srv.client.CloseIdleConnections()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		<-srv.ended
		t.Fatalf("the server did not start: %v, having printed %q", srv.err, line)
	}
	go io.Copy(io.Discard, stdout)
	srv.base, srv.keys = readKeys(t, file)
	return srv
}

// A reply is a response with its body read.
type reply struct {
	*http.Response
	text string
}

// do sends a request; header is name, value, name, value and so on. An empty
// secret sends no Authorization.
func (srv *running) do(ctx context.Context, secret, method, path, body string, header ...string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, method, srv.base+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := srv.client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp, string(text)}, err
}

func (srv *running) must(t *testing.T, secret, method, path, body string, header ...string) reply {
	t.Helper()
	got, err := srv.do(t.Context(), secret, method, path, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

func decode[T any](t *testing.T, r reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.text), &v); err != nil {
		t.Fatalf("%v in %q", err, r.text)
	}
	return v
}

// wantProblem checks a refusal, which carries the request id twice.
func wantProblem(t *testing.T, what string, got reply, status int, code string) {
	t.Helper()
	problem := decode[struct {
		Status    int
		Code      string
		Detail    string
		RequestID string `json:"request_id"`
	}](t, got)
	if got.StatusCode != status || problem.Status != status || problem.Code != code || problem.Detail == "" {
		t.Errorf("%s: got %s with %s, want %d %s and a detail", what, got.Status, got.text, status, code)
	}
	if ct := got.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("%s: got Content-Type %q", what, ct)
	}
	if id := got.Header.Values("Svc-Request-Id"); len(id) != 1 || id[0] == "" || id[0] != problem.RequestID {
		t.Errorf("%s: got Svc-Request-Id %q and request_id %q, want one and the same", what, id, problem.RequestID)
	}
}
