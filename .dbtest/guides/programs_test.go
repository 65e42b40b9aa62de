package guides_test

import (
	"bufio"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/.ci/testlib/curl"
	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// The programs do what their comments say, and end in good order.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	// With -o DIR the programs have the names of their folders.
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "./api", "./stream",
		"./payment").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, test := range map[string]func(*testing.T, *program){
		"api": testAPI, "stream": testStream, "payment": testPayment,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := pgtest.Schema(t)
			address, err := url.Parse(servers.Postgres.Address(t))
			if err != nil {
				t.Fatal(err)
			}
			query := address.Query()
			for parameter, value := range config.RuntimeParams {
				query.Set(parameter, value)
			}
			address.RawQuery = query.Encode()
			p := &program{t: t, path: filepath.Join(dir, name), db: stdlib.OpenDB(*config)}
			t.Cleanup(func() { p.db.Close() })
			p.env = append(os.Environ(), "DATABASE_URL="+address.String())
			test(t, p)
		})
	}
}

func testAPI(t *testing.T, p *program) {
	cache := redistest.Start(t)
	p.env = append(p.env, "REDIS_ADDR="+cache.Addr)
	p.startTogether("parcels")
	issued := exec.CommandContext(t.Context(), p.path, "issue", "first", "-org", "org_1", "-env", "production",
		"-scopes", "parcels:write")
	issued.Env = p.env
	out, err := issued.Output()
	if p.key = strings.TrimSpace(string(out)); err != nil || !strings.HasPrefix(p.key, "acme_live_") {
		t.Fatalf("issue printed %q: %v", out, err)
	}
	p.start()
	first := p.creates("/v2/parcels", `{"to": "Oslo"}`, http.StatusCreated)
	if want := `{"id":1,"to":"Lisbon"}` + "\n"; first.text != want {
		t.Errorf("got %q, want %q", first.text, want)
	}
	if n := p.count("SELECT count(*) FROM parcels"); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
	client := cache.Client()
	counters := client.DBSize(t.Context()).Val() // each expires when its bucket is full
	if stats := client.Info(t.Context(), "stats").Val(); counters == 0 && strings.Contains(stats, "expired_keys:0\r") {
		t.Errorf("Redis had no counter:\n%s", stats)
	}
	p.end()
	if n := p.count("SELECT coalesce(sum(requests), 0) FROM sallyport_keys_days"); n == 0 {
		t.Error("the program has ended, and not written how the key was used")
	}
}

func testStream(t *testing.T, p *program) {
	p.startTogether("parcels")
	p.start()
	first := p.creates("/v2/imports", `["Lisbon"]`, http.StatusOK)
	if want := `{"id":1,"to":"Lisbon"}` + "\n" + `{"id":2,"to":"Oslo"}` + "\n"; first.text != want ||
		first.ContentLength >= 0 {
		t.Errorf("got %q of length %d, want a stream of %q", first.text, first.ContentLength, want)
	}

	// A client that leaves after the first line gets all by its repeat.
	body := `["Rome"` + strings.Repeat(`, "Rome"`, 99) + `]`
	cut, err := http.DefaultClient.Do(p.request("POST", "/v2/imports", p.key, "cut", body))
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(cut.Body).ReadString('\n'); err != nil || !strings.Contains(line, "Rome") {
		t.Errorf("the first line is %q: %v", line, err)
	}
	cut.Body.Close()
	got := p.send("POST", "/v2/imports", p.key, "cut", body)
	for n := 0; got.StatusCode == http.StatusConflict && n < 20; n++ { // it still runs
		got = p.send("POST", "/v2/imports", p.key, "cut", body)
	}
	if lines := strings.Count(got.text, "\n"); lines != 100 || got.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeat got %d with %d lines, want all 100", got.StatusCode, lines)
	}
	if n := p.count("SELECT count(*) FROM parcels"); n != 102 {
		t.Errorf("got %d rows, want 102", n)
	}
	p.end()
}

func testPayment(t *testing.T, p *program) {
	charges := make(chan string, 10)
	var asked atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, _ := io.ReadAll(r.Body)
		charges <- r.Header.Get("Idempotency-Key") + " " + string(body)
	}))
	t.Cleanup(service.Close)
	p.env = append(p.env, "CHARGES="+service.URL)
	p.startTogether("payments")
	p.start()
	first := p.creates("/v2/payments", `{"cents": 300}`, http.StatusCreated)
	if want := "payment 1 of 250 cents\n"; first.text != want {
		t.Errorf("got %q, want %q", first.text, want)
	}
	if got := p.send("POST", "/v2/payments", p.key, "none", `{"cents": 0}`); got.StatusCode != http.StatusBadRequest {
		t.Errorf("nothing to pay: got %d %s", got.StatusCode, got.text)
	}
	if n := p.count("SELECT count(*) FROM payments"); n != 1 {
		t.Errorf("got %d rows, want 1", n)
	}
	redistest.Eventually(t, "the payment service is asked again", func() bool { return len(charges) > 0 })
	if got, want := <-charges, "payment-1 cents=250"; got != want {
		t.Errorf("the payment service got %s, want %s", got, want)
	}
	redistest.Eventually(t, "it is charged", func() bool {
		return p.count("SELECT count(*) FROM payments WHERE charged IS NOT NULL") == 1
	})
	p.end()
	if n := len(charges); n > 0 {
		t.Errorf("the payment service was asked %d times more", n)
	}
}

