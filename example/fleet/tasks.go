package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/middleware"
)

const tasksPath = basePath + "/tasks"

// A task is open until it is cancelled; cancelling is final.
type task struct {
	ID          string    `json:"id"`
	Title       string    `json:"title"`
	State       state     `json:"state"`
	CreatedAt   time.Time `json:"created_at"`
	CancelledAt time.Time `json:"cancelled_at,omitzero"`
}

type state string

const (
	open      state = "open"
	cancelled state = "cancelled"
)

// newTask returns an open task. An id made in a later second sorts behind, and
// so does a later one of the same process.
func newTask(title string) task {
	return task{ID: "task_" + xid.New().String(), Title: title, State: open, CreatedAt: now()}
}

// now is in microseconds, which is what databases keep of a time.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

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
	// List returns at most limit tasks, newest first: those behind the task of
	// the id after, which need not be there any more, or with "" the newest.
	List(ctx context.Context, tenant, after string, limit int) ([]task, error)
	// Cancel returns the task as it is afterwards. A task that was cancelled
	// before stays as it was.
	Cancel(ctx context.Context, tenant, id string) (task, error)
}

// tasks answers the requests under /api/v1/tasks.
type tasks struct {
	store   taskStore
	latency time.Duration // before a task is created
	logger  *slog.Logger
}

func (t *tasks) create(w http.ResponseWriter, r *http.Request) {
	title, err := readTitle(w, r)
	if err != nil {
		t.fail(w, r, err)
		return
	}
	select {
	case <-time.After(t.latency):
	case <-r.Context().Done():
		t.fail(w, r, r.Context().Err())
		return
	}
	created, err := t.store.Create(r.Context(), tenant(r), title)
	if err != nil {
		t.fail(w, r, err)
		return
	}
	w.Header().Set("Location", tasksPath+"/"+created.ID)
	writeJSON(w, http.StatusCreated, created)
}

func (t *tasks) find(w http.ResponseWriter, r *http.Request) { t.one(w, r, t.store.Find) }

// cancel answers 200 as often as it is asked: the task is cancelled, as the
// client wants it.
func (t *tasks) cancel(w http.ResponseWriter, r *http.Request) { t.one(w, r, t.store.Cancel) }

// one answers with the task that the path names.
func (t *tasks) one(w http.ResponseWriter, r *http.Request,
	do func(ctx context.Context, tenant, id string) (task, error)) {
	found, err := task{}, errNoTask
	if id := r.PathValue("id"); isTaskID(id) {
		found, err = do(r.Context(), tenant(r), id)
	}
	if err != nil {
		t.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, found)
}

func (t *tasks) list(w http.ResponseWriter, r *http.Request) {
	limit, after, err := readPage(r)
	if err != nil {
		t.fail(w, r, err)
		return
	}
	page, err := t.store.List(r.Context(), tenant(r), after, limit+1) // one more tells whether there is a next page
	if err != nil {
		t.fail(w, r, err)
		return
	}
	if len(page) > limit {
		page = page[:limit]
		// RFC 8288 resolves it against the URL of the request, so it is right
		// behind any proxy that keeps the path.
		w.Header().Set("Link", fmt.Sprintf(`<%s?limit=%d&cursor=%s>; rel="next"`, tasksPath, limit, page[limit-1].ID))
	}
	writeJSON(w, http.StatusOK, struct {
		Tasks []task `json:"tasks"`
	}{page})
}

// fail answers an error: a refusal, or one of the store, which only the log
// tells.
func (t *tasks) fail(w http.ResponseWriter, r *http.Request, err error) {
	if refusal, ok := errors.AsType[*middleware.Problem](err); ok {
		middleware.WriteProblem(w, r, *refusal)
		return
	}
	level := slog.LevelError
	if errors.Is(err, context.Canceled) { // the client has left
		level = slog.LevelInfo
	}
	t.logger.Log(r.Context(), level, "the store of tasks does not answer", "request_id",
		middleware.RequestIDFrom(r.Context()), "error", err)
	middleware.WriteProblem(w, r, middleware.Problem{
		Status:     http.StatusServiceUnavailable,
		Code:       "tasks_unavailable",
		Detail:     "The tasks cannot be reached at the moment. Retry after the wait.",
		RetryAfter: time.Second,
	})
}

// tenant is the organization and environment of the key that called. The API
// lets nobody reach a handler without one.
func tenant(r *http.Request) string {
	return middleware.CallerFrom(r.Context()).Tenant()
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types of this package all marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // an error means that the client has left
}
