package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest"
)

// The contract holds, here and in the small example, with a limit that is
// reached all the time.
func TestContract(t *testing.T) {
	t.Parallel()
	args := []string{"-addr", "127.0.0.1:0", "-rate", "40-S"} // which a slow machine reaches
	small := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", small, "github.com/sallyport-go/sallyport/example").
		CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, server := range map[string]func(t *testing.T) *exec.Cmd{
		"fleet":   func(t *testing.T) *exec.Cmd { return process(t, args...) },
		"example": func(t *testing.T) *exec.Cmd { return exec.CommandContext(t.Context(), small, args...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the rules wait most of the time
			base, keys, _ := startProcess(t, server(t))
			contracttest.Run(t, contracttest.Target{
				URL: base,
				Keys: contracttest.Keys{
					Full: keys["full"], None: keys["none"], Worker: keys["worker"], Sandbox: keys["sandbox"], Other: keys["other"],
				},
				Creates: []contracttest.Create{{Path: tasksPath, Body: `{"title":"{{random}}"}`, List: tasksPath}},
				Without: []string{"reader", "writer", "second", "revoked", "sandbox-none", "second-create"},
				Advice:  true,
				Wire:    true,
			})
		})
	}
}

// startProcess starts a server and returns what it prints: its address, its keys
// by name, and the lines behind them.
func startProcess(t *testing.T, server *exec.Cmd) (base string, keys map[string]string, rest *bufio.Scanner) {
	t.Helper()
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	keys, rest = make(map[string]string), bufio.NewScanner(stdout)
	for rest.Scan() {
		words := strings.Fields(rest.Text())
		switch {
		case strings.HasPrefix(rest.Text(), "Listening on "):
			base = words[2]
		case len(words) > 1 && strings.HasPrefix(words[1], "svc_"):
			keys[words[0]] = words[1]
		case len(words) > 0 && words[0] == "Try:":
			return base, keys, rest
		}
	}
	t.Fatalf("the server ended, having printed %s and %d keys", base, len(keys))
	return "", nil, nil
}
