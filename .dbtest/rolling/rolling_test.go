// The previous version of the library and this one serve together, as they do
// while one is replaced by the other.
package rolling_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
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
	"time"

	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
)

// newLimit is what this version has in place of the previous one's 20-D.
const newLimit = "9000-S"

// hung is when a request, or a wait for another process, counts as lost.
const hung = time.Minute

func TestRollingDeploy(t *testing.T) {
	previous, present := build(t)
	for _, kind := range []string{"postgres", "pgx", "mariadb", "sqlite", "redis"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, kind)
			f.deploy(previous, present)
		})
	}
}

// deploy replaces two processes of the previous version by two of this one.
func (f *fleet) deploy(previous, present string) {
	t := f.t
	killed := f.start(previous, "-changed", "20-D")
	drained := f.start(previous, "-changed", "20-D")
	f.token, _ = f.issue(killed, "/issue")

	var first, second *process
	newer := append(f.more, "-changed", newLimit)
	f.underLoad("while this version migrates the tables", func() { first = f.start(present, newer...) })
	f.repeat()
	f.revoke(killed, first)
	f.revoke(first, killed)
	f.erase(first, killed)
	f.delegate(first, killed)
	f.limits(killed, first)
	f.underLoad("while a process is killed", func() {
		f.killed.Store(true)
		f.end(killed, syscall.SIGKILL)
		second = f.start(present, newer...)
	})
	f.underLoad("while a process is drained", func() {
		if err := f.end(drained, syscall.SIGTERM); err != nil {
			t.Errorf("the previous version, told to end: %v\n%s", err, &drained.log)
		}
	})
	f.repeat()

	back, err := f.tryStart(previous)
	switch {
	case err == nil:
		f.underLoad("while the previous version comes back", func() {})
		f.revoke(second, back)
		f.end(back, syscall.SIGTERM)
	case strings.Contains(back.log.String(), "update the server"):
		t.Logf("the previous version refuses the tables: %s", &back.log)
	default:
		t.Errorf("the previous version starts on the tables of this one: %v\n%s", err, &back.log)
	}
	f.revoke(first, second)
	f.underLoad("in the end", func() {})
	f.repeat()
	f.count()
	f.used(first)
}

// used ends a process and reports unless it has written how the key was used.
func (f *fleet) used(p *process) {
	if err := f.end(p, syscall.SIGTERM); err != nil {
		f.t.Errorf("this version, told to end: %v\n%s", err, &p.log)
	}
	var scopes, requests int
	if err := f.db.QueryRow("SELECT (SELECT COUNT(*) FROM sallyport_keys_scopes), "+
		"(SELECT COALESCE(SUM(requests), 0) FROM sallyport_keys_days)").Scan(&scopes, &requests); err != nil {
		f.t.Fatal(err)
	}
	if scopes == 0 || requests == 0 || strings.Contains(p.log.String(), "could not be written") {
		f.t.Errorf("%d scopes and %d requests were written\n%s", scopes, requests, &p.log)
	}
}

// A fleet is the processes that share a store, and what their clients know.
type fleet struct {
	t      *testing.T
	args   []string // of each process
	more   []string // of those of this version
	db     *sql.DB
	routes []string
	token  string
	killed atomic.Bool // so an outcome may be unknown

	mu       sync.Mutex
	live     []*process
	creates  map[create]string // the first response to each, or ""
	unknown  map[create]bool   // those that got 409 because nobody knows whether they ran
	retained int
}

// A create is a request with a key of its own.
type create struct{ route, key string }

