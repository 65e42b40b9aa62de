package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/middleware"
)

const tasksPath = basePath + "/tasks"

// A task is open until it is cancelled; cancelling is final.
type task struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	State string `json:"state"`
}

const open, cancelled = "open", "cancelled"

// newTask returns an open task. An id made in a later second sorts behind, and
// so does a later one of the same process.
func newTask(title string) task { return task{"task_" + xid.New().String(), title, open} }

// isTaskID reports whether newTask could have made an id. Other text need not
// even be text to a database.
func isTaskID(id string) bool {
	text, ok := strings.CutPrefix(id, "task_")
	_, err := xid.FromString(text)
	return ok && err == nil
}

// A taskStore keeps tasks apart by tenant. Each method is one atomic step. Find
// and Cancel return errNoTask when the tenant has no such task; any other error
// means that the store could not answer.
type taskStore interface {
	Create(ctx context.Context, tenant, title string) (task, error)
	Find(ctx context.Context, tenant, id string) (task, error)
	List(ctx context.Context, tenant string) ([]task, error) // the newest hundred
	Cancel(ctx context.Context, tenant, id string) (task, error)
}

var (
	errNoTask = &middleware.Problem{Status: http.StatusNotFound, Code: "not_found",
		Detail: "Your organization has no task of this id in the environment of the API key."}
	errBadTask = &middleware.Problem{Status: http.StatusBadRequest, Code: "bad_request",
		Detail: `The body is a JSON object of at most 64 KiB with a title of at most 200 characters, without control ` +
			`characters, such as {"title": "Light the harbour"}.`}
)

// tasks answers the requests under /api/v1/tasks.
type tasks struct {
	store   taskStore
	latency time.Duration // before a task is created
	logger  *slog.Logger
}

// create leaves other members than the title alone, so that a newer client is
// not refused.
func (t *tasks) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	var input struct{ Title string }
	if err != nil || !utf8.Valid(body) || json.Unmarshal(body, &input) != nil || strings.TrimSpace(input.Title) == "" ||
		utf8.RuneCountInString(input.Title) > 200 || strings.ContainsFunc(input.Title, unicode.IsControl) {
		t.answer(w, r, nil, errBadTask)
		return
	}
	select {
	case <-time.After(t.latency):
	case <-r.Context().Done():
	}
	created, err := t.store.Create(r.Context(), tenant(r), input.Title)
	if err != nil {
		t.answer(w, r, nil, err)
		return
	}
	w.Header().Set("Location", tasksPath+"/"+created.ID)
	writeJSON(w, http.StatusCreated, created)
}

func (t *tasks) list(w http.ResponseWriter, r *http.Request) {
	newest, err := t.store.List(r.Context(), tenant(r))
	t.answer(w, r, map[string][]task{"tasks": newest}, err)
}

func (t *tasks) find(w http.ResponseWriter, r *http.Request) { t.one(w, r, t.store.Find) }

// cancel answers 200 as often as it is asked: the task is cancelled, as the
// client wants it.
func (t *tasks) cancel(w http.ResponseWriter, r *http.Request) { t.one(w, r, t.store.Cancel) }

// one answers with the task that the path names.
func (t *tasks) one(w http.ResponseWriter, r *http.Request, do func(context.Context, string, string) (task, error)) {
	if id := r.PathValue("id"); isTaskID(id) {
		found, err := do(r.Context(), tenant(r), id)
		t.answer(w, r, found, err)
		return
	}
	t.answer(w, r, nil, errNoTask)
}

// answer writes v, or an error: a refusal, or one of the store, which only the
// log tells.
func (t *tasks) answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, v)
		return
	}
	problem, ok := errors.AsType[*middleware.Problem](err)
	if !ok {
		t.logger.ErrorContext(r.Context(), "the store of tasks does not answer",
			"request_id", middleware.RequestIDFrom(r.Context()), "error", err)
		problem = &middleware.Problem{Status: http.StatusServiceUnavailable, Code: "tasks_unavailable",
			Detail: "The tasks cannot be reached at the moment. Retry after the wait.", RetryAfter: time.Second}
	}
	middleware.WriteProblem(w, r, *problem)
}

// tenant is the organization and environment of the key that called.
func tenant(r *http.Request) string { return middleware.CallerFrom(r.Context()).Tenant() }

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has left
}
