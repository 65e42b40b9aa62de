package main

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// inEachDatabase runs f as a subtest, beside others, with the flags of a database
// of each kind that no other test sees.
func inEachDatabase(t *testing.T, f func(t *testing.T, flags []string)) {
	for kind, flags := range map[string]func(t *testing.T) []string{
		"sqlite": func(t *testing.T) []string {
			servers.SQLite.Met(t)
			return []string{"-sqlite", filepath.Join(t.TempDir(), "fleet.db")}
		},
		"postgres": func(t *testing.T) []string { return []string{"-postgres", newDatabase(t)} },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, flags(t))
		})
	}
}

// inEachStore is inEachDatabase, and f in memory.
func inEachStore(t *testing.T, f func(t *testing.T, flags []string)) {
	t.Run("memory", func(t *testing.T) { f(t, nil) })
	inEachDatabase(t, f)
}

// newDatabase returns the DSN of a schema of the test's own.
func newDatabase(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(servers.Postgres.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for name, value := range pgtest.Schema(t).RuntimeParams {
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func TestKeysTasksAndRepliesSurviveARestart(t *testing.T) {
	t.Parallel()
	inEachDatabase(t, func(t *testing.T, flags []string) {
		first := start(t, flags...)
		secret := first.keys.Full
		create := func(srv *running) reply {
			return srv.must(t, secret, http.MethodPost, tasksPath, `{"title":"Moor the ferry"}`, "Idempotency-Key", "moor",
				"Host", "api.example.com")
		}
		created := create(first)
		if created.StatusCode != http.StatusCreated {
			t.Fatalf("got %s %s, want 201", created.Status, created.text)
		}
		first.end()
		<-first.ended

		second := start(t, flags...)
		again := create(second)
		if again.StatusCode != http.StatusCreated || again.text != created.text ||
			again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repeat after the restart: got %s %s, want the first reply %s", again.Status, again.text, created.text)
		}
		for _, key := range []string{secret, second.keys.Full} {
			list := decode[taskList](t, second.must(t, key, http.MethodGet, tasksPath, ""))
			if len(list.Tasks) != 1 || list.Tasks[0].Title != "Moor the ferry" {
				t.Errorf("got tasks %v, want the one that was created before", list.Tasks)
			}
		}
	})
}

// A handler that fails after it has written leaves nothing, since its rows and
// its reply are one transaction.
func TestAFailedCreateLeavesNoTask(t *testing.T) {
	t.Parallel()
	inEachDatabase(t, func(t *testing.T, flags []string) {
		s := openFor(t, "", flags...)
		failing := &failsOnce{taskStore: s.tasks}
		s.tasks = failing
		srv := startWith(t, s, flags...)
		create := func() reply {
			return srv.must(t, srv.keys.Full, http.MethodPost, tasksPath, `{"title":"Once"}`, "Idempotency-Key", "k")
		}
		if got := create(); got.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("got %s %s, want 503", got.Status, got.text)
		}
		if got := create(); got.StatusCode != http.StatusCreated || got.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("the repeat: got %s, want a first 201", got.Status)
		}
		if list := decode[taskList](t, srv.must(t, srv.keys.Full, http.MethodGet, tasksPath, "")); len(list.Tasks) != 1 {
			t.Errorf("got %d tasks, want 1", len(list.Tasks))
		}
	})
}

// failsOnce writes the first task and says that it could not.
type failsOnce struct {
	taskStore
	once sync.Once
}

func (s *failsOnce) Create(ctx context.Context, tenant, title string) (t task, err error) {
	t, err = s.taskStore.Create(ctx, tenant, title)
	s.once.Do(func() { err = errBroken })
	return t, err
}