type process struct {
	base string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

func newFleet(t *testing.T, kind string) *fleet {
	f := &fleet{t: t, routes: []string{"leased", "joined", "streamed"}, creates: map[create]string{},
		unknown: map[create]bool{}}
	f.args = []string{"-redis", servers.Redis.Address(t),
		"-prefix", redistest.OwnPrefix(t, redistest.Connect(t, redistest.Options(t)))}
	var driver, dsn string
	text := "text"
	switch kind {
	case "postgres", "pgx":
		driver, dsn = "pgx", postgres(t)
	case "mariadb":
		driver, dsn, text = "mysql", sqltest.MariaDB(t).FormatDSN(), "varchar(190)"
	default:
		driver, dsn = "sqlite", "file:"+sqltest.SQLite(t)+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)"
	}
	switch kind {
	case "pgx":
		f.more = []string{"-native"} // in place of the database/sql of the previous one
	case "redis":
		f.routes = []string{"leased", "streamed"}
		f.args = append(f.args, "-replies", "redis", "-ahead", "100ms")
	}
	f.args = append(f.args, "-driver", driver, "-dsn", dsn)
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	f.db = db
	t.Cleanup(func() { f.db.Close() })
	if _, err := f.db.Exec("CREATE TABLE rolling_tasks (id " + text + " NOT NULL PRIMARY KEY, title " + text +
		" NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range slices.Clone(f.live) {
			f.end(p, syscall.SIGKILL)
			if t.Failed() {
				log := p.log.String()
				t.Logf("%s: %s", filepath.Base(p.cmd.Path), log[max(0, len(log)-4000):])
			}
		}
	})
	return f
}

// postgres returns the DSN of a schema that goes with the test.
func postgres(t *testing.T) string {
	u, err := url.Parse(servers.Postgres.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	for name, value := range pgtest.Schema(t).RuntimeParams {
		query.Set(name, value)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// build returns the programs of the previous version and of this one.
func build(t *testing.T) (previous, present string) {
	t.Helper()
	output := func(dir, name string, args ...string) []byte {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		var mistakes bytes.Buffer
		cmd.Stderr = &mistakes
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &mistakes)
		}
		return out
	}
	root, dir := filepath.Join("..", ".."), t.TempDir()
	commit := os.Getenv("SALLYPORT_PREVIOUS")
	if commit == "" {
		kept, err := os.ReadFile("previous")
		if err != nil {
			t.Fatal(err)
		}
		commit = strings.TrimSpace(string(kept))
	}
	out, err := exec.Command("git", "rev-parse", "--verify", "--end-of-options", commit+"^{commit}").CombinedOutput()
	if err != nil {
		t.Fatalf("the history lacks the previous version, commit %s; a shallow clone gets it by git fetch --unshallow: "+
			"%v\n%s", commit, err, out)
	}
	// Go compiles what lies in another folder anew, so the source stays where it is.
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = dir
	}
	old := filepath.Join(cache, "sallyport-rolling", strings.TrimSpace(string(out)))
	if _, err := os.Stat(old); err != nil {
		unpacked := old + "." + rand.Text()
		unpack(t, output(root, "git", "archive", "--format=tar", commit), unpacked)
		if err := os.Rename(unpacked, old); err != nil { // another run was quicker
			os.RemoveAll(unpacked)
		}
	}
	previous, present = filepath.Join(dir, "previous"), filepath.Join(dir, "present")
	output(filepath.Join(old, ".dbtest"), "go", "build", "-buildvcs=false", "-o", previous, "./rolling/server")
	output(filepath.Join(old, "keystore", "cmd", "sallyport"), "go", "build", "-buildvcs=false", "-o",
		previous+"-command", ".")
	output("..", "go", "build", "-buildvcs=false", "-o", present, "./rolling/server")
	return previous, present
}

func unpack(t *testing.T, archive []byte, dir string) {
	for files := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := files.Next()
		if err == io.EOF {
			return
		}
		if err == nil && h.Typeflag == tar.TypeReg {
			name := filepath.Join(dir, filepath.FromSlash(h.Name))
			var text []byte
			text, err = io.ReadAll(files)
			err = errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, text, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fleet) start(program string, args ...string) *process {
	f.t.Helper()
	p, err := f.tryStart(program, args...)
	if err != nil {
		f.t.Fatalf("%s: %v\n%s", filepath.Base(program), err, &p.log)
	}
	return p
}

// tryStart returns once the process serves, or has ended.
func (f *fleet) tryStart(program string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(program, append(slices.Clone(f.args), args...)...)}
	p.cmd.Stderr = &p.log
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		_, err = p.cmd.StdinPipe() // the process ends with it
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return p, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return p, errors.Join(err, p.cmd.Wait())
	}
	p.base = strings.TrimSpace(line)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = append(f.live, p)
	return p, nil
}

