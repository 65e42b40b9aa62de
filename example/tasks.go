package main

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sallyport-go/sallyport/middleware"
)

// A task is open until it is cancelled.
type task struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	State string `json:"state"`
}

// tasks keeps tasks apart by tenant, which is organization and environment.
type tasks struct {
	mu       sync.Mutex
	byTenant map[string][]task // the newest last
}

// create makes a task. With an Idempotency-Key the API calls it once, however
// often the client sends the request.
func (t *tasks) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	var made task
	if err != nil || json.Unmarshal(body, &made) != nil || strings.TrimSpace(made.Title) == "" {
		middleware.WriteProblem(w, r, middleware.Problem{
			Status: http.StatusBadRequest,
			Code:   "bad_request",
			Detail: `The body is a JSON object of at most 64 KiB with a title, such as {"title": "Light the harbour"}.`,
		})
		return
	}
	made.ID, made.State = "task_"+rand.Text(), "open"
	t.mu.Lock()
	t.byTenant[tenant(r)] = append(t.byTenant[tenant(r)], made)
	t.mu.Unlock()
	w.Header().Set("Location", "/api/v1/tasks/"+made.ID)
	writeJSON(w, http.StatusCreated, made)
}

// list answers with the newest hundred tasks.
func (t *tasks) list(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	all := t.byTenant[tenant(r)]
	newest := append([]task{}, all[max(0, len(all)-100):]...)
	t.mu.Unlock()
	slices.Reverse(newest)
	writeJSON(w, http.StatusOK, map[string][]task{"tasks": newest})
}

func (t *tasks) find(w http.ResponseWriter, r *http.Request) { t.one(w, r, func(*task) {}) }

func (t *tasks) cancel(w http.ResponseWriter, r *http.Request) {
	t.one(w, r, func(found *task) { found.State = "cancelled" })
}

// one changes the task that the path names, and answers with it.
func (t *tasks) one(w http.ResponseWriter, r *http.Request, change func(*task)) {
	var found task
	t.mu.Lock()
	all := t.byTenant[tenant(r)]
	i := slices.IndexFunc(all, func(one task) bool { return one.ID == r.PathValue("id") })
	if i >= 0 {
		change(&all[i])
		found = all[i]
	}
	t.mu.Unlock()
	if i < 0 {
		middleware.WriteProblem(w, r, middleware.Problem{
			Status: http.StatusNotFound,
			Code:   "not_found",
			Detail: "Your organization has no task of this id in the environment of the API key.",
		})
		return
	}
	writeJSON(w, http.StatusOK, found)
}

// tenant is whose data a request may see.
func tenant(r *http.Request) string { return middleware.CallerFrom(r.Context()).Tenant() }
