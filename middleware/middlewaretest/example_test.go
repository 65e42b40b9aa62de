package middlewaretest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewaretest"
	"github.com/sallyport-go/sallyport/scope"
)

// createTask is a handler as it is registered with an API.
func createTask(w http.ResponseWriter, r *http.Request) {
	caller, _ := middleware.PrincipalFrom(r.Context())
	if r.ContentLength == 0 {
		middleware.FreeKey(r.Context()) // the client may send the key again
		middleware.WriteProblem(w, r, middleware.Problem{Status: 400, Code: "task_missing", Detail: "The body is empty."})
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, "a task of ", caller.Organization())
}

// The test of a handler: a caller without a key, and a claim without a store.
func Example() {
	for _, body := range []string{`{"title":"Call back"}`, ""} {
		r := httptest.NewRequest("POST", "/api/v1/tasks", strings.NewReader(body))
		r, freed := middlewaretest.Keyed(r, 1)
		w := httptest.NewRecorder()
		createTask(w, middlewaretest.As(r, "org_1", scope.TasksWrite))
		fmt.Println(w.Code, w.Body, freed())
	}
	// Output:
	// 201 a task of org_1 false
	// 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"The body is empty.","code":"task_missing"}
	//  true
}