// end ends a process. Its clients find that out by themselves.
func (f *fleet) end(p *process, s syscall.Signal) error {
	err := errors.Join(p.cmd.Process.Signal(s), p.cmd.Wait())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = slices.DeleteFunc(f.live, func(other *process) bool { return other == p })
	return err
}

func (f *fleet) processes() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.live)
}

// An answer is a response that was read to its end.
type answer struct {
	status int
	body   string
}

// do sends a request with the fleet's key, or another one.
func (f *fleet) do(p *process, token, method, path, key, body string) (answer, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), hung)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, p.base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Host = "api.example.com"
	r.Header.Set("Authorization", "Bearer "+token)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(text)}, err
}

// underLoad does something while clients create tasks: each with three requests
// at once, to one process after the other until one has answered.
func (f *fleet) underLoad(when string, do func()) {
	f.t.Helper()
	const clients, least = 3, 30
	var number atomic.Int64
	var all sync.WaitGroup
	begun, done := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	for range clients {
		all.Go(func() {
			defer begin()
			for !f.t.Failed() {
				n := number.Add(1)
				select {
				case <-done:
					if n > least {
						return
					}
				default:
				}
				c := create{f.routes[int(n)%len(f.routes)], fmt.Sprint(when, " ", n)}
				var three sync.WaitGroup
				for i := range 3 {
					three.Go(func() { f.create(c, int(n)+i, f.processes) })
				}
				three.Wait()
				begin()
			}
		})
	}
	<-begun
	do()
	close(done)
	all.Wait()
	f.t.Logf("%s: %d creates", when, number.Load()-clients)
	f.checked()
}

// checked ends a test that has failed.
func (f *fleet) checked() {
	if f.t.Failed() {
		f.t.FailNow()
	}
}

// repeat asks each process again for everything that was created.
func (f *fleet) repeat() {
	f.t.Helper()
	for _, p := range f.processes() {
		var all sync.WaitGroup
		limit := make(chan struct{}, 8)
		for c := range maps.Clone(f.creates) {
			limit <- struct{}{}
			all.Go(func() {
				f.create(c, 0, func() []*process { return []*process{p} })
				<-limit
			})
		}
		all.Wait()
	}
	f.checked()
}

// create sends a request until there is an outcome.
func (f *fleet) create(c create, turn int, to func() []*process) {
	var got answer
	var err error
	for until := time.Now().Add(hung); time.Now().Before(until) && f.t.Context().Err() == nil; turn++ {
		processes := to()
		got, err = f.do(processes[turn%len(processes)], f.token, "POST", "/api/v1/"+c.route, c.key, c.key)
		switch {
		case err == nil && f.settled(c, got):
			return
		case err == nil && got.status != http.StatusServiceUnavailable &&
			!strings.Contains(got.body, `"idempotency_in_progress"`):
			f.t.Errorf("%s: got %d %s", c, got.status, got.body)
			return
		}
		if f.t.Failed() {
			return // what it waits for may never come
		}
		<-time.After(20 * time.Millisecond) // for a process that starts, or a lease that ends
	}
	f.t.Errorf("%s: no outcome, at last %v %v", c, got, err)
}

