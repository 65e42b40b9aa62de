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
	srv := start(t)
	got := srv.must(t, srv.keys.Full, "POST", "/api/v1/tasks", `{"title": "Light the harbour"}`, "Content-Type",
		"application/json")
	made := decode[task](t, got)
	if got.StatusCode != http.StatusCreated || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("create: got %s, %v", got.Status, got.Header)
	}
	if !regexp.MustCompile(`^task_[0-9a-v]{20}$`).MatchString(made.ID) || made.Title != "Light the harbour" ||
		made.State != open {
		t.Errorf("create: got %s", got.text)
	}
	if location := got.Header.Get("Location"); location != "/api/v1/tasks/"+made.ID {
		t.Errorf("create: got Location %q", location)
	}

	got = srv.must(t, srv.keys.Full, "GET", got.Header.Get("Location"), "")
	if got.StatusCode != http.StatusOK || decode[task](t, got) != made {
		t.Errorf("find: got %s %s, want %v", got.Status, got.text, made)
	}
	first := srv.must(t, srv.keys.Full, "POST", "/api/v1/tasks/"+made.ID+"/cancel", "")
	again := srv.must(t, srv.keys.Full, "POST", "/api/v1/tasks/"+made.ID+"/cancel", "")
	if ended := decode[task](t, first); first.StatusCode != http.StatusOK || ended.ID != made.ID ||
		ended.State != cancelled {
		t.Errorf("cancel: got %s %s", first.Status, first.text)
	}
	if again.StatusCode != http.StatusOK || again.text != first.text {
		t.Errorf("cancel again: got %s %s, want %s", again.Status, again.text, first.text)
	}
	got = srv.must(t, srv.keys.Full, "GET", "/api/v1/tasks/"+made.ID, "")
	if got.text != first.text {
		t.Errorf("find after cancel: got %s, want %s", got.text, first.text)
	}
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
		what := route.method + " " + route.path
		wantProblem(t, what+" without a key", srv.must(t, "", route.method, route.path, route.body), 401, "api_key_missing")
		wantProblem(t, what+" with a bad key", srv.must(t, srv.keys.Full+"x", route.method, route.path, route.body), 401,
			"api_key_invalid")
		wantProblem(t, what+" without scopes", srv.must(t, srv.keys.None, route.method, route.path, route.body), 403,
			"insufficient_scope")
		wantProblem(t, what+" as a worker", srv.must(t, srv.keys.Worker, route.method, route.path, route.body), 403,
			"insufficient_scope")
	}
}

func TestOrganizationsAndEnvironmentsAreApart(t *testing.T) {
	srv := start(t)
	mine := srv.create(t, srv.keys.Full, "mine")
	for name, secret := range map[string]string{"sandbox": srv.keys.Sandbox, "other": srv.keys.Other} {
		wantProblem(t, name+" finds", srv.must(t, secret, "GET", "/api/v1/tasks/"+mine.ID, ""), 404, "not_found")
		wantProblem(t, name+" cancels", srv.must(t, secret, "POST", "/api/v1/tasks/"+mine.ID+"/cancel", ""), 404, "not_found")
		if got := srv.must(t, secret, "GET", "/api/v1/tasks", ""); got.text != "{\"tasks\":[]}\n" {
			t.Errorf("%s lists %s", name, got.text)
		}
	}
	if got := decode[task](t, srv.must(t, srv.keys.Full, "GET", "/api/v1/tasks/"+mine.ID, "")); got != mine {
		t.Errorf("got %v, want it untouched: %v", got, mine)
	}
}

func TestWhatAClientCanGetWrong(t *testing.T) {
	t.Parallel()
	srv := start(t, "-rate", "100000-S")
	long := strings.Repeat("é", 200)
	for i, row := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/api/v1/tasks", ``, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `title=x`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": "x"`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": "x"} {}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": "x",}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `["x"]`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `"x"`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `null`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": null}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": 1}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": ""}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": " \u2003"}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": "a\u0000b"}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": "a\nb"}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", "{\"title\": \"\xff\"}", 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": "` + long + `x"}`, 400, "bad_request"},
		{"POST", "/api/v1/tasks", strings.Repeat("[", 60<<10), 400, "bad_request"},
		{"POST", "/api/v1/tasks", `{"title": "` + strings.Repeat("x", 64<<10) + `"}`, 400, "bad_request"},
		{"GET", "/api/v1/tasks/task_00000000000000000000", "", 404, "not_found"},
		{"GET", "/api/v1/tasks/%00", "", 404, "not_found"},
		{"GET", "/api/v1/tasks/a%2Fb", "", 404, "not_found"},
		{"POST", "/api/v1/tasks/task_00000000000000000000/cancel", "", 404, "not_found"},
		{"GET", "/api/v1/nothing", "", 404, "not_found"},
		{"GET", "/api/v2/tasks", "", 404, "not_found"},
		{"GET", "/", "", 404, "not_found"},
		{"DELETE", "/api/v1/tasks", "", 405, "method_not_allowed"},
		{"GET", "/api/v1/tasks/x/cancel", "", 405, "method_not_allowed"},
	} {
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
