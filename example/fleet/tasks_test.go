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
		got := srv.must(t, srv.keys.Full, "POST", tasksPath, `{"title": "Light the harbour"}`, "Content-Type",
			"application/json")
		made, at := decode[task](t, got), got.Header.Get("Location")
		if got.StatusCode != http.StatusCreated || got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("create: got %s, %v", got.Status, got.Header)
		}
		if !regexp.MustCompile(`^task_[0-9a-v]{20}$`).MatchString(made.ID) || made.Title != "Light the harbour" ||
			made.State != open || at != tasksPath+"/"+made.ID {
			t.Errorf("create: got %s at %q", got.text, at)
		}
		got = srv.must(t, srv.keys.Full, "GET", at, "")
		if got.StatusCode != http.StatusOK || decode[task](t, got) != made {
			t.Errorf("find: got %s %s, want %v", got.Status, got.text, made)
		}
		first := srv.must(t, srv.keys.Full, "POST", at+"/cancel", "", "Idempotency-Key", "cancel")
		if ended := decode[task](t, first); first.StatusCode != http.StatusOK || ended.ID != made.ID ||
			ended.State != cancelled {
			t.Errorf("cancel: got %s %s", first.Status, first.text)
		}
		again := srv.must(t, srv.keys.Full, "POST", at+"/cancel", "")
		if again.StatusCode != http.StatusOK || again.text != first.text {
			t.Errorf("cancel again: got %s %s, want %s", again.Status, again.text, first.text)
		}
		if got = srv.must(t, srv.keys.Full, "GET", at, ""); got.text != first.text {
			t.Errorf("find after cancel: got %s, want %s", got.text, first.text)
		}
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
	for _, row := range []struct{ secret, organization, environment string }{
		{srv.keys.Full, "org_harbour", "production"},
		{srv.keys.Sandbox, "org_harbour", "sandbox"},
		{srv.keys.Other, "org_lantern", "production"},
	} {
		got := srv.must(t, row.secret, "GET", "/api/v1/account", "")
		account := decode[struct {
			Organization, Environment, Key string
			Scopes                         []string
		}](t, got)
		if got.StatusCode != http.StatusOK || account.Organization != row.organization ||
			account.Environment != row.environment ||
			!strings.HasPrefix(account.Key, "key_") || len(account.Scopes) != 16 {
			t.Errorf("got %s %s, want %s in %s", got.Status, got.text, row.organization, row.environment)
		}
		if strings.Contains(got.text, row.secret) {
			t.Errorf("the account shows the secret: %s", got.text)
		}
	}
}

func TestScopesOfTheRoutes(t *testing.T) {
	srv := start(t)
	routes := []struct{ method, path, body string }{
		{"GET", "/api/v1/account", ""},
		{"POST", "/api/v1/tasks", `{"title": "x"}`},
		{"GET", "/api/v1/tasks", ""},
		{"GET", "/api/v1/tasks/task_x", ""},
		{"POST", "/api/v1/tasks/task_x/cancel", ""},
	}
	for _, route := range routes {
		for key, want := range map[string]struct {
			secret string
			status int
			code   string
		}{
			"without a key":  {"", 401, "api_key_missing"},
			"with a bad key": {srv.keys.Full + "x", 401, "api_key_invalid"},
			"without scopes": {srv.keys.None, 403, "insufficient_scope"},
			"as a worker":    {srv.keys.Worker, 403, "insufficient_scope"},
		} {
			got := srv.must(t, want.secret, route.method, route.path, route.body)
			wantProblem(t, route.method+" "+route.path+" "+key, got, want.status, want.code)
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
	for i, row := range rows {
		what := fmt.Sprintf("%s %s %.40s", row.method, row.path, row.body)
		wantProblem(t, what, srv.must(t, srv.keys.Full, row.method, row.path, row.body), row.status, row.code)
		if row.method == "POST" {
			wantProblem(t, what+" with an Idempotency-Key", srv.must(t, srv.keys.Full, row.method, row.path, row.body,
				"Idempotency-Key", fmt.Sprint(i)), row.status, row.code)
		}
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

// A brokenStore answers nothing.
type brokenStore struct{}

var errBroken = errors.New("dial tcp 10.0.0.7: secret of the house")

func (brokenStore) Create(context.Context, string, string) (task, error) { return task{}, errBroken }
func (brokenStore) Find(context.Context, string, string) (task, error)   { return task{}, errBroken }
func (brokenStore) Cancel(context.Context, string, string) (task, error) { return task{}, errBroken }
func (brokenStore) List(context.Context, string) ([]task, error)         { return nil, errBroken }

func TestAStoreThatFailsTellsNothingOfItself(t *testing.T) {
	s := memoryStores()
	s.tasks = brokenStore{}
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