// settled notes the outcome of a create, if it is one.
func (f *fleet) settled(c create, got answer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, created := f.creates[c]
	switch {
	case got.status == http.StatusCreated:
		if first != "" && first != got.body {
			f.t.Errorf("%s: a repeat got %q, and the first request %q", c, got.body, first)
		}
		f.creates[c] = got.body
	case strings.Contains(got.body, `"idempotency_outcome_unknown"`) && f.killed.Load() && c.route != "joined":
		if first != "" && c.route != "streamed" { // whose response is sent before it is saved
			f.t.Errorf("%s: it was answered with %q, and now its outcome is unknown", c, first)
		}
		f.unknown[c] = true
		f.creates[c] = first
	case strings.Contains(got.body, `"idempotency_response_not_retained"`) && c.route == "streamed":
		f.retained++
		if !created {
			f.creates[c] = ""
		}
	default:
		return false
	}
	return true
}

// count compares what was answered with what is stored.
func (f *fleet) count() {
	t := f.t
	rows, err := f.db.Query("SELECT id, title FROM rolling_tasks")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	stored := map[create][]string{}
	for rows.Next() {
		var id, title string
		if err := rows.Scan(&id, &title); err != nil {
			t.Fatal(err)
		}
		stored[create{key: title}] = append(stored[create{key: title}], id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for c, body := range f.creates {
		ids := stored[create{key: c.key}]
		switch {
		case len(ids) > 1:
			t.Errorf("%s: doubled, %d tasks", c, len(ids))
		case len(ids) == 0 && !f.unknown[c]:
			t.Errorf("%s: lost, there is no task and the response was %q", c, body)
		case body != "" && body != "id: "+ids[0]+"\ntitle: "+c.key+"\n":
			t.Errorf("%s: the task is %s and the response was %q", c, ids[0], body)
		}
		delete(stored, create{key: c.key})
	}
	if len(stored) != 0 {
		t.Errorf("%d tasks that no client has asked for", len(stored))
	}
	t.Logf("%d creates, %d of them with an outcome that nobody knows, %d times not retained", len(f.creates),
		len(f.unknown), f.retained)
}

// manage lets a process do what its paths beside the API do, and returns its answer.
func (f *fleet) manage(p *process, path string) string {
	f.t.Helper()
	got, err := f.do(p, "", "POST", path, "", "")
	if err != nil || got.status != http.StatusOK {
		f.t.Fatalf("%s: %v %v", path, got, err)
	}
	return got.body
}

// issue makes a key, or by another path a child, which all the processes take.
func (f *fleet) issue(p *process, path string, all ...*process) (token, id string) {
	f.t.Helper()
	token, id, ok := strings.Cut(f.manage(p, path), " ")
	for _, p := range all {
		ok = ok && f.accepts(p, token)
	}
	if !ok {
		f.t.Fatalf("a new key of %s is refused", path)
	}
	return token, id
}

// endsSoon waits until a process refuses a key that was ended elsewhere, of which
// it knows by the feed alone: it remembers a key for an hour.
func (f *fleet) endsSoon(p *process, token, how string) {
	f.t.Helper()
	for until := time.Now().Add(hung); f.accepts(p, token); {
		if time.Now().After(until) {
			f.t.Fatalf("the other process goes on accepting a key that was %s", how)
		}
	}
}

// accepts reports whether a process takes a key, whatever is left of a limit.
func (f *fleet) accepts(p *process, token string) bool {
	f.t.Helper()
	got, err := f.do(p, token, "GET", "/api/v1/nothing", "", "")
	if err != nil || got.status != http.StatusUnauthorized && got.status != http.StatusNotFound {
		f.t.Fatalf("got %v %v", got, err)
	}
	return got.status == http.StatusNotFound
}

// revoke makes a key in one process, which both take, and revokes it there.
func (f *fleet) revoke(here, there *process) {
	f.t.Helper()
	token, id := f.issue(here, "/issue", here, there)
	f.same(id, here, there)
	f.manage(here, "/revoke/"+id)
	if f.accepts(here, token) {
		f.t.Error("a revoked key is accepted where it was revoked")
	}
	f.endsSoon(there, token, "revoked")
	f.same(id, here, there)
}

// erase removes an organization of one key in a process of this version.
func (f *fleet) erase(here, there *process) {
	f.t.Helper()
	token, id := f.issue(here, "/issue?organization=gone", here, there)
	if got := f.manage(here, "/erase/gone"); got != "1 1" {
		f.t.Fatalf("erase: got %s, want one key and one entry", got)
	}
	if f.accepts(here, token) {
		f.t.Error("an erased key is accepted where it was erased")
	}
	f.endsSoon(there, token, "erased")
	var left int
	if err := f.db.QueryRow("SELECT COUNT(*) FROM sallyport_keys WHERE organization = 'gone' OR id = '" + id + "'").
		Scan(&left); err != nil || left != 0 {
		f.t.Errorf("%d rows of the organization are left, %v", left, err)
	}
}

// delegate makes children of keys in a process of this version. The previous one
// takes them too, and can end them and their parents.
func (f *fleet) delegate(here, old *process) {
	f.t.Helper()
	for _, end := range []string{"parent", "child"} {
		_, id := f.issue(old, "/issue")
		token, child := f.issue(here, "/delegate/"+id, here, old)
		f.same(child, here, old)
		f.rotate(old, child)
		f.manage(old, "/revoke/"+map[string]string{"parent": id, "child": child}[end])
		f.endsSoon(here, token, "delegated, when its "+end+" was revoked")
		if f.accepts(old, token) {
			f.t.Errorf("a child is accepted where its %s was revoked", end)
		}
	}
}

// rotate lets the command of the previous version rotate a key, which it does,
// and a child, which it refuses.
func (f *fleet) rotate(old *process, child string) {
	f.t.Helper()
	_, id := f.issue(old, "/issue")
	for _, key := range []string{id, child} {
		cmd := exec.CommandContext(f.t.Context(), old.cmd.Path+"-command", "rotate", key, "-org", "org", "-yes")
		cmd.Env = append(os.Environ(), "SALLYPORT_DSN="+f.args[len(f.args)-1])
		var said bytes.Buffer // without the secret, which it prints
		cmd.Stderr = &said
		err := cmd.Run()
		refused := strings.Contains(said.String(), "cannot be rotated")
		if refused == (key == id) || refused == (err == nil) {
			f.t.Errorf("the previous version rotates %s, a child: %v: %v\n%s", key, key == child, err, &said)
		}
	}
}

// same compares what two processes read of a key.
func (f *fleet) same(id string, here, there *process) {
	f.t.Helper()
	a, err := f.do(here, "", "GET", "/key/"+id, "", "")
	b, err2 := f.do(there, "", "GET", "/key/"+id, "", "")
	if err := errors.Join(err, err2); err != nil || a.status != http.StatusOK || a != b {
		f.t.Errorf("the key is %v here and %v there, %v", a, b, err)
	}
}

// limits sends more requests than the limits of 20 a day let through. A limit
// is exceeded by more than what the two versions let through together if more
// than 40 get through; nothing comes back during the test.
func (f *fleet) limits(old, present *process) {
	f.t.Helper()
	for name, counted := range map[string][]*process{
		"same":    {old, present},
		"changed": {old}, // this version has a limit that lets all requests through
	} {
		admitted := 0
		for range 60 {
			for _, p := range []*process{old, present} {
				got, err := f.do(p, f.token, "GET", "/api/v1/"+name, "", "")
				switch {
				case err != nil || got.status != http.StatusOK && got.status != http.StatusTooManyRequests:
					f.t.Fatalf("%s: got %v %v", name, got, err)
				case got.status == http.StatusOK && slices.Contains(counted, p):
					admitted++
				}
			}
		}
		f.t.Logf("the limit %s of 20: %d requests admitted", name, admitted)
		if admitted > 40 {
			f.t.Errorf("the limit %s of 20 a day let %d requests through, want at most 40", name, admitted)
		}
	}
	f.checked()
}
