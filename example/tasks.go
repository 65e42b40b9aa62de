package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

const tasksPath = basePath + "/tasks"

// A taskStore keeps tasks apart by tenant. Each method is one atomic step. Find
// and Cancel return errNoTask when the tenant has no such task; any other error
// means that the store could not answer.
type taskStore interface {
	Create(ctx context.Context, tenant, title string) (task, error)
	Find(ctx context.Context, tenant, id string) (task, error)
	// List returns at most limit tasks, newest first, that stand behind the
	// cursor.
	List(ctx context.Context, tenant string, after cursor, limit int) ([]task, error)
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
	title, problem := readTitle(w, r)
	if problem.Status != 0 {
		middleware.WriteProblem(w, r, problem)
		return
	}
	if err := sleep(r.Context(), t.latency); err != nil {
		t.fail(w, r, err)
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

func (t *tasks) find(w http.ResponseWriter, r *http.Request) {
	found, err := t.store.Find(r.Context(), tenant(r), r.PathValue("id"))
	if err != nil {
		t.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, found)
}

// cancel answers 200 with the task, as often as it is asked: what the client
// wants is that the task is cancelled, and it is.
func (t *tasks) cancel(w http.ResponseWriter, r *http.Request) {
	found, err := t.store.Cancel(r.Context(), tenant(r), r.PathValue("id"))
	if err != nil {
		t.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, found)
}

func (t *tasks) list(w http.ResponseWriter, r *http.Request) {
	limit, after, problem := readPage(r)
	if problem.Status != 0 {
		middleware.WriteProblem(w, r, problem)
		return
	}
	page, err := t.store.List(r.Context(), tenant(r), after, limit+1) // one more tells whether there is a next page
	if err != nil {
		t.fail(w, r, err)
		return
	}
	if len(page) > limit {
		page = page[:limit]
		next, err := cursorAt(page[limit-1])
		if err != nil {
			t.fail(w, r, err)
			return
		}
		// RFC 8288 resolves it against the URL of the request, so it is right
		// behind any proxy that keeps the path.
		w.Header().Set("Link", fmt.Sprintf(`<%s?limit=%d&cursor=%s>; rel="next"`, tasksPath, limit, next))
	}
	writeJSON(w, http.StatusOK, struct {
		Tasks []task `json:"tasks"`
	}{page})
}

// fail answers an error of the store. What it was goes to the log only.
func (t *tasks) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errNoTask) {
		middleware.WriteProblem(w, r, middleware.Problem{
			Status: http.StatusNotFound,
			Code:   "not_found",
			Detail: "Your organization has no task of this id in the environment of the API key.",
		})
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
	p, _ := middleware.PrincipalFrom(r.Context())
	return p.Tenant()
}

// sleep waits for d or until the context ends, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
