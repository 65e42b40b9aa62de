package guides_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// delegateKey answers with a child of the caller's key.
func delegateKey(issuer *issuing.Issuer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		middleware.ExecutionFrom(r.Context()).DropResponse()
		caller := middleware.CallerFrom(r.Context())
		secret, child, err := issuer.Delegate(r.Context(), keystore.Key{
			Organization: caller.Organization(), Parent: caller.KeyID(), Scopes: []scope.Name{scope.TasksRead},
			ExpiresAt: time.Now().Add(15 * time.Minute), IssueToken: r.Header.Get("Idempotency-Key"),
		})
		answerKey(w, r, secret, child, err)
	}
}

// Where the reply is lost, a repeat makes no second child.
func TestDelegateWithoutTheReply(t *testing.T) {
	keys, issuer := issuing.InMemory(keystore.Service{})
	parent := issue(issuer, "org_1", scope.TasksRead)
	for i, want := range []int{201, 409} {
		api := middleware.NewAPI(keys, middleware.Options{}) // with replies of its own
		api.HandleFunc("POST /api/v1/runs", middleware.Require(scope.TasksRead), delegateKey(issuer))
		w := send(api, "POST", "/api/v1/runs", parent, "", "Idempotency-Key", "run 7")
		if w.Code != want || (i == 1) != strings.Contains(w.Body.String(), `"key_exists"`) {
			t.Errorf("request %d got %d %s, want %d", i+1, w.Code, w.Body, want)
		}
	}
}

// An endpoint that gives each run of an agent a key of its own, which does no
// more than the caller's and ends with it.
func Example_delegate() {
	keys, issuer := issuing.InMemory(keystore.Service{})
	api := middleware.NewAPI(keys, middleware.Options{})
	api.HandleFunc("POST /api/v1/runs", middleware.Require(scope.TasksRead), delegateKey(issuer))
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), func(http.ResponseWriter, *http.Request) {})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(http.ResponseWriter, *http.Request) {})

	parent := issue(issuer, "org_1", scope.TasksRead, scope.TasksWrite)
	w := send(api, "POST", "/api/v1/runs", parent, "", "Idempotency-Key", "run 7")
	again := send(api, "POST", "/api/v1/runs", parent, "", "Idempotency-Key", "run 7")
	fmt.Println(w.Code, again.Code)
	var child struct{ Secret string }
	if err := json.Unmarshal(w.Body.Bytes(), &child); err != nil {
		panic(err)
	}
	fmt.Println(send(api, "GET", "/api/v1/tasks", child.Secret, "").Code)
	fmt.Println(send(api, "POST", "/api/v1/tasks", child.Secret, "", "Idempotency-Key", "1").Code)
	key, err := issuer.KeyOf(context.Background(), parent)
	if err == nil {
		_, err = issuer.Revoke(context.Background(), "org_1", key.ID)
	}
	fmt.Println(send(api, "GET", "/api/v1/tasks", child.Secret, "").Code, err)
	// Output:
	// 201 409
	// 200
	// 403
	// 401 <nil>
}
