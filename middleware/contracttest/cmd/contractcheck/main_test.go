package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/bare"
)

const body = `{"title":"Call the bank"}`

// buildExample builds the example server.
func buildExample(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/sallyport-go/sallyport/example").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// startExample returns the file of the example's keys.
func startExample(t *testing.T, program string, args ...string) string {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys.json")
	ctx, end := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, append([]string{"-addr", "127.0.0.1:0", "-keys-out", keys}, args...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		_ = cmd.Wait() // it was killed
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("the example did not start: %v, having printed %q", err, line)
	}
	return keys
}

type line struct {
	Rule, Status, Source, Text, Detail string
	Contract                           bool
}

func lines(t *testing.T, text string) map[string]line {
	t.Helper()
	all := make(map[string]line)
	for each := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(each), &l); err != nil {
			t.Fatalf("%v in %q", err, each)
		}
		if l.Rule == "" || l.Source == "" || l.Text == "" || l.Contract != strings.HasPrefix(l.Source, "contract") {
			t.Errorf("got the line %s", each)
		}
		all[l.Rule] = l
	}
	return all
}

// The example keeps the contract, with a limit that is rarely reached and with one that is reached all the time.
func TestExample(t *testing.T) {
	program := buildExample(t)
	for _, args := range []string{"", "-rate 20-S"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			keys := startExample(t, program, strings.Fields(args)...)
			var stdout, stderr bytes.Buffer
			status := run(t.Context(), []string{"-json", "-keys", keys, "-create", "/api/v1/tasks", "-body", body}, &stdout, &stderr)
			if status != 0 {
				t.Errorf("got status %d", status)
			}
			for _, l := range lines(t, stdout.String()) {
				switch {
				case l.Status == "held":
				case l.Status == "skipped" && (l.Rule == "auth/revoked-key" || strings.HasPrefix(l.Rule, "http2/")):
				case l.Status == "skipped" && args == "" && strings.HasPrefix(l.Rule, "ratelimit/"): // too slow to be limited
				default:
					t.Errorf("%s %s: %s", l.Rule, l.Status, l.Detail)
				}
			}
			t.Log(stderr.String())
		})
	}
}

// serveBare serves the bare server and returns the file of its keys.
func serveBare(t *testing.T, around func(http.Handler) http.Handler) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(around(bare.New(bare.DemoKeys()).Handler()))
	srv.Listener = bare.Listen(srv.Config, srv.Listener)
	srv.Start()
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "keys.json")
	text := fmt.Sprintf(`{"base_url":%q,"keys":{"full":%q,"none":%q,"sandbox":%q,"other":%q,"revoked":%q,"worker":"x"}}`,
		srv.URL, bare.Full, bare.None, bare.Sandbox, bare.Other, bare.Revoked)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// serveTLS serves the bare server with HTTP/2 and returns its URL and the file of its certificate.
func serveTLS(t *testing.T) (url, authority string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(bare.New(bare.DemoKeys()).Handler())
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	authority = filepath.Join(t.TempDir(), "authority.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return srv.URL, authority
}

func asItIs(h http.Handler) http.Handler { return h }

// limited asks whoever sends a key to come back in an hour.
func limited(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// status404 answers every 401 with 404, which breaks the contract.
func status404(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// cached lets a 401 be cached, which breaks an optional rule.
func cached(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := httptest.NewRecorder()
		h.ServeHTTP(held, r)
		for name, values := range held.Header() {
			if name != "Cache-Control" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(held.Code)
		_, _ = w.Write(held.Body.Bytes())
	})
}

func TestExitStatus(t *testing.T) {
	good, bad, differs, busy := serveBare(t, asItIs), serveBare(t, status404), serveBare(t, cached), serveBare(t, limited)
	secure, authority := serveTLS(t)
	noJSON := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(noJSON, []byte("svc_live_secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   string
		status int
		want   string // a part of what is printed
	}{
		{"-h", 0, "-keys file"},
		{"-keys " + good + " -run ^auth/", 0, "ok       auth/revoked-key"},
		{"-keys " + good + " -run ^auth/ -skip auth/live", 0, "ok       auth/missing-key"},
		{"-keys " + bad + " -run ^auth/missing", 1, "BROKEN   auth/missing-key"},
		{"-keys " + bad + " -run ^auth/ -skip auth/(missing|key-else|other-s|no-way|not-cached|before|challenge|challenge)", 0, "ok       auth/live-key"},
		{"-keys " + differs + " -run ^auth/not-cached", 0, "differs  auth/not-cached"},
		{"-keys " + busy + " -run ^auth/(not-cached|live-key)", 2, "UNCLEAR  auth/live-key"},
		{"-url " + secure + " -cacert " + authority + " -run ^http2/missing-key", 0, "ok       http2/missing-key"},
		{"-url " + secure, 2, "certificate"},
		{"-keys " + good + " -run ^idempotency/", 2, "a route that creates"},
		{"-keys " + good + " -create /api/v1/tasks -body " + body[:9] + body[len(body)-2:] + " -run ^idempotency/replay", 1, "BROKEN   idempotency/replay"},
		{"", 2, "-url"},
		{"-nonsense", 2, "-nonsense"},
		{"-keys " + good + " extra", 2, `"extra"`},
		{"-keys /nowhere/at/all", 2, "-keys"},
		{"-keys " + noJSON, 2, "-keys"},
		{"-keys " + good + " -run ( -skip (", 2, "-skip"},
		{"-keys " + good + " -cacert " + noJSON, 2, "-cacert"},
		{"-url http://127.0.0.1:1", 2, "cannot be reached"},
	} {
		var out bytes.Buffer
		if status := run(t.Context(), strings.Fields(tt.args), &out, &out); status != tt.status || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: got status %d, want %d and %q in\n%s", tt.args, status, tt.status, tt.want, &out)
		}
		if strings.Contains(out.String(), "svc_live_secret") {
			t.Errorf("%s: the key is printed", tt.args)
		}
	}
}

// The rest of what is printed with -json is not on standard output.
func TestJSON(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"-json", "-keys", serveBare(t, status404), "-run", "^auth/(missing|live)-key"}, &stdout, &stderr); status != 1 {
		t.Errorf("got status %d, want 1", status)
	}
	got := lines(t, stdout.String())
	if len(got) != 2 || got["auth/live-key"].Status != "held" || got["auth/missing-key"].Status != "broken" || got["auth/missing-key"].Detail == "" {
		t.Errorf("got %v", got)
	}
	if !strings.Contains(stderr.String(), "rules can be checked") || !strings.Contains(stderr.String(), "1 broken") {
		t.Errorf("got %q on standard error", &stderr)
	}
}
