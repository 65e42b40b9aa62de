package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

type taskList struct{ Tasks []task }

func (srv *running) create(t *testing.T, secret, title string) task {
	t.Helper()
	got := srv.must(t, secret, "POST", "/api/v1/tasks", fmt.Sprintf(`{"title": %q}`, title))
	if got.StatusCode != http.StatusCreated {
		t.Fatalf("creating %q: got %s: %s", title, got.Status, got.text)
	}
	return decode[task](t, got)
}

func TestATaskFromItsCreationToItsEnd(t *testing.T) {
	t.Parallel()
	inEachStore(t, func(t *testing.T, flags []string) {
		srv := start(t, flags...)
		before := srv.create(t, srv.keys.Full, "before")
		got := srv.must(t, srv.keys.Full, "POST", tasksPath, `{"title": "Light the harbour"}`)
		made, at := decode[task](t, got), got.Header.Get("Location")
		if got.StatusCode != http.StatusCreated || got.Header.Get("Content-Type") != "application/json" ||
			!regexp.MustCompile(`^task_[0-9a-v]{20}$`).MatchString(made.ID) || made.Title != "Light the harbour" ||
			made.State != open || at != tasksPath+"/"+made.ID {
			t.Errorf("create: got %s, %v, %s", got.Status, got.Header, got.text)
		}
		want := func(what, text string, got reply) {
			if got.StatusCode != http.StatusOK || got.text != text {
				t.Errorf("%s: got %s %s, want %s", what, got.Status, got.text, text)
			}
		}
		ended := strings.Replace(got.text, open, cancelled, 1)
		want("find", got.text, srv.must(t, srv.keys.Full, "GET", at, ""))
		want("cancel", ended, srv.must(t, srv.keys.Full, "POST", at+"/cancel", "", "Idempotency-Key", "cancel"))
		want("cancel again", ended, srv.must(t, srv.keys.Full, "POST", at+"/cancel", ""))
		want("find after cancel", ended, srv.must(t, srv.keys.Full, "GET", at, ""))
		after := srv.create(t, srv.keys.Full, "after")
		list := decode[taskList](t, srv.must(t, srv.keys.Full, "GET", tasksPath, "")).Tasks
		if len(list) != 3 || list[0].ID != after.ID || list[1].ID != made.ID || list[2].ID != before.ID {
			t.Errorf("got %v, want the newest first", list)
		}
		for _, id := range []string{"%ff", "a%00b", "task_", "task_%ff", "task_00000000000000000000"} {
			for _, request := range [][2]string{{"GET", tasksPath + "/" + id}, {"POST", tasksPath + "/" + id + "/cancel"}} {
				wantProblem(t, id, srv.must(t, srv.keys.Full, request[0], request[1], ""), 404, "not_found")
			}
		}
	})
}

func TestAccountTellsWhatTheKeyStandsFor(t *testing.T) {
	srv := start(t)
	for secret, want := range map[string]string{
		srv.keys.Full: "org_harbour production", srv.keys.Sandbox: "org_harbour sandbox",
		srv.keys.Other: "org_lantern production",
	} {
		got := srv.must(t, secret, "GET", "/api/v1/account", "")
		account := decode[struct {
			Organization, Environment, Key string
			Scopes                         []string
		}](t, got)
		if account.Organization+" "+account.Environment != want || !strings.HasPrefix(account.Key, "key_") ||
			len(account.Scopes) != 16 || strings.Contains(got.text, secret) {
			t.Errorf("got %s %s, want %s", got.Status, got.text, want)
		}
	}
}

func TestScopesOfTheRoutes(t *testing.T) {
	srv := start(t)
	for _, route := range []struct{ method, path, body string }{
		{"GET", "/api/v1/account", ""},
		{"POST", "/api/v1/tasks", `{"title": "x"}`},
		{"GET", "/api/v1/tasks", ""},
		{"GET", "/api/v1/tasks/task_x", ""},
		{"POST", "/api/v1/tasks/task_x/cancel", ""},
	} {
		for _, key := range []struct {
			secret string
			status int
			code   string
		}{
			{"", 401, "api_key_missing"},
			{srv.keys.Full + "x", 401, "api_key_invalid"},
			{srv.keys.None, 403, "insufficient_scope"},
			{srv.keys.Worker, 403, "insufficient_scope"},
		} {
			got := srv.must(t, key.secret, route.method, route.path, route.body)
			wantProblem(t, route.method+" "+route.path, got, key.status, key.code)
		}
	}
}