func TestTwoServersBehaveAsOne(t *testing.T) {
	t.Parallel()
	flags := []string{"-postgres", newDatabase(t), "-redis", servers.Redis.Address(t), "-rate", "1000-S",
		"-sandbox-rate", "20-D"}
	prefix := redistest.OwnPrefix(t, redistest.Connect(t, redistest.Options(t)))
	a, b := startWith(t, openFor(t, prefix, flags...), flags...), startWith(t, openFor(t, prefix, flags...), flags...)

	const clients = 50
	replies := make([]reply, clients)
	var all sync.WaitGroup
	for i := range clients {
		srv := []*running{a, b}[i%2]
		all.Go(func() {
			replies[i], _ = srv.do(t.Context(), a.keys.Full, http.MethodPost, tasksPath, `{"title":"Once for the fleet"}`,
				"Idempotency-Key", "fleet", "Host", "api.example.com")
		})
	}
	all.Wait()
	for i, r := range replies {
		if r.Response == nil || r.StatusCode != http.StatusCreated || r.text != replies[0].text {
			t.Fatalf("client %d: got %+v, want what client 0 got, %s", i, r, replies[0].text)
		}
	}
	if list := decode[taskList](t, b.must(t, b.keys.Full, http.MethodGet, tasksPath, "")); len(list.Tasks) != 1 {
		t.Errorf("got %d tasks, want 1", len(list.Tasks))
	}

	statuses := make(map[int]int)
	for i := range 40 {
		statuses[[]*running{a, b}[i%2].must(t, b.keys.Sandbox, http.MethodGet, "/api/v1/account", "").StatusCode]++
	}
	if statuses[http.StatusOK] != 20 || statuses[http.StatusTooManyRequests] != 20 {
		t.Errorf("the two servers together answered %v, want 20 of 200 and 20 of 429", statuses)
	}
}

func TestAStoreThatIsNotThereIsSaidAtTheStart(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ flags, want string }{
		{"-postgres postgres://nobody@127.0.0.1:1/x?connect_timeout=1", "-postgres"},
		{"-redis redis://127.0.0.1:1", "-redis"},
		{"-redis not-a-url", "-redis"},
		{"-redis redis://:s3cret@127.0.0.1:x/0", "-redis"},
		{"-postgres postgres://u:s3cret@127.0.0.1:x/0", "-postgres"},
		{"-sqlite " + filepath.Join(t.TempDir(), "no", "such", "folder"), filepath.Join("no", "such", "folder")},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := runArgs(ctx, t, t.Output(), append(strings.Fields(row.flags), "-addr", "127.0.0.1:0")...)
		cancel()
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want an error that names %s and no password", row.flags, err, row.want)
		}
	}
}

func TestFileNamesAreTakenAsTheyAre(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "we?ird#na%6de.db")
	start(t, "-sqlite", file)
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("got %v, %v", info, err)
	}
}

func TestATakenPortLeavesNoKeys(t *testing.T) {
	t.Parallel()
	taken := strings.TrimPrefix(start(t).base, "http://")
	file := filepath.Join(t.TempDir(), "example.db")
	for _, args := range [][]string{{"-addr", taken}, {"-addr", "127.0.0.1:0", "-metrics", taken},
		{"-addr", "127.0.0.1:0", "-gateway", taken}} {
		if err := runArgs(t.Context(), t, t.Output(), append(args, "-sqlite", file)...); err == nil {
			t.Fatalf("%v: the port is taken, and there is no error", args)
		}
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var keys int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM sallyport_keys").Scan(&keys); err != nil || keys != 0 {
		t.Errorf("got %d keys, %v; want none", keys, err)
	}
}

func TestAStoreThatHangsIsGivenUp(t *testing.T) {
	hung := brokenTasks(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	h := within(time.Millisecond, (&tasks{store: hung, logger: logger(t)}).list)
	w := httptest.NewRecorder()
	h(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("got %d with %v", w.Code, w.Header())
	}
}

func TestReadiness(t *testing.T) {
	var away atomic.Bool
	s := memoryStores()
	s.pings = append(s.pings, func(context.Context) error {
		if away.Load() {
			return errBroken
		}
		return nil
	})
	srv := startWith(t, s)
	for _, want := range []int{200, 503, 200} {
		away.Store(want == 503)
		if got := srv.must(t, "", "GET", "/readyz", ""); got.StatusCode != want || strings.Contains(got.text, "secret") {
			t.Errorf("got %s %q, want %d", got.Status, got.text, want)
		}
		if got := srv.must(t, "", "GET", "/healthz", ""); got.StatusCode != 200 || got.text != "ok\n" ||
			got.Header.Get("Svc-Request-Id") == "" {
			t.Errorf("alive: got %s %q", got.Status, got.text)
		}
	}
}

func TestReadinessWhileDraining(t *testing.T) {
	srv, _ := newServer(mustParse(t), memoryStores(), nil, logger(t))
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := func() int {
		w := httptest.NewRecorder()
		srv.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		return w.Code
	}
	for ready() != http.StatusServiceUnavailable { // the hooks run on goroutines of their own
		runtime.Gosched()
	}
}
