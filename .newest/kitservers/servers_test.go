package kitservers

import (
	"bufio"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest"
)

// TestMain lets all servers be checked at one time: the checks wait for rate
// limits and hardly need a processor.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // it is a flag, and 16 a number
	m.Run()
}

// target describes what all the servers have in common.
func target() contracttest.Target {
	return contracttest.Target{
		Keys: contracttest.Keys{
			Full: "acme_live_kR8vTq2mXw4ZpLs9", None: "acme_live_Nn3bHc7yDf1GjQe5", Worker: "acme_live_Wd6uKz0oBa8RiVt2",
			Reader: "acme_live_Rx4sMe9pYg7CnJo1", Writer: "acme_live_Ft5wLq3kUv2HbZd8", Other: "acme_live_Ov7jPy6aSn4XcGm0",
		},
		Creates: []contracttest.Create{{Path: "/api/v1/tasks", Body: `{"title":"{{random}}"}`, List: "/api/v1/tasks"}},
		Without: []string{"sandbox", "sandbox-none", "second", "revoked", "second-create"},
		Timeout: 20 * time.Minute, // longer than the slowest machine needs
	}
}

func TestGo(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func() http.Handler{"chi": Chi, "gin": Gin, "echo": Echo} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := target()
			to.Handler = handler()
			contracttest.Run(t, to)
		})
	}
}

func TestNode(t *testing.T) { runProgram(t, "node", "server.mjs") }

func TestExpress(t *testing.T) {
	if _, err := os.Stat("express/node_modules"); err != nil {
		t.Skip("left out: the server on Express; it needs npm ci --prefix express")
	}
	runProgram(t, "node", "express/server.mjs")
}

func TestPython(t *testing.T) { runProgram(t, "python3", "server.py") }
func TestSingle(t *testing.T) { runProgram(t, "python3", "server.py", "single") }

// runProgram checks a server that prints its port and ends with its input.
func runProgram(t *testing.T, name string, args ...string) {
	t.Parallel()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("left out: %s; it needs %s", args[0], name)
	}
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("%s did not start: %v", name, err)
	}
	to := target()
	to.URL = "http://127.0.0.1:" + strings.TrimSpace(port)
	contracttest.Run(t, to)
}