func TestOrganizationsAndEnvironmentsAreApart(t *testing.T) {
	t.Parallel()
	inEachStore(t, func(t *testing.T, flags []string) {
		srv := start(t, flags...)
		mine := srv.create(t, srv.keys.Full, "mine")
		for name, secret := range map[string]string{"sandbox": srv.keys.Sandbox, "other": srv.keys.Other} {
			wantProblem(t, name+" finds", srv.must(t, secret, "GET", tasksPath+"/"+mine.ID, ""), 404, "not_found")
			wantProblem(t, name+" cancels", srv.must(t, secret, "POST", tasksPath+"/"+mine.ID+"/cancel", ""), 404, "not_found")
			if got := srv.must(t, secret, "GET", tasksPath, ""); got.text != "{\"tasks\":[]}\n" {
				t.Errorf("%s lists %s", name, got.text)
			}
		}
		if got := decode[task](t, srv.must(t, srv.keys.Full, "GET", tasksPath+"/"+mine.ID, "")); got != mine {
			t.Errorf("got %v, want it untouched: %v", got, mine)
		}
	})
}

func TestWhatAClientCanGetWrong(t *testing.T) {
	t.Parallel()
	srv := start(t, "-rate", "100000-S")
	type request struct {
		method, path, body string
		status             int
		code               string
	}
	rows := []request{
		{"GET", "/api/v1/tasks/a%2Fb", "", 404, "not_found"},
		{"GET", "/api/v1/nothing", "", 404, "not_found"},
		{"GET", "/api/v2/tasks", "", 404, "not_found"},
		{"GET", "/", "", 404, "not_found"},
		{"DELETE", "/api/v1/tasks", "", 405, "method_not_allowed"},
		{"GET", "/api/v1/tasks/x/cancel", "", 405, "method_not_allowed"},
	}
	for _, body := range []string{
		"", "title=x", `{"title": "x"`, `{"title": "x"} {}`, `{"title": "x",}`, `["x"]`, `"x"`, "null", "{}",
		`{"title": null}`, `{"title": 1}`, `{"title": ""}`, `{"title": " \u2003"}`, `{"title": "a\u0000b"}`,
		`{"title": "a\nb"}`, "{\"title\": \"\xff\"}", `{"title": "` + strings.Repeat("é", 200) + `x"}`,
		strings.Repeat("[", 60<<10), `{"title": "` + strings.Repeat("x", 64<<10) + `"}`,
	} {
		rows = append(rows, request{"POST", tasksPath, body, 400, "bad_request"})
	}
	for _, row := range rows {
		what := fmt.Sprintf("%s %s %.40s", row.method, row.path, row.body)
		wantProblem(t, what, srv.must(t, srv.keys.Full, row.method, row.path, row.body), row.status, row.code)
	}
	if got := srv.must(t, srv.keys.Full, "GET", "/api/v1/tasks", ""); got.text != "{\"tasks\":[]}\n" {
		t.Errorf("a refused request made a task: %s", got.text)
	}
}

func TestWhatATaskMayBe(t *testing.T) {
	srv := start(t)
	long := strings.Repeat("é", 200)
	for _, row := range []struct{ body, title string }{
		{`{"title": "` + long + `"}`, long},
		{`{"title": " a <b> \"c\" "}`, ` a <b> "c" `},
		{`{"title": "x", "assignee": "of a newer version"}`, "x"},
	} {
		got := srv.must(t, srv.keys.Full, "POST", "/api/v1/tasks", row.body, "Content-Type",
			"application/x-www-form-urlencoded")
		if got.StatusCode != http.StatusCreated || decode[task](t, got).Title != row.title {
			t.Errorf("%.60s: got %s %s", row.body, got.Status, got.text)
		}
	}
}

// brokenTasks answer each call with its error.
type brokenTasks func(context.Context) error

func (f brokenTasks) Create(ctx context.Context, _, _ string) (task, error) { return task{}, f(ctx) }
func (f brokenTasks) Find(ctx context.Context, _, _ string) (task, error)   { return task{}, f(ctx) }
func (f brokenTasks) Cancel(ctx context.Context, _, _ string) (task, error) { return task{}, f(ctx) }
func (f brokenTasks) List(ctx context.Context, _ string) ([]task, error)    { return nil, f(ctx) }

var errBroken = errors.New("dial tcp 10.0.0.7: secret of the house")

func TestAStoreThatFailsTellsNothingOfItself(t *testing.T) {
	s := memoryStores()
	s.tasks = brokenTasks(func(context.Context) error { return errBroken })
	srv := startWith(t, s)
	for _, row := range []struct{ method, path, body string }{
		{"POST", "/api/v1/tasks", `{"title": "x"}`},
		{"GET", "/api/v1/tasks", ""},
		{"GET", "/api/v1/tasks/task_00000000000000000000", ""},
		{"POST", "/api/v1/tasks/task_00000000000000000000/cancel", ""},
	} {
		got := srv.must(t, srv.keys.Full, row.method, row.path, row.body)
		wantProblem(t, row.method+" "+row.path, got, 503, "tasks_unavailable")
		if strings.Contains(got.text, "secret") {
			t.Errorf("%s %s: the body tells the cause: %s", row.method, row.path, got.text)
		}
	}
}
