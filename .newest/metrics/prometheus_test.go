package metrics

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
	"github.com/sallyport-go/sallyport/middleware/middlewareprom"
)

// hung is when a wait for another process counts as lost.
const hung = time.Minute

// TestExample builds the example once, for the tests that start it.
func TestExample(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "example")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = "../../example/fleet"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Run("composition", func(t *testing.T) { testCompositionServes(t, binary) })
	t.Run("Prometheus", func(t *testing.T) { testPrometheus(t, binary) })
}

// A real Prometheus reads the example under four loads: each series of the
// dashboard is there, each panel shows something and what is the matter, and an
// alert is true in its trouble and not before.
func testPrometheus(t *testing.T, binary string) {
	t.Parallel()
	servers.Program(t, "prometheus", "prometheus")
	dir := t.TempDir()
	redis := redistest.Start(t)
	inRedis := startExample(t, binary, "-redis", "unix://"+redis.Addr, "-latency", "3s")
	inMemory := startExample(t, binary, "-sandbox-rate", "2-M")
	inSQLite := startExample(t, binary, "-sqlite", filepath.Join(dir, "keys.db"))
	prometheus := startPrometheus(t, dir, inRedis.metrics, inMemory.metrics, inSQLite.metrics)
	board := board{prometheus, queries(t), make(map[string]bool)}

	// Nothing is wrong.
	well := func() {
		for _, e := range []*example{inRedis, inMemory, inSQLite} {
			e.send(t, e.Keys.Full, "GET", "/api/v1/account", "")
		}
	}
	well()
	series := regexp.MustCompile(`sallyport_[a-z_]+`)
	names := series.FindAllString(string(middlewareprom.Alerts)+string(middlewareprom.Dashboard), -1)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name != "sallyport_environment" { // a label
			eventually(t, "there is a series "+name, func() bool { return prometheus.found(t, name) })
		}
	}
	if prometheus.found(t, `{__name__=~"sallyport_.+",exported_environment=~".+"}`) {
		t.Error("Prometheus renames the label of the environment, since the targets have one")
	}
	if active := prometheus.active(t); len(active) > 0 {
		t.Errorf("before there is any trouble, %v are true", active)
	}
	well()
	board.shows(t, "Requests", .1, 10)
	board.shows(t, "Responses that fail", 0, 0)
	board.shows(t, "Stores away", 0, 0)
	board.shows(t, "99 of 100 requests take", 0, .5)

	// A storm of duplicates.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				inMemory.send(t, inMemory.Keys.Full, "POST", "/api/v1/tasks", "one")
			}
		})
	}
	all.Wait()
	board.shows(t, "Idempotency keys", .5, 100)

	// Wrong keys, and repeats that wait for the first request.
	for range 2 { // the first one makes the series
		for range 8 {
			inMemory.send(t, "none", "GET", "/api/v1/account", "")
		}
		eventually(t, "there is a 401", func() bool { return prometheus.found(t, `sallyport_requests_total{status="401"}`) })
	}
	board.shows(t, "Refused credentials", .1, 100)
	for range 2 {
		all.Go(func() { inRedis.send(t, inRedis.Keys.Full, "POST", "/api/v1/tasks", "waits") })
	}
	all.Wait()
	board.shows(t, "How long repeats wait", .5, 10)
	prometheus.becomesActive(t, "SallyportManyRepeats")

	// A flood.
	for range 30 {
		inMemory.send(t, inMemory.Keys.Sandbox, "GET", "/api/v1/account", "")
	}
	board.shows(t, "Share that is refused", .5, 1)
	prometheus.becomesActive(t, "SallyportManyLimited")
	if active := prometheus.active(t); slices.Contains(active, "SallyportFailing") ||
		slices.Contains(active, "SallyportLimitsDown") {
		t.Errorf("while all stores answer, %v are true", active)
	}

	// Redis ends while creates run. What they did cannot be saved, limits are
	// decided without it, and new creates are refused.
	for i := range 3 {
		all.Go(func() { inRedis.send(t, inRedis.Keys.Full, "POST", "/api/v1/tasks", fmt.Sprint("begun", i)) })
	}
	eventually(t, "the creates run", func() bool { return prometheus.found(t, "sallyport_idempotency_executions == 3") })
	redis.Kill()
	for i := range 10 {
		all.Go(func() { inRedis.send(t, inRedis.Keys.Full, "POST", "/api/v1/tasks", fmt.Sprint("later", i)) })
	}
	all.Wait()
	board.shows(t, "Stores away", 2, 2)
	board.shows(t, "Share of responses that fail", .0144, 1)
	board.shows(t, "Failures by outcome", .1, 100)
	board.shows(t, "Outcomes not saved", 1, 20)
	board.shows(t, "Calls of a store that fail", .1, 100)
	for _, alert := range []string{
		"SallyportFailing", "SallyportLimitsDown", "SallyportReplyStoreFails", "SallyportRepliesUnsaved",
	} {
		prometheus.becomesActive(t, alert)
		staging := fmt.Sprintf(`ALERTS{alertname="%s",environment="staging"}`, alert)
		eventually(t, staging, func() bool { return prometheus.found(t, staging) })
		if prometheus.found(t, fmt.Sprintf(`ALERTS{alertname="%s",environment!="staging"}`, alert)) {
			t.Errorf("%s is true of production too", alert)
		}
	}
	for title, all := range board.queries {
		for _, q := range all {
			if !board.drawn[q] {
				t.Errorf("%s has never shown a value: %s", title, q)
			}
		}
	}
}

