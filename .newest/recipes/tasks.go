// Package recipes puts the stages into other people's routers. Each file has
// one of them; .github/RECIPES.md shows its lines and says what to know.
package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/middleware"
)

// Task is what clients create.
type Task struct {
	ID           string `json:"id"`
	Title        string `json:"title"`
	Organization string `json:"organization"`
}

// Tasks is the service behind every recipe.
type Tasks struct{ runs atomic.Int64 }

var errTitle = errors.New("a task needs a title")

func (t *Tasks) create(ctx context.Context, title string) (Task, error) {
	id := fmt.Sprint("task_", t.runs.Add(1))
	switch title {
	case "":
		return Task{}, errTitle
	case "panic":
		panic("no such task")
	}
	return Task{ID: id, Title: title, Organization: middleware.CallerFrom(ctx).Organization()}, nil
}

func (t *Tasks) get(ctx context.Context, id string) Task {
	return Task{ID: id, Title: "Call the bank", Organization: middleware.CallerFrom(ctx).Organization()}
}

// Create and Get are the handlers of net/http.

func (t *Tasks) Create(w http.ResponseWriter, r *http.Request) {
	var in Task
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	task, err := t.create(r.Context(), in.Title)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(task)
}

func (t *Tasks) Get(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(t.get(r.Context(), r.PathValue("id")))
}

// notFound gives a router's 404 the form of the stages' refusals.
func notFound(w http.ResponseWriter, r *http.Request) {
	problem := middleware.Problem{Status: 404, Code: "not_found", Detail: "There is nothing at this path."}
	middleware.WriteProblem(w, r, problem)
}