// A program is one of the guides', with a schema of its own.
type program struct {
	t    *testing.T
	path string
	env  []string
	db   *sql.DB

	cmd       *exec.Cmd
	out       io.Reader // what it prints and logs
	base, key string
}

// startTogether starts servers that all find no table, and ends them. A
// transaction that makes the table holds them there.
func (p *program) startTogether(table string) {
	p.t.Helper()
	tx, err := p.db.BeginTx(p.t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(p.t.Context(), "CREATE TABLE "+table+" (id bigint)")
	}
	if err != nil {
		p.t.Fatal(err)
	}
	var serving sync.WaitGroup
	for range 4 {
		server := *p
		serving.Go(func() {
			server.start()
			server.end()
		})
	}
	redistest.Eventually(p.t, "all wait for the table", func() bool {
		return p.count("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "+
			"AND application_name = current_schema()") == 4 // which pgtest gives them
	})
	if err := tx.Rollback(); err != nil {
		p.t.Fatal(err)
	}
	serving.Wait()
}

// start returns once the program serves.
func (p *program) start() {
	p.t.Helper()
	p.cmd = exec.CommandContext(p.t.Context(), p.path)
	p.cmd.Env = append(slices.Clip(p.env), "ADDR=127.0.0.1:0") // it is shared
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	lines := bufio.NewReader(out)
	p.out = lines
	var log strings.Builder
	for {
		line, err := lines.ReadString('\n')
		log.WriteString(line)
		if key, ok := strings.CutPrefix(line, "export KEY="); ok {
			p.key = strings.TrimSpace(key)
		}
		if _, base, ok := strings.Cut(line, "listening on "); ok {
			p.base = strings.TrimSpace(base)
			return
		}
		if err != nil {
			p.t.Fatalf("the program does not listen: %v\n%s", err, &log)
		}
	}
}

// end asks the program to end, and waits until it has.
func (p *program) end() {
	p.t.Helper()
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	log, _ := io.ReadAll(p.out)
	if err := errors.Join(err, p.cmd.Wait()); err != nil {
		p.t.Errorf("told to end: %v\n%s", err, log)
	}
}

// creates sends the create that the program's comment shows, what a client sends
// after it, and what is refused. It returns the first response.
func (p *program) creates(path, other string, status int) response {
	p.t.Helper()
	shown, body := p.shown()
	first := p.do(shown)
	for _, row := range []struct {
		name, key, idempotencyKey, body string
		status                          int
	}{
		{"the same again", p.key, "1", body, status},
		{"another body", p.key, "1", other, 422},
		{"no Idempotency-Key", p.key, "", body, 400},
		{"no key", "", "two", body, 401},
		{"another key", p.key + "x", "two", body, 401},
		{"no JSON", p.key, "three", "Lisbon", 400},
	} {
		got := p.send("POST", path, row.key, row.idempotencyKey, row.body)
		if got.StatusCode != row.status {
			p.t.Errorf("%s: got %d %s, want %d", row.name, got.StatusCode, got.text, row.status)
		}
		again := got.StatusCode == status
		if again && (got.text != first.text || got.Header.Get("Idempotent-Replayed") != "true") {
			p.t.Errorf("%s: got %q, want %q, replayed", row.name, got.text, first.text)
		}
	}
	if first.StatusCode != status || first.Header.Get("Idempotent-Replayed") != "" {
		p.t.Errorf("the create: got %d %s, want %d", first.StatusCode, first.text, status)
	}
	return first
}

type response struct {
	*http.Response
	text string
}

func (p *program) send(method, path, key, idempotencyKey, body string) response {
	p.t.Helper()
	return p.do(p.request(method, path, key, idempotencyKey, body))
}

func (p *program) do(r *http.Request) response {
	p.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response{resp, string(text)}
}

// shown returns what the last command of the program's comment sends.
func (p *program) shown() (r *http.Request, body string) {
	p.t.Helper()
	source, err := os.ReadFile(filepath.Join(filepath.Base(p.path), "main.go"))
	if err != nil {
		p.t.Fatal(err)
	}
	text, _, _ := strings.Cut(strings.ReplaceAll(string(source), "\\\n//\t", ""), "\npackage ")
	_, command, _ := strings.Cut(text, "//\tcurl ")
	r, err = curl.Request("curl "+strings.Replace(command, "http://127.0.0.1:8080", p.base, 1), p.key)
	if err != nil {
		p.t.Fatal(err)
	}
	again, _ := r.GetBody()
	sent, _ := io.ReadAll(again) // a string
	return r, string(sent)
}

func (p *program) request(method, path, key, idempotencyKey, body string) *http.Request {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.base+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl does
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if idempotencyKey != "" {
		r.Header.Set("Idempotency-Key", idempotencyKey)
	}
	return r
}

func (p *program) count(query string) (n int) {
	p.t.Helper()
	if err := p.db.QueryRowContext(p.t.Context(), query).Scan(&n); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
	return n
}