// startProcess starts a program that ends with the test.
func startProcess(t *testing.T, stderr io.Writer, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// An example is a server of this repository, and the address of its metrics.
type example struct {
	BaseURL string `json:"base_url"`
	Keys    struct{ Full, Sandbox string }
	metrics string
}

func startExample(t *testing.T, binary string, args ...string) *example {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys.json")
	e := example{metrics: startServing(t, `serving metrics at http://([^/]+)/`, binary,
		append(args, "-addr", "127.0.0.1:0", "-metrics", "127.0.0.1:0", "-keys-out", keys)...)}
	eventually(t, "the example prints its keys", func() bool {
		text, err := os.ReadFile(keys)
		return err == nil && json.Unmarshal(text, &e) == nil
	})
	return &e
}

// startServing starts a program, and returns the address that it prints on stderr:
// what the group of the pattern matches.
func startServing(t *testing.T, pattern, name string, args ...string) string {
	t.Helper()
	reader, w := io.Pipe()
	startProcess(t, w, name, args...)
	address, printed := make(chan string, 1), regexp.MustCompile(pattern)
	go func() {
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			if found := printed.FindStringSubmatch(lines.Text()); found != nil {
				address <- found[1]
				_, _ = io.Copy(io.Discard, reader)
			}
		}
	}()
	select {
	case at := <-address:
		return at
	case <-time.After(hung):
		t.Fatalf("%s does not say where it serves", name)
		return ""
	}
}

func (e *example) send(t *testing.T, key, method, path, idempotencyKey string) {
	send(t, e.BaseURL, key, method, path, idempotencyKey)
}

// send returns a response with its body read. If there is none, the test fails
// and goes on.
func send(t *testing.T, base, key, method, path, idempotencyKey string) (*http.Response, string) {
	r, _ := http.NewRequest(method, base+path, strings.NewReader(`{"title":"Call back"}`))
	r.Header.Set("Authorization", "Bearer "+key)
	if idempotencyKey != "" {
		r.Header.Set("Idempotency-Key", idempotencyKey)
	}
	resp, err := (&http.Client{Timeout: hung}).Do(r)
	if err != nil {
		t.Error(err)
		return new(http.Response), ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

// A server is a Prometheus.
type server string

// startPrometheus reads the first target as one of staging, and the others as of
// production.
func startPrometheus(t *testing.T, dir string, targets ...string) server {
	t.Helper()
	rules, err := filepath.Abs("../../middleware/middlewareprom/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	const labels = `labels: {environment: %s, region: eu, namespace: shop, pod: api-0, version: "2"}`
	text := fmt.Sprintf("global: {scrape_interval: 250ms, evaluation_interval: 250ms}\nrule_files: [%s]\n"+
		"scrape_configs: [{job_name: example, static_configs: [{targets: ['%s'], "+labels+"}, "+
		"{targets: ['%s'], "+labels+"}]}]\n",
		rules, targets[0], "staging", strings.Join(targets[1:], "', '"), "production")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := "http://" + startServing(t, `Listening on".* address=(\S+)`, "prometheus", "--config.file", config,
		"--web.listen-address", "127.0.0.1:0", "--storage.tsdb.path", filepath.Join(dir, "data"))
	eventually(t, "Prometheus is ready", func() bool {
		resp, err := http.Get(at + "/-/ready")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return server(at)
}

// get reads an answer of Prometheus' API.
func (s server) get(t *testing.T, path string, into any) {
	t.Helper()
	resp, err := http.Get(string(s) + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// found reports whether an expression has a value.
func (s server) found(t *testing.T, expression string) bool {
	t.Helper()
	var answer struct{ Data struct{ Result []any } }
	s.get(t, "/api/v1/query?query="+url.QueryEscape(expression), &answer)
	return len(answer.Data.Result) > 0
}

// active returns the alerts whose expressions are true, however short.
func (s server) active(t *testing.T) (names []string) {
	t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, State string }
			}
		}
	}
	s.get(t, "/api/v1/rules", &answer)
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			if rule.State != "inactive" && rule.State != "" { // that of a recording rule
				names = append(names, rule.Name)
			}
		}
	}
	return names
}

func (s server) becomesActive(t *testing.T, alert string) {
	t.Helper()
	eventually(t, alert+" is true", func() bool { return slices.Contains(s.active(t), alert) })
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hung); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", hung, what)
		}
	}
}
