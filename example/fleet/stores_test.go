package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"log/slog"
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

	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/.ci/servers"
)

// inEachDatabase runs f as a subtest, beside others, with the flags of a database
// of each kind that no other test sees.
func inEachDatabase(t *testing.T, f func(t *testing.T, flags []string)) {
	for kind, flags := range map[string]func(t *testing.T) []string{
		"sqlite":   func(t *testing.T) []string { return []string{"-sqlite", newFile(t)} },
		"postgres": func(t *testing.T) []string { return []string{"-postgres", newDatabase(t)} },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, flags(t))
		})
	}
}

// newFile returns the name of a database of SQLite that is not there yet.
func newFile(t *testing.T) string {
	servers.SQLite.Met(t)
	return filepath.Join(t.TempDir(), "fleet.db")
}

// newDatabase makes a database in the Postgres of the tests and returns its DSN.
func newDatabase(t *testing.T) string {
	t.Helper()
	dsn := servers.Postgres.Address(t)
	server, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	name := "example_" + xid.New().String()
	if _, err := server.ExecContext(t.Context(), `CREATE DATABASE `+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := server.ExecContext(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func TestKeysTasksAndRepliesSurviveARestart(t *testing.T) {
	t.Parallel()
	inEachDatabase(t, func(t *testing.T, flags []string) {
		first := start(t, flags...)
		secret := first.keys.Full
		created := first.must(t, secret, http.MethodPost, tasksPath, `{"title":"Moor the ferry"}`, "Idempotency-Key", "moor",
			"Host", "api.example.com")
		if created.StatusCode != http.StatusCreated {
			t.Fatalf("got %s %s, want 201", created.Status, created.text)
		}
		first.end()
		<-first.ended

		second := start(t, flags...)
		if second.keys.Full == secret {
			t.Error("the second start issued the same key")
		}
		again := second.must(t, secret, http.MethodPost, tasksPath, `{"title":"Moor the ferry"}`, "Idempotency-Key", "moor",
			"Host", "api.example.com")
		if again.StatusCode != http.StatusCreated || again.text != created.text ||
			again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the repeat after the restart: got %s %s, want the first reply %s", again.Status, again.text, created.text)
		}
		for _, key := range []string{secret, second.keys.Full} {
			list := decode[struct{ Tasks []task }](t, second.must(t, key, http.MethodGet, tasksPath, ""))
			if len(list.Tasks) != 1 || list.Tasks[0].Title != "Moor the ferry" {
				t.Errorf("got tasks %v, want the one that was created before", list.Tasks)
			}
		}
	})
}

func TestTasksInADatabase(t *testing.T) {
	t.Parallel()
	inEachDatabase(t, func(t *testing.T, flags []string) {
		srv := start(t, flags...)
		var ids []string
		for _, title := range []string{"one", "two", "three"} {
			ids = append(ids, srv.create(t, srv.keys.Full, title).ID)
		}
		for range 2 {
			got := decode[task](t, srv.must(t, srv.keys.Full, http.MethodPost, tasksPath+"/"+ids[1]+"/cancel", "",
				"Idempotency-Key", xid.New().String()))
			if got.State != cancelled {
				t.Errorf("cancel: got %+v", got)
			}
		}
		wantProblem(t, "another organization's task", srv.must(t, srv.keys.Other, http.MethodGet, tasksPath+"/"+ids[0], ""),
			http.StatusNotFound, "not_found")
		wantProblem(t, "a sandbox key", srv.must(t, srv.keys.Sandbox, http.MethodPost, tasksPath+"/"+ids[0]+"/cancel", ""),
			http.StatusNotFound, "not_found")
		for _, id := range []string{"%ff", "a%00b", "task_", "task_%ff", "task_" + xid.New().String()} {
			wantProblem(t, id, srv.must(t, srv.keys.Full, http.MethodGet, tasksPath+"/"+id, ""), http.StatusNotFound,
				"not_found")
			wantProblem(t, id, srv.must(t, srv.keys.Full, http.MethodPost, tasksPath+"/"+id+"/cancel", ""), http.StatusNotFound,
				"not_found")
		}
		list := decode[taskList](t, srv.must(t, srv.keys.Full, http.MethodGet, tasksPath, "")).Tasks
		if len(list) != 3 || list[0].ID != ids[2] || list[1].ID != ids[1] || list[2].ID != ids[0] {
			t.Errorf("got %v, want %s, the newest first", list, ids)
		}
	})
}

// A handler that fails after it has written leaves nothing, since its rows and
// its reply are one transaction.
func TestAFailedCreateLeavesNoTask(t *testing.T) {
	t.Parallel()
	inEachDatabase(t, func(t *testing.T, flags []string) {
		c, err := parseFlags(flags, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		c.patience = patience
		s, err := openStores(t.Context(), c, slog.New(slog.NewTextHandler(t.Output(), nil)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.close() })
		failing := &failsOnce{taskStore: s.tasks}
		s.tasks = failing
		srv := startWith(t, s, flags...)
		if got := srv.must(t, srv.keys.Full, http.MethodPost, tasksPath, `{"title":"Once"}`, "Idempotency-Key",
			"k"); got.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("got %s %s, want 503", got.Status, got.text)
		}
		if got := srv.must(t, srv.keys.Full, http.MethodPost, tasksPath, `{"title":"Once"}`, "Idempotency-Key",
			"k"); got.StatusCode != http.StatusCreated || got.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("the repeat: got %s, want a first 201", got.Status)
		}
		if list := decode[struct{ Tasks []task }](t, srv.must(t, srv.keys.Full, http.MethodGet, tasksPath,
			"")); len(list.Tasks) != 1 {
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
	cache := servers.Redis.Address(t)
	prefix := ownPrefix(t, cache)
	flags := []string{"-postgres", newDatabase(t), "-redis", cache, "-rate", "1000-S", "-sandbox-rate", "20-H"}
	var servers [2]*running
	for i := range servers {
		c, err := parseFlags(flags, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		c.patience, c.limitsPrefix = patience, prefix
		s, err := openStores(t.Context(), c, slog.New(slog.NewTextHandler(t.Output(), nil)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.close() })
		servers[i] = startWith(t, s, flags...)
	}
	a, b := servers[0], servers[1]

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
	if list := decode[struct{ Tasks []task }](t, b.must(t, b.keys.Full, http.MethodGet, tasksPath,
		"")); len(list.Tasks) != 1 {
		t.Errorf("got %d tasks, want 1", len(list.Tasks))
	}

	admitted := 0
	for i := range 40 {
		got := []*running{a, b}[i%2].must(t, b.keys.Sandbox, http.MethodGet, "/api/v1/account", "")
		switch got.StatusCode {
		case http.StatusOK:
			admitted++
		case http.StatusTooManyRequests:
		default:
			t.Fatalf("got %s %s", got.Status, got.text)
		}
	}
	if admitted != 20 {
		t.Errorf("the two servers together admitted %d requests, want 20", admitted)
	}
}

// ownPrefix is that of keys in Redis which nobody else has, and which go with
// the test.
func ownPrefix(t *testing.T, cache string) string {
	prefix := "test-" + rand.Text() + ":"
	t.Cleanup(func() {
		ctx := context.Background()
		client := redis.NewClient(must(redis.ParseURL(cache)))
		defer client.Close()
		for keys := client.Scan(ctx, 0, "*"+prefix+"*", 1000).Iterator(); keys.Next(ctx); {
			if err := client.Del(ctx, keys.Val()).Err(); err != nil {
				t.Error(err)
			}
		}
	})
	return prefix
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

// hungStore answers when the context ends.
type hungStore struct{ taskStore }

func (hungStore) List(ctx context.Context, _ string) ([]task, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAStoreThatHangsIsGivenUp(t *testing.T) {
	h := within(time.Millisecond,
		(&tasks{store: hungStore{}, logger: slog.New(slog.NewTextHandler(t.Output(), nil))}).list)
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
		if got := srv.must(t, "", "GET", "/healthz", ""); got.StatusCode != 200 {
			t.Errorf("alive: got %s", got.Status)
		}
	}
}

func TestReadinessWhileDraining(t *testing.T) {
	c, err := parseFlags(nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	srv, _ := newServer(c, memoryStores(), nil, slog.New(slog.NewTextHandler(t.Output(), nil)))
	drained := make(chan struct{})
	srv.RegisterOnShutdown(func() { close(drained) })
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-drained
	ready := func() int {
		w := httptest.NewRecorder()
		srv.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		return w.Code
	}
	for ready() != http.StatusServiceUnavailable { // the hooks run on goroutines of their own
		runtime.Gosched()
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
