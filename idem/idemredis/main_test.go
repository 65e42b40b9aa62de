package idemredis_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// asServer makes the test binary a server; its value says where Redis is, where
// the file of rows is, the lease, and whether unknown outcomes are run again.
const asServer = "IDEMREDIS_SERVER"

func TestMain(m *testing.M) {
	if value := os.Getenv(asServer); value != "" {
		var addr, file string
		var lease time.Duration
		var reexecute bool
		if _, err := fmt.Sscan(value, &addr, &file, &lease, &reexecute); err != nil {
			panic(err)
		}
		serve(addr, file, lease, reexecute)
		return
	}
	os.Exit(m.Run())
}

// serve creates rows until it is killed.
func serve(addr, file string, lease time.Duration, reexecute bool) {
	table, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	create := func(w http.ResponseWriter, r *http.Request) {
		pause := func() { <-time.After(rand.N(10 * time.Millisecond)) }
		pause()
		// One write is one row, also when the process dies.
		key, attempt := r.Header.Get("Idempotency-Key"), middleware.ExecutionFrom(r.Context()).Attempt()
		fmt.Fprintf(table, "%s %d\n", key, attempt)
		pause()
		if strings.HasPrefix(key, "held") && attempt == 1 {
			select {} // until the process is killed
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "task %x", rand.Uint64())
	}
	o := idem.Options{Lease: lease, Wait: redistest.Patience, Timeout: redistest.Patience, Reexecute: reexecute}
	s, err := newStack(redis.NewClient(redistest.Unhurried(&redis.Options{Addr: addr})), o, create)
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr(), s.token)
	panic(http.Serve(listener, s))
}

// process is a server in a process of its own.
type process struct {
	cmd         *exec.Cmd
	addr, token string
	client      *http.Client
}

func startProcess(t *testing.T, redisAddr, file string, lease time.Duration, reexecute bool) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self), client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 200}, Timeout: 2 * redistest.Patience,
	}}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %v", asServer, redisAddr, file, lease, reexecute))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &p.addr, &p.token); err != nil {
		t.Fatalf("the process said %q: %v", line, err)
	}
	return p
}

// kill is kill -9.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
	p.client.CloseIdleConnections()
}

type answer struct {
	status   int
	body     string
	replayed bool
}

func (p *process) post(key string) (answer, error) {
	r, err := http.NewRequest("POST", "http://"+p.addr+"/api/v1/tasks", strings.NewReader("{}"))
	if err != nil {
		return answer{}, err
	}
	r.Host = "api.example.com" // the same whichever process a repeat reaches
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Idempotency-Key", key)
	w, err := p.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	return answer{w.StatusCode, string(body), w.Header.Get("Idempotent-Replayed") != ""}, err
}

// rowsIn reads the file of rows: the attempts of each key, in their order.
func rowsIn(t *testing.T, file string) map[string][]int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]int{}
	for line := range strings.Lines(string(text)) {
		var key string
		var attempt int
		if _, err := fmt.Sscan(line, &key, &attempt); err != nil {
			t.Fatalf("row %q: %v", line, err)
		}
		rows[key] = append(rows[key], attempt)
	}
	return rows
}
